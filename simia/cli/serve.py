"""`simia serve`: serve a pack by MCP or OpenEnv."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from simia import event_loop
from simia.cli.common import GRANT_READ, make_granted_paths
from simia.errors import UserError
from simia.terminal import say_error


def serve(
    pack: Annotated[str, typer.Argument(help="Name of a bundled pack, or a pack's folder.")],
    mcp: Annotated[bool, typer.Option("--mcp", help="Serve by the Model Context Protocol.")] = False,
    openenv: Annotated[bool, typer.Option("--openenv", help="Serve by OpenEnv, for trainers.")] = False,
    http: Annotated[
        bool, typer.Option("--http", help="MCP: streamable HTTP on the loopback, in place of stdio.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port for HTTP; 0 picks a free one.")] = 8000,
    host: Annotated[
        str, typer.Option("--host", help="OpenEnv: the address; any but the loopback has no access control.")
    ] = "127.0.0.1",
    sessions: Annotated[int, typer.Option("--sessions", min=1, help="OpenEnv: maximal concurrent sessions.")] = 256,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="OpenEnv: any setting of a rollout, as backend=simulated.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="OpenEnv: folder of stored replies; servers with one store share its budget."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", help="The task of all episodes. Default: MCP: the first task; OpenEnv: all tasks."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the episodes.")] = 0,
    out: Annotated[Path, typer.Option("--out", help="JSONL file that trajectories are appended to.")] = Path(
        "trajectories.jsonl"
    ),
    state: Annotated[
        bool, typer.Option("--state", help="Serve the world's state as the resource simia://state.")
    ] = False,
    turns: Annotated[int, typer.Option("--turns", min=1, help="Calls after which an episode is truncated.")] = 100,
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle",
            min=0.1,
            help="Seconds without a request that end a session. Default: 600 for MCP over HTTP, 1,800 for OpenEnv.",
        ),
    ] = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Run without a sandbox; only for your own code.")] = False,
    network: Annotated[bool, typer.Option("--network", help="Grant the pack's code the network.")] = False,
    variables: Annotated[
        list[str] | None, typer.Option("--variable", help="Grant it this environment variable; may be repeated.")
    ] = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Serve a pack's tasks to an agent by MCP or to a trainer by OpenEnv. Each finished episode is appended to a JSONL file."""
    if mcp == openenv:
        raise UserError(f"give exactly one protocol: simia serve {pack} --mcp, or --openenv")
    read = make_granted_paths(grant_read)
    if openenv:
        serve_openenv(
            pack, settings or [], host, port, sessions, out, store,
            task=task, seed=seed, turns=turns, idle=idle, unsafe=unsafe, network=network, variables=variables, read=read,
        )  # fmt: skip
        return
    try:
        import mcp as _  # noqa: F401
    except ImportError:
        raise UserError("serving needs the MCP SDK: pip install 'simia[mcp]'") from None
    grants: dict[str, Any] = {"unsafe": unsafe}
    if network:
        grants["network"] = True
    if variables:
        grants["variables"] = variables
    if read:
        grants["read"] = read
    interrupted = event_loop.run_command(
        serve_mcp(
            pack, task, seed, out, state=state, turns=turns, http=http, port=port, idle=idle or 600.0, grants=grants
        )
    )
    if interrupted:
        sys.stdout.flush()
        os._exit(0)  # a thread blocks on stdin, and a normal exit would wait for it


def serve_openenv(
    pack: str, settings: list[str], host: str, port: int, sessions: int, out: Path, store: Path | None, *,
    task: str | None, seed: int, turns: int, idle: float | None, unsafe: bool, network: bool, variables: list[str] | None,
    read: list[str],
) -> None:  # fmt: skip
    """Serve an environment with any back end and models. The environment runs in the event loop's thread, the server in this one."""
    if find_spec("openenv") is None:
        raise UserError("serving by OpenEnv needs its package: pip install openenv")
    from simia.config import load_config
    from simia.envs.config import EnvironmentConfig
    from simia.envs.text_episode import share_environment
    from simia.serve.http_server import Deadlines
    from simia.serve.openenv import OpenEnvSessions
    from simia.serve.openenv import serve_openenv_sessions as serve_seats
    from simia.serve.served_episode import TrajectoryFile

    grants = {"unsafe": unsafe or None, "network": network or None, "variables": variables, "read": read or None}
    config = load_config(
        EnvironmentConfig, None, [f"seed={seed}", f"episode.turns={turns}", *settings],
        pack=pack, tasks=[task] if task else None,
        **{f"backend_settings__{name}": value for name, value in grants.items()},
    )  # fmt: skip
    record = TrajectoryFile(out)
    lease = share_environment(config, store=store)
    try:
        seats = OpenEnvSessions(lease, record.add, sessions, Deadlines(idle=idle) if idle else None)
        event_loop.run_command(serve_seats(seats, host, port, kept=out, say=say_error))
    finally:
        lease.close()


async def serve_mcp(
    pack: str, task: str | None, seed: int, out: Path, *, state: bool, turns: int, http: bool, port: int, idle: float,
    grants: dict[str, Any],
) -> bool:  # fmt: skip
    from simia.envs.environment import EpisodeLimits
    from simia.envs.opening import open_environment
    from simia.pack import Pack
    from simia.serve.mcp import Service, over_http, over_stdio
    from simia.serve.served_episode import TrajectoryFile

    loaded = Pack.load(pack)
    if task is None and not loaded.tasks:
        raise UserError(f"pack {loaded.name} has no tasks to serve")
    chosen = loaded.task(task) if task else loaded.tasks[0]
    limits = EpisodeLimits(turns=turns)
    async with await open_environment(loaded, user="none", episode=limits, **grants) as environment:
        service = Service(environment, TrajectoryFile(out), chosen, seed, state)
        if loaded.user_tools:
            say_error(f"{loaded.name} has user tools, which cannot be called here: there is no user simulator")
        if http:
            await over_http(service, port, idle=idle, say=say_error)
            return False
        return await over_stdio(service)
