"""The pack behind an address: its tools, policy and tasks as the server describes them, and the settings that only a server has."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import PrivateAttr, ValidationError

from simia.envs.config import EnvironmentConfig
from simia.envs.remote.session import RemoteServer
from simia.envs.remote.wire import EnvironmentDescription
from simia.errors import UserError
from simia.llm.openai_backend import refuse_unprintable
from simia.masking import hide
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec

log = logging.getLogger(__name__)
OWN_FIELDS = {"pack", "packs", "token_env", "tasks", "split", "limit", "difficulty", "seed"}
"""Settings of the client when a server plays the episodes; the server decides the others."""
AGENT_FIELDS = {"llm", "limits"}
"""Settings of the agent's model, where an agent plays on this machine."""
NEED_SOLUTIONS = ("reference", "following", "repeating")
"""Agents that play a task's solution, which servers do not send."""
ADDRESS = re.compile(r"https?://", re.IGNORECASE)


class RemotePack(Pack):
    """A pack as its server describes it: tools, policy and tasks, without solutions, states and code."""

    _tasks: list[Task] = PrivateAttr(default_factory=list)
    _server: RemoteServer = PrivateAttr()

    @property
    def tasks(self) -> list[Task]:
        """The tasks that the server plays."""
        return self._tasks

    @property
    def server(self) -> RemoteServer:
        """The address, and the connections to it."""
        return self._server

    @property
    def server_description(self) -> EnvironmentDescription:
        """The server's description of its environment."""
        assert self._server.description is not None
        return self._server.description


def is_address(name: object) -> bool:
    """Check whether a pack's name is the address of an environment on a server."""
    return isinstance(name, str) and ADDRESS.match(name) is not None


def list_addresses(config: EnvironmentConfig) -> list[str]:
    """List the addresses among the packs of a config."""
    return [name for name in list_pack_names(config) if is_address(name)]


def list_pack_names(config: EnvironmentConfig) -> list[str]:
    return [config.pack] if not config.packs else [share.pack for share in config.packs]


def plays_remotely(config: EnvironmentConfig) -> bool:
    """Check whether servers play all episodes, so that nothing of the environment runs on this machine."""
    return all(map(is_address, list_pack_names(config)))


def list_server_settings(config: EnvironmentConfig) -> list[str]:
    """List the changed settings that only a server can have; empty unless servers play all episodes."""
    own = OWN_FIELDS | (AGENT_FIELDS if config.agent_kind is not None else set())
    fields = EnvironmentConfig.model_fields
    changed = [
        name
        for name in fields
        if name not in own and getattr(config, name) != fields[name].get_default(call_default_factory=True)
    ]
    return changed if plays_remotely(config) else []


def refuse_server_settings(config: EnvironmentConfig, given: Sequence[str] = ()) -> None:
    """Raise `UserError` for settings that only a server can have, and for an agent that needs the tasks' solutions.

    `given`: names of arguments that were given beside the config; only a server can have them.
    """
    if not (addresses := list_addresses(config)):
        return
    if unusable := [*given, *list_server_settings(config)]:
        own = sorted(OWN_FIELDS | (AGENT_FIELDS if config.agent_kind is not None else set()))
        raise UserError(
            f"{unusable[0]} is a setting of the server: leave it out here and give it to simia serve; settings that are allowed here: {', '.join(own)}"
        )
    if config.agent_kind in NEED_SOLUTIONS:
        raise UserError(
            f"agent is {config.agent_kind}, but {addresses[0]} does not send the tasks' solutions: choose another agent, such as llm, nothing or random"
        )


async def load_remote_packs(config: EnvironmentConfig) -> dict[str, RemotePack]:
    """Ask the servers of a config's addresses for their packs. Returns address → pack; no connection stays open.

    Raises `UserError` for settings that only a server can have, and for a server that cannot be reached or refuses the token.
    """
    refuse_server_settings(config)
    addresses = dict.fromkeys(list_addresses(config))
    return {address: await load_remote_pack(address, config.token_env) for address in addresses}


async def load_remote_pack(address: str, token_env: str | None = None) -> RemotePack:
    """Ask the server at an address for its pack. `token_env`: the variable with its token. Raises `UserError`."""
    parts = urlsplit(address)
    if parts.username or parts.password or parts.query or parts.fragment or not parts.hostname:
        raise UserError("the address of an environment is https://HOST/PACK, without a user, a query or a fragment")
    token = read_token(token_env)
    if token and parts.scheme.lower() == "http" and not is_loopback_name(parts.hostname):
        log.warning("the token for %s is sent unencrypted: use https where others can read the network", parts.netloc)
    server = RemoteServer(address.rstrip("/"), token)
    try:
        return make_pack(await server.describe(), server)
    finally:
        await server.close()


def make_pack(description: EnvironmentDescription, server: RemoteServer) -> RemotePack:
    """Make the pack of a description. Raises `UserError` where it cannot be read."""
    try:
        pack = RemotePack(
            name=description.name,
            description=description.description,
            licence=description.licence,
            policy=description.policy,
            tools=[ToolSpec.model_validate(row) for row in description.tools],
            user_tools=[ToolSpec.model_validate(row) for row in description.user_tools],
            ends=description.ends,
            evaluation=description.evaluation,
            limits=description.pack_limits,
        )
        pack._tasks = [Task.model_validate(row) for row in description.tasks]
    except ValidationError:
        raise UserError(
            "the server's description cannot be read: use the same version of simia there and here"
        ) from None
    pack._server = server
    return pack


def is_loopback_name(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def read_token(variable: str | None) -> str | None:
    """Read a token from an environment variable. Raises `UserError` where the variable is empty."""
    if variable is None:
        return None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UserError(
            "token_env must be the name of an environment variable that holds the token, such as SIMIA_TOKEN"
        )
    token = os.environ.get(variable, "").strip()
    if not token:
        raise UserError(f"no token: export {variable}=…")
    refuse_unprintable(token, f"the variable {variable}")
    hide(token)
    return token
