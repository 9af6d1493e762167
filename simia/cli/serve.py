"""`simia serve`: serve packs by MCP or OpenEnv."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simia import event_loop
from simia.cli.options import GRANT_READ, NETWORK, UNSAFE, VARIABLES, collect_grants
from simia.errors import UserError
from simia.search_path import find_resource
from simia.terminal import say_error

if TYPE_CHECKING:
    from simia.envs.config import EnvironmentConfig

PACKS = Annotated[
    list[str],
    typer.Argument(
        metavar="PACK...",
        help="Packs by name or folder; NAME=PACK gives one another name. Several only with --openenv.",
    ),
]
OPENENV_NEEDS = ["fastapi", "uvicorn", "websockets", "prometheus_client"]


def serve(
    packs: PACKS,
    mcp: Annotated[bool, typer.Option("--mcp", help="Serve over the Model Context Protocol (MCP).")] = False,
    openenv: Annotated[bool, typer.Option("--openenv", help="Serve over OpenEnv, for trainers.")] = False,
    http: Annotated[
        bool, typer.Option("--http", help="MCP: use streamable HTTP on the loopback interface instead of stdio.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port for HTTP. 0: any free port.")] = 8000,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="OpenEnv: address to listen on. Any address other than the loopback interface needs a token."
        ),
    ] = "127.0.0.1",
    token_env: Annotated[
        str | None,
        typer.Option(
            "--token-env",
            help="OpenEnv: environment variable with the token that clients must send. Default: SIMIA_TOKEN, unless on the "
            "loopback interface.",
        ),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="OpenEnv: accept every client, without a token.")
    ] = False,
    sessions: Annotated[
        int,
        typer.Option("--sessions", min=1, help="OpenEnv, and MCP over HTTP: maximum number of concurrent sessions."),
    ] = 256,
    lease: Annotated[
        float,
        typer.Option("--lease", min=0, help="OpenEnv: how long the episode of a lost connection is kept, in seconds."),
    ] = 60.0,
    largest_frame: Annotated[
        int, typer.Option("--largest-frame", min=1024, help="OpenEnv: maximum size of a message, in bytes.")
    ] = 4 << 20,
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            min=0,
            help="OpenEnv: how long the server waits for episodes in progress after SIGTERM, in seconds.",
        ),
    ] = 20.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="OpenEnv: any setting of the environment, for example backend=simulated; may be repeated."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", help="OpenEnv: folder of stored replies. Servers with the same folder share one budget."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="Task of all episodes. Default for MCP: the first task that needs no user. Default for OpenEnv: all tasks.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the episodes.")] = 0,
    out: Annotated[Path, typer.Option("--out", help="JSONL file to which trajectories are appended.")] = Path(
        "trajectories.jsonl"
    ),
    state: Annotated[
        bool, typer.Option("--state", help="MCP: serve the environment's state as the resource simia://state.")
    ] = False,
    unscored: Annotated[
        bool,
        typer.Option("--unscored", help="MCP: record episodes without a reward, to be scored by `simia pack score`."),
    ] = False,
    turns: Annotated[
        int,
        typer.Option(
            "--turns",
            min=1,
            help="Maximum number of messages of the agent (for MCP: of calls), after which an episode is truncated.",
        ),
    ] = 100,
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle",
            min=0.1,
            help="End a session after this many seconds without a request. Default: 600 for MCP over HTTP, 1,800 for OpenEnv.",
        ),
    ] = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variables: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Serve the tasks of packs to an agent over MCP, or to trainers over OpenEnv. Each finished episode is appended to a JSONL file."""
    words, pack = " ".join(packs), packs[0]
    if mcp == openenv:
        raise UserError(f"give exactly one protocol: simia serve {words} --mcp, or --openenv")
    shares = [read_share(word) for word in packs]
    several = len(packs) > 1 or "*" in pack or isinstance(shares[0], dict)
    if several and mcp:
        raise UserError(f"{words}: MCP serves the tools of one pack; name one, or serve several with --openenv")
    for share in shares:
        name = share["pack"] if isinstance(share, dict) else share
        if "*" not in name:
            find_resource("seeds", name)  # a wrong name is reported before a missing package
    missing = [name for name in (OPENENV_NEEDS if openenv else ["mcp"]) if find_spec(name) is None]
    if missing:
        extra, protocol = ("serve", "OpenEnv") if openenv else ("mcp", "MCP")
        raise UserError(f"serving by {protocol} needs {missing[0]}: pip install 'simia[{extra}]'")
    grants = collect_grants(unsafe, network, variables, grant_read)
    if openenv and unscored:
        raise UserError("--unscored is for --mcp: trainers need the reward that OpenEnv's messages carry")
    if mcp and settings:
        raise UserError("--set is for --openenv: MCP serves one pack, played by its own code")
    if openenv:
        from simia.config import load_config
        from simia.envs.config import EnvironmentConfig
        from simia.serve.http_server import is_loopback
        from simia.serve.tokens import read_server_token

        token = read_server_token(token_env, host, loopback=is_loopback(host), without=no_token)
        config = load_config(
            EnvironmentConfig, None, [f"seed={seed}", f"episode.turns={turns}", *(settings or [])],
            **({"packs": shares} if several else {"pack": pack}), tasks=[task] if task else None,
            **{f"backend_settings__{name}": value for name, value in grants.items()},
        )  # fmt: skip
        limits = {"most": sessions, "lease": lease, "largest_frame": largest_frame, "token": token}
        event_loop.run_command(
            serve_openenv(config, host, port, out=out, store=store, idle=idle, drain=drain, **limits)
        )
        return
    address = (port, idle or 600.0, sessions) if http else None
    if event_loop.run_command(serve_mcp(pack, task, seed, out, state, turns, address, grants, unscored)):
        sys.stdout.flush()
        os._exit(0)  # a thread blocks on stdin, and a normal exit would wait for it


