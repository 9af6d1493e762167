"""Packs as an OpenEnv server: each client's WebSocket session plays one episode after the other.

    simia serve customer_service --openenv
    async with GenericEnvClient(base_url="http://127.0.0.1:8000") as env:
        result = await env.reset(task="cs-003")            # or seed=…, or split=… and index=…; group="12/cs-003"
        result = await env.step({"message": '<tool_call>…'})

The reward comes with `done`; it is None if the episode was aborted. `observation["end"]` is the kind of ending. Several packs are served
under their names, `http://HOST/PACK`. simia's own client (`simia.envs.remote`) uses the same messages, and its sessions survive a lost
connection. OpenEnv's stateless routes (POST /reset, /step, GET /state) are left out, since every request would discard its episode; so
are sessions by /mcp, which are not tied to a connection.

The protocol is OpenEnv's, but not its server, which ties a session to one connection and supports only one environment.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.websockets import WebSocket

from simia.envs.environment import Environment
from simia.envs.remote.wire import SESSION_HEADER, EnvironmentDescription, describe_environment
from simia.envs.several_packs import MultiPackEnvironment
from simia.envs.text_episode import Keep
from simia.errors import UserError
from simia.serve.http_server import (
    MOST_BODY,
    Asgi,
    Deadlines,
    LoopbackOnly,
    is_loopback,
    listen,
    serve_until_signal,
)
from simia.serve.metrics import CONTENT_TYPE, ServerMetrics
from simia.serve.openenv_messages import EpisodeState, ToolAction, ToolObservation
from simia.serve.openenv_session import SessionConnection, Timers
from simia.serve.session_table import RETRY_SECONDS, ServedPack, SessionTable
from simia.serve.tokens import TokenRequired
from simia.terminal import write_count
from simia.version import __version__

SESSION_ID = re.compile(r"[0-9a-zA-Z-]{16,64}")
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "the body is no JSON, or a place that is none"},
    401: {"description": "no token, or a wrong one"},
    404: {"description": "no environment of this name"},
}


class Split(BaseModel):
    """The body of OpenEnv's requests about tasks."""

    model_config = ConfigDict(extra="forbid", strict=True)
    split: str = Field(description="Name of a split.")


class SplitPlace(Split):
    index: int = Field(description="Index of a task in the split, from 0.")


class SplitRange(Split):
    start: int | None = Field(None, description="Index of the first task. null: 0.")
    stop: int | None = Field(None, description="Index after the last task. null: to the end of the split.")


def serve_packs(environment: Environment, *, seed: int = 0) -> dict[str, ServedPack]:
    """Return what a server offers, by name: the whole environment, and each pack of several. The first is also served at `/`."""
    whole = ServedPack(environment.pack.name, environment, environment.pack, {t.id: t for t in environment.tasks}, seed)
    served = {whole.name: whole}
    if isinstance(environment, MultiPackEnvironment):
        for name, member in environment.members.items():
            tasks = {t.id.partition("/")[2]: t for t in environment.tasks if t.id.partition("/")[0] == name}
            plain = {id_: task.model_copy(update={"id": id_}) for id_, task in tasks.items()}
            served[name] = ServedPack(name, member, member.pack, plain, seed)
    return {name: each for name, each in served.items() if each.tasks}


