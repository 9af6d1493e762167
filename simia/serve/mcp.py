"""Serve a pack by the Model Context Protocol (MCP): any MCP client can be the agent, over stdio or streamable HTTP.

Each client session is an episode of one task. The server offers the pack's tools, with unchanged results and errors (`isError`), and the
tool `finish_episode`, which ends the episode and returns its reward. Resources contain the task and the policy; a prompt contains both.
Over stdio a process is a session, in every version of the protocol. Over HTTP only versions with an initialize handshake have sessions:
requests of version 2026-07-28, which has none, are refused with the list of supported versions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as wire
import orjson
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import Response

from simia.envs.environment import Environment
from simia.envs.several_packs import CombinedPack
from simia.errors import Code, UserError
from simia.reward import Reward
from simia.serve.http_server import Asgi, Deadlines, Receive, Scope, Send, listen, run_until_signal, serve_until_signal
from simia.serve.served_episode import ServedEpisode, TrajectoryFile
from simia.task import Task
from simia.trajectory import Trajectory
from simia.version import __version__

FINISH = "finish_episode"
TASK, POLICY, STATE = "simia://task", "simia://policy", "simia://state"
PROMPT = "task"
STDIO = "stdio"
Context = ServerRequestContext[Any, Any]


@dataclass
class Service:
    """The environment and the episodes of its clients."""

    environment: Environment
    record: TrajectoryFile
    task: Task
    seed: int = 0
    show_state: bool = False
    seats: dict[str, ServedEpisode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `UserError` for several packs, for a task that cannot be served, and for a pack with a tool `finish_episode`."""
        pack = self.environment.pack
        if isinstance(pack, CombinedPack):
            raise UserError(f"{pack.name}: MCP serves the tools of one pack, but these are several: serve one of them")
        check_task(self.task)
        if any(tool.name == FINISH for tool in pack.tools):
            raise UserError(
                f"pack {pack.name} has a tool {FINISH}, but the server has its own tool of that name to end an episode: rename the pack's"
            )

    def seat(self, context: Context) -> ServedEpisode:
        """Return the episode of a request's session, made at its first request."""
        key, task = STDIO, self.task
        if (request := context.request) is not None:
            key = request.headers.get("mcp-session-id", "")
            if name := request.query_params.get("task"):
                task = self.environment.pack.task(name)
                check_task(task)
        if key not in self.seats:
            self.seats[key] = ServedEpisode(self.environment, task, self.seed, self.record.add)
        return self.seats[key]

    async def leave(self, key: str) -> None:
        if (seat := self.seats.pop(key, None)) is not None:
            await seat.leave()

    async def close(self) -> None:
        """Close all episodes; those that had begun are scored and written."""
        await asyncio.gather(*(self.leave(key) for key in list(self.seats)))

    # -- requests -------------------------------------------------------------------------------------------------

    async def list_tools(self, context: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        writes = getattr(self.environment.backend, "writes", {}).get("agent", {})
        with raise_as_protocol_error():
            task = self.seat(context).task
        tools = [
            wire.Tool(
                name=tool.name,
                description=tool.description or None,
                input_schema={"type": "object", **tool.parameters},
                annotations=wire.ToolAnnotations(read_only_hint=not writes[tool.name]) if tool.name in writes else None,
            )
            for tool in self.environment.pack.tools
            if task.shows_tool(tool.name, 1)
        ]
        return wire.ListToolsResult(tools=[*tools, make_finish_tool()])

    async def call_tool(self, context: Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        arguments = params.arguments or {}
        try:
            seat = self.seat(context)
            if params.name == FINISH:
                answer = arguments.get("answer", "Done.")
                if not isinstance(answer, str) or arguments.keys() - {"answer"}:
                    return make_call_result(["finish_episode takes answer, a text"], True)
                return make_call_result([orjson.dumps(await seat.finish(answer)).decode()], False)
            return make_call_result(*await seat.call(params.name, arguments))
        except UserError as error:
            return make_call_result([str(error)], True)

    async def list_resources(
        self, context: Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListResourcesResult:
        found = [wire.Resource(name="task", uri=TASK, description="What is to be done.", mime_type="text/plain")]
        if self.environment.pack.policy:
            found.append(wire.Resource(name="policy", uri=POLICY, description="The rules.", mime_type="text/markdown"))
        if self.show_state:
            about = "The world's whole state now."
            found.append(wire.Resource(name="state", uri=STATE, description=about, mime_type="application/json"))
        return wire.ListResourcesResult(resources=found)

    async def read_resource(self, context: Context, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
        policy = self.environment.pack.policy
        with raise_as_protocol_error():
            if params.uri == TASK:
                text, kind = await self._task(context), "text/plain"
            elif params.uri == POLICY and policy:
                text, kind = policy, "text/markdown"
            elif params.uri == STATE and self.show_state:
                text, kind = orjson.dumps(await self.seat(context).state()).decode(), "application/json"
            else:
                raise MCPError(code=wire.INVALID_PARAMS, message=f"there is no resource {params.uri[:80]!r}")
        contents = wire.TextResourceContents(uri=params.uri, mime_type=kind, text=text)
        return wire.ReadResourceResult(contents=[contents])

    async def list_prompts(
        self, context: Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListPromptsResult:
        return wire.ListPromptsResult(prompts=[wire.Prompt(name=PROMPT, description="The rules and the task.")])

    async def get_prompt(self, context: Context, params: wire.GetPromptRequestParams) -> wire.GetPromptResult:
        if params.name != PROMPT:
            raise MCPError(
                code=wire.INVALID_PARAMS, message=f"there is no prompt {params.name[:80]!r}; there is: {PROMPT}"
            )
        with raise_as_protocol_error():
            task = await self._task(context)
        text = "\n\n".join(part for part in (self.environment.pack.policy, task) if part)
        message = wire.PromptMessage(role="user", content=wire.TextContent(text=text))
        return wire.GetPromptResult(messages=[message])

    async def _task(self, context: Context) -> str:
        """Return the task's text. Reading it begins the episode."""
        seat = self.seat(context)
        await seat.begin()
        return seat.task.instruction or seat.task.opening or ""


class FreePlay:
    """The scorer of a pack that is served without a task: no episode has a reward."""

    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        """Return a reward without a value."""
        return Reward(error=Code.UNSCORED)


def check_task(task: Task) -> None:
    """Raise `UserError` for a task that needs a user who answers, since there is none here."""
    if task.needs_user:
        raise UserError(
            f"task {task.id} needs a user who answers, but MCP has none: play it with simia rollout or OpenEnv"
        )


@contextlib.contextmanager
def raise_as_protocol_error() -> Iterator[None]:
    """Turn a `UserError`, such as an unknown task, into an error of the protocol."""
    try:
        yield
    except UserError as error:
        raise MCPError(code=wire.INVALID_PARAMS, message=str(error)) from None


def make_call_result(texts: list[str], error: bool) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(text=text) for text in texts], is_error=error)


def make_finish_tool() -> wire.Tool:
    answer = {"type": "string", "description": "Your last words to the user.", "default": "Done."}
    return wire.Tool(
        name=FINISH,
        description="Ends the episode when the task is done, or cannot be done, and returns its score.",
        input_schema={"type": "object", "properties": {"answer": answer}, "additionalProperties": False},
    )


def make_mcp_server(service: Service) -> Server[Any]:
    pack = service.environment.pack
    told = f"Read {TASK} for what is to be done; call {FINISH} when it is done."
    return Server(
        f"simia-{pack.name}",
        version=__version__,
        instructions="\n\n".join(part for part in (pack.policy, told) if part),
        on_list_tools=service.list_tools,
        on_call_tool=service.call_tool,
        on_list_resources=service.list_resources,
        on_read_resource=service.read_resource,
        on_list_prompts=service.list_prompts,
        on_get_prompt=service.get_prompt,
    )


# -- transports ---------------------------------------------------------------------------------------------------


async def over_stdio(service: Service) -> bool:
    """Serve the one client at the other end of stdin until it leaves or a signal comes. Returns whether it was a signal: then a thread is
    still reading stdin, and ends only with the process."""
    server = make_mcp_server(service)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    async with run_until_signal(serve()) as (serving, _):
        interrupted = not serving.done()
        await service.close()
    if not interrupted:
        serving.result()
    return interrupted


async def over_http(service: Service, port: int, *, idle: float, most: int, say: Callable[[str], None]) -> None:
    """Serve clients at http://127.0.0.1:PORT/mcp until a signal comes. A session ends after `idle` seconds without a request or an open
    stream. While there are `most` sessions, a further one is refused with 503. Raises `UserError` for a port that is taken."""
    listening = listen("127.0.0.1", port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    app = make_mcp_server(service).streamable_http_app(session_idle_timeout=idle, max_sessions=most)
    watcher = SessionWatcher(app, service, idle)
    config = Deadlines().config(watcher, ws="none")
    await serve_until_signal(config, listening, lambda: say(f"serving at {address}; Ctrl-C ends"), watcher.close)


class SessionWatcher:
    """ASGI middleware: end a session's episode when the client deletes the session, or has no request or open stream for too long."""

    def __init__(self, app: Asgi, service: Service, idle: float) -> None:
        self._app, self._service, self._idle = app, service, idle
        self._present: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        version = headers.get(b"mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await refuse_without_session(version, scope, receive, send)
            return
        key = headers.get(b"mcp-session-id", "")
        status = 0

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._present[key] = self._present.get(key, 0) + 1
        if key in self._timers:
            self._timers.pop(key).cancel()
        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._closing or not status:
                raise
            await send({"type": "http.response.body", "body": b""})  # ends the stream properly for the client
        finally:
            self._serving.discard(task)
            self._present[key] -= 1
            if not self._present[key]:
                del self._present[key]
            if scope["method"] == "DELETE" and 200 <= status < 300:
                self._end(key)
            elif key not in self._present and key in self._service.seats:
                self._timers[key] = asyncio.get_running_loop().call_later(self._idle, self._end, key)

    def _end(self, key: str) -> None:
        self._timers.pop(key, None)
        leaving = asyncio.ensure_future(self._service.leave(key))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Close all sessions, and end their open streams, which would not end by themselves."""
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        await asyncio.gather(*self._leaving, self._service.close())
        for task in self._serving:
            task.cancel()


async def refuse_without_session(version: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of a protocol version without sessions with the supported versions."""
    data = wire.UnsupportedProtocolVersionErrorData(supported=list(HANDSHAKE_PROTOCOL_VERSIONS), requested=version)
    error = wire.ErrorData(
        code=wire.UNSUPPORTED_PROTOCOL_VERSION,
        message="an episode is a session: begin with the initialize handshake",
        data=data.model_dump(mode="json"),
    )
    body = wire.JSONRPCError(jsonrpc="2.0", id=None, error=error)
    await Response(body.model_dump_json(by_alias=True, exclude_unset=True), 400, media_type="application/json")(
        scope, receive, send
    )