def read_share(word: str) -> str | dict[str, str]:
    """Read NAME=PACK as a pack with a name of its own; any other word is the pack itself."""
    name, equals, pack = word.partition("=")
    return {"pack": pack, "name": name} if equals and name and pack and not Path(word).exists() else word


async def serve_openenv(
    config: EnvironmentConfig, host: str, port: int, *, out: Path, store: Path | None, idle: float | None, drain: float,
    **limits: Any,
) -> None:  # fmt: skip
    """Serve an environment with any back end and models. `limits`: see `EnvironmentServer`."""
    from simia.envs.opening import open_environment
    from simia.garbage_collection import collect_rarely
    from simia.serve.http_server import Deadlines
    from simia.serve.openenv import EnvironmentServer, serve_environment
    from simia.serve.served_episode import TrajectoryFile

    record = TrajectoryFile(out)
    async with await open_environment(config, store=store) as environment:
        deadlines = Deadlines(idle=idle) if idle else Deadlines()
        server = EnvironmentServer(environment, config.seed, record.add, deadlines=deadlines, **limits)
        with collect_rarely():
            await serve_environment(server, host, port, kept=out, drain=drain, say=say_error)


async def serve_mcp(
    pack: str, task: str | None, seed: int, out: Path, state: bool, turns: int, address: tuple[int, float, int] | None,
    grants: dict[str, Any], unscored: bool = False,
) -> bool:  # fmt: skip
    """Serve the executable world. `address`: port, idle seconds and maximum number of sessions for HTTP; None: stdio. Returns whether stdio was interrupted."""
    from simia.envs.environment import EpisodeLimits
    from simia.envs.opening import open_environment
    from simia.pack import Pack
    from simia.serve.mcp import FreePlay, Service, over_http, over_stdio
    from simia.serve.served_episode import TrajectoryFile
    from simia.task import Task

    loaded = Pack.load(pack)
    chosen = loaded.task(task) if task else next((each for each in loaded.tasks if not each.needs_user), None)
    if chosen is None:
        say_error(
            f"{loaded.name} has no task without a user: its tools are served in the initial state, and nothing is scored"
        )
        chosen, unscored = Task(id="free"), True
    if unscored:
        grants = {**grants, "scorer": FreePlay()}
    limits = EpisodeLimits(turns=turns)
    async with await open_environment(loaded, user="none", episode=limits, **grants) as environment:
        service = Service(environment, TrajectoryFile(out), chosen, seed, state)
        if loaded.user_tools:
            say_error(f"{loaded.name} has user tools, which cannot be called here: there is no user simulator")
        if address is None:
            return await over_stdio(service)
        port, idle, most = address
        await over_http(service, port, idle=idle, most=most, say=say_error)
        return False