@dataclass(slots=True)
class EnvironmentServer:
    """A server of one environment. It must run in the environment's event loop."""

    environment: Environment
    seed: int = 0
    keep: Keep | None = None
    """Receives each finished trajectory."""
    most: int = 256
    """Most sessions at once; further ones are refused with 503."""
    lease: float = 60.0
    """Seconds for which a session without a connection is kept."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    token: str | None = None
    """The token that clients must send; None: no token."""
    loopback: bool = False
    """Whether requests must have the loopback as their host."""
    largest_frame: int = MOST_BODY
    """Most bytes of a message."""
    served: dict[str, ServedPack] = field(init=False)
    table: SessionTable = field(init=False)
    metrics: ServerMetrics = field(init=False)

    def __post_init__(self) -> None:
        """Raises `UserError` for an environment without tasks."""
        if not self.environment.tasks:
            raise UserError(f"pack {self.environment.pack.name} has no tasks: a trainer needs a tasks.jsonl")
        self.served = serve_packs(self.environment, seed=self.seed)
        self.metrics = metrics = ServerMetrics()
        self.table = SessionTable(self.most, self.lease, self.keep)
        self.table.on_end = lambda session, reason: metrics.ended.labels(session.served.name, reason).inc()
        self.table.on_episode = lambda session, trajectory: metrics.episodes.labels(
            session.served.name, trajectory.end.kind
        ).inc()
        metrics.watch(self.table, list(self.served))
        self._timers = {
            name: Timers(
                metrics.time_resets(name), metrics.time_steps(name), lambda code: metrics.errors.labels(code).inc()
            )
            for name in self.served
        }

    _timers: dict[str, Timers] = field(init=False)

    @property
    def default(self) -> ServedPack:
        """The environment that is served at `/`."""
        return next(iter(self.served.values()))

    def find(self, name: str) -> ServedPack:
        """Return the environment that is served under a name. Raises `HTTPException` 404."""
        if name not in self.served:
            raise HTTPException(404, f"no environment {name[:100]!r} here; there are: {', '.join(self.served)}")
        return self.served[name]

    def config(self) -> Any:
        """The settings of uvicorn for this server."""
        return self.deadlines.config(self.app(), ws_max_size=self.largest_frame)

    def app(self) -> Asgi:
        """The ASGI application, with its checks of tokens and hosts."""
        app: Asgi = make_app(self)
        if self.token is not None:
            app = TokenRequired(app, self.token, on_refusal=self.metrics.refused.labels("token").inc)
        return LoopbackOnly(app) if self.loopback else app

    def describe(self, served: ServedPack) -> EnvironmentDescription:
        """Describe an environment to clients."""
        return describe_environment(
            served.environment, served.pack, list(served.tasks.values()), lease=self.lease,
            largest_frame=self.largest_frame,
        )  # fmt: skip

    async def play(self, socket: WebSocket, served: ServedPack) -> None:
        """Serve a WebSocket: for a new session, or one whose connection was lost."""
        given = socket.headers.get(SESSION_HEADER)
        if given is not None and not SESSION_ID.fullmatch(given):
            await socket.send_denial_response(
                JSONResponse({"detail": f"{SESSION_HEADER} is 16 to 64 letters and digits"}, 400)
            )
            return
        session = self.table.find(served, given)
        if session is not None:
            self.metrics.resumed.labels(served.name).inc()
        elif (reason := self.table.why_refused()) is not None:
            self.metrics.refused.labels(reason).inc()
            await socket.send_denial_response(refuse_for_now(reason))
            return
        else:
            session = self.table.open(served, given)
        await SessionConnection(socket, session, self.table, self._timers[served.name]).run()


def refuse_for_now(reason: str) -> JSONResponse:
    words = "the server is about to end" if reason == "draining" else "all sessions are taken"
    return JSONResponse({"detail": f"{words}: try again later"}, 503, headers={"Retry-After": str(RETRY_SECONDS)})


def make_app(server: EnvironmentServer) -> FastAPI:
    """Make the HTTP routes and the WebSockets of a server."""
    app = FastAPI(title="simia", version=__version__, docs_url=None, redoc_url=None, responses=ERRORS)

    @app.get("/health", responses={503: {"description": "the server is about to end"}})
    async def health() -> Response:
        if server.table.draining:
            return JSONResponse({"status": "unhealthy"}, 503, headers={"Retry-After": str(RETRY_SECONDS)})
        return JSONResponse({"status": "healthy"})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(server.metrics.write(), media_type=CONTENT_TYPE)

    @app.get("/list_environments")
    async def list_environments() -> list[str]:
        return list(server.served)

    @app.post("/mcp", include_in_schema=False)
    async def mcp(request: Request) -> dict[str, Any]:
        return await answer_mcp(request)

    async def find_default() -> ServedPack:
        return server.default

    async def find_named(name: str) -> ServedPack:
        return server.find(name)

    app.include_router(make_routes(find_default, server))
    app.include_router(make_routes(find_named, server), prefix="/{name}")
    return app


def make_routes(find: Callable[..., Awaitable[ServedPack]], server: EnvironmentServer) -> APIRouter:
    """The routes of one environment, at the root or under its name."""
    router, found = APIRouter(), Depends(find)

    @router.get("/environment")
    async def environment(served: ServedPack = found) -> EnvironmentDescription:
        return server.describe(served)

    @router.get("/schema")
    async def schema(served: ServedPack = found) -> dict[str, Any]:
        observation = ToolObservation.model_json_schema()
        return {
            "action": ToolAction.model_json_schema(),
            "observation": observation,
            "reset_observation": observation,
            "state": EpisodeState.model_json_schema(),
        }

    @router.get("/metadata")
    async def metadata(served: ServedPack = found) -> dict[str, Any]:
        pack = served.pack
        description = f"{write_count(len(pack.tools), 'tool')}, played by simia"
        return {"name": pack.name, "description": description, "version": __version__}

    @router.get("/splits")
    async def splits(served: ServedPack = found) -> list[dict[str, str]]:
        names = sorted({task.split for task in served.tasks.values()})
        known = ("train", "validation", "test")
        return [{"name": each, "type": each if each in known else "validation"} for each in names]

    @router.post("/tasks")
    async def tasks(body: Split, served: ServedPack = found) -> dict[str, Any]:
        return {"tasks": served.list_tasks(body.split), "env_name": served.name}

    @router.post("/num_tasks")
    async def num_tasks(body: Split, served: ServedPack = found) -> dict[str, int]:
        return {"num_tasks": len(served.list_tasks(body.split))}

    @router.post("/task")
    async def task(body: SplitPlace, served: ServedPack = found) -> dict[str, Any]:
        listed = served.list_tasks(body.split)
        if not 0 <= body.index < len(listed):
            raise HTTPException(400, "Invalid task index")
        return {"task": listed[body.index]}

    @router.post("/task_range")
    async def task_range(body: SplitRange, served: ServedPack = found) -> dict[str, Any]:
        return {"tasks": served.list_tasks(body.split)[body.start : body.stop]}

    @router.websocket("/ws")
    async def play(socket: WebSocket) -> None:
        try:
            name = socket.path_params.get("name")
            served = server.default if name is None else server.find(name)
        except HTTPException as error:
            await socket.send_denial_response(JSONResponse({"detail": error.detail}, error.status_code))
            return
        await server.play(socket, served)

    return router


async def answer_mcp(request: Request) -> dict[str, Any]:
    """Answer every JSON-RPC request with the way to open a session."""
    try:
        number = orjson.loads(await request.body()).get("id")
    except (ValueError, AttributeError):
        number = None
    number = number if isinstance(number, str | int) else None
    error = {"code": -32601, "message": "no session is made here: connect to the WebSocket /ws, which is a session"}
    return {"jsonrpc": "2.0", "id": number, "error": error}


async def serve_environment(
    server: EnvironmentServer, host: str, port: int, *, kept: Path, drain: float, say: Callable[[str], None]
) -> None:
    """Serve until a signal comes. SIGTERM waits `drain` seconds for episodes in progress. `kept`: the file of trajectories, for the
    printed line. Raises `UserError` for an address that cannot be bound."""
    listening = listen(host, port)
    server.loopback = is_loopback(host)
    address = f"http://{host}:{listening.getsockname()[1]}"

    def announce() -> None:
        say(f"serving at {address}; what is played goes to {kept}; Ctrl-C ends")
        if not server.loopback and server.token is None:
            say("anybody who reaches this address can play: there is no token")

    await serve_until_signal(
        server.config(), listening, announce, server.table.close, lambda: server.table.drain(drain)
    )
