"""The driver of a server of the Model Context Protocol. The agent's tools are the tools of the server.

This folder is copied into each imported pack, and the pack's `mcp.json` states the server's command or URL. A server with a
command is restarted for each episode, with the private folder as its working directory and home. The state is the files in that
folder, or, where the pack names two tools that load and save it, what the server holds in memory. A server at a URL runs elsewhere; a
tool that the pack names can reset it. A result that the server marks as an error is a refusal with the server's text.

The driver runs with the interpreter of the "mcp" environment, in the sandbox: the server is untrusted, like any pack's code.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as wire
from mcp.client.session import ClientSession

from simia.sandbox.inside import files
from simia.state import merge_patch

from .connection import START, ServerConnection, ServerFailed, ServerRefusal, fill_variables, list_server
from .conversion import describe_file, parse_state, result_to_text

JSON = Any
LISTING = "list_server"  # the importer's only tool
CALL = 8.0  # seconds
CLOCK = "2025-01-01T00:00:00"
STATE_FILE = "state.json"
STARTS = {"folder": str, "files": dict, "environment": dict, "arguments": list, "clock": str}
STATE_STARTS = {"state": dict, "patch": dict}


class MCPWorld:
    """One server, and the episode's private folder."""

    rolls_back = False  # a server may change its files before it refuses
    clock: str | None = None
    """The pack's clock."""

    def __init__(self, pack: Path, root: Path) -> None:
        self.pack, self.root = pack, root
        self.how: dict[str, Any] = json.loads((pack / "mcp.json").read_bytes())
        self.state_tools: dict[str, Any] | None = self.how.get("state")
        self._episode = self.how
        self._places: dict[str, str] = {}
        self._connection: ServerConnection | None = None
        self._initial: JSON = None

    def tools(self) -> dict[str, dict[str, bool]]:
        """Return tool → whether it writes. Tools that the server does not mark as read-only write."""
        return {"agent": self.how.get("tools") or {LISTING: False}, "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Start a new server process in a new folder, or a new session with a server elsewhere.

        The folder holds the pack's files, then the task's: `{"folder": …, "files": {name: {"text"} | {"base64"} | null}}`. A task
        may add `environment`, `arguments` and `clock`, and with state tools `state`, or `patch` over the pack's.
        """
        self._check_start(initial)
        self._places = {"ROOT": str(self.root), "CLOCK": initial.get("clock") or self.clock or CLOCK}
        own: dict[str, Any] = {"environment": {**(self.how.get("environment") or {}), **initial.get("environment", {})}}
        if "command" in self.how:
            own["command"] = [*self.how["command"], *initial.get("arguments", [])]
        self._episode = {**self.how, **own}
        folders = (self.how.get("files"), initial.get("folder"))
        self._restart(files.collect_files(self.pack, folders, initial.get("files") or {}))
        if self.how.get("tools") and (again := self.how.get("reset")) is not None:
            self._set_up(again["tool"], fill_json(again.get("arguments") or {}, self._places))
        if self.state_tools:
            path = self.pack / STATE_FILE
            if path.is_file() or initial.keys() & STATE_STARTS.keys():
                start = initial.get("state", json.loads(path.read_bytes()) if path.is_file() else {})
                self._load(merge_patch(start, initial.get("patch", {})))
        self._initial = self._read()

    def _check_start(self, initial: dict[str, Any]) -> None:
        """Raise `ValueError` for an `initial` that the server cannot be started with."""
        forms = {**STARTS, **(STATE_STARTS if self.state_tools else {})}
        for name, value in initial.items():
            if name in STATE_STARTS and not self.state_tools:
                raise ValueError(f"initial has {name}: import the server with --state-tools LOAD,SAVE")
            if name not in forms:
                raise ValueError(f"initial has {name}: it may have {', '.join(forms)}")
            if not isinstance(value, forms[name]):
                raise TypeError(f"initial: {name} must be a {forms[name].__name__}, not {value!r}")
        texts = [*initial.get("arguments", []), *initial.get("environment", {}).values()]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("initial: arguments and the values of environment must be texts")
        if self.how["transport"] == "http" and (own := initial.keys() & {"environment", "arguments"}):
            raise ValueError(f"initial has {min(own)}: a server at a URL is not started here")

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name == LISTING and not self.how.get("tools"):
            connection = self._get_connection()
            return connection.ask(partial(list_server, listing=connection.listing), START)
        return result_to_text(self._request(name, arguments))

    def dump(self) -> JSON:
        """Return the state: what the server saves, or the files of the private folder."""
        return self._to_json(self._read())

    def initial(self) -> JSON:
        return self._to_json(self._initial)

    def restore(self, state: JSON) -> None:
        """Restart the server on a state."""
        if self.state_tools:
            self._restart(files.read_files(self.root))
            self._load(state)
        else:
            self._restart(files.files_from_json(state["files"]))

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> JSON:
        raise ValueError("an imported server has no checks of its own: judge its state, the calls or the answer")

    def _read(self) -> Any:
        """Return the state as the server holds it: JSON of its tool, or files."""
        if not self.state_tools:
            return files.read_files(self.root)
        name = self.state_tools["save"]
        found = self._set_up(name, {})
        state = parse_state(found)
        if state is None:
            raise ServerFailed(
                f"its tool {name} must return the state as a JSON object, not {result_to_text(found)[:100]!r}"
            )
        return state

    def _to_json(self, state: Any) -> JSON:
        return state if self.state_tools else {"files": files.files_to_json(state, describe_file)}

    def _load(self, state: JSON) -> None:
        how = self.state_tools or {}
        value = json.dumps(state, ensure_ascii=False) if how["text"] else state
        self._set_up(how["load"], {how["argument"]: value} if how["argument"] else state)

    def _set_up(self, name: str, arguments: dict[str, Any]) -> wire.CallToolResult:
        """Call a tool that is not the agent's. Raises `ServerFailed` if it refuses."""
        try:
            return self._request(name, arguments)
        except ServerRefusal as error:
            raise ServerFailed(f"its tool {name} refused: {error}") from None

    def _restart(self, wanted: files.Files) -> None:
        """Start the server, or a new session with a server elsewhere, on these files."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        files.remove_files(self.root, wanted)
        files.write_files(self.root, wanted)
        self._connection = ServerConnection(self._episode, self.root, dict(self._places))
        self._connection.open()

    def _get_connection(self) -> ServerConnection:
        if self._connection is None:
            raise ServerFailed("there is no server: the episode was not set up")
        return self._connection

    def _request(self, name: str, arguments: dict[str, Any]) -> wire.CallToolResult:
        """Call a tool. Raises `ServerRefusal` for an error, with its text."""
        request = wire.CallToolRequest(params=wire.CallToolRequestParams(name=name, arguments=arguments))

        async def call(session: ClientSession) -> wire.CallToolResult:
            return await session.send_request(request, wire.CallToolResult)

        found: wire.CallToolResult = self._get_connection().ask(call, self.how.get("call") or CALL)
        if found.is_error:
            raise ServerRefusal(result_to_text(found) or "the tool failed without a word")
        return found


def fill_json(value: JSON, places: dict[str, str]) -> JSON:
    """Replace `${NAME}` in all texts of a JSON value."""
    if isinstance(value, str):
        return fill_variables(value, places)
    if isinstance(value, dict):
        return {key: fill_json(each, places) for key, each in value.items()}
    return [fill_json(each, places) for each in value] if isinstance(value, list) else value
