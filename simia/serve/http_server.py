"""HTTP servers of packs: a listening socket, a clean shutdown, deadlines for clients, and refusal of requests from web pages.

Deadlines: uvicorn waits without a limit for a request's headers and body, and an ASGI application for a WebSocket's next message. Here each
of these waits has a limit, so a silent or slow client cannot hold a connection or an episode for long. The server's own time, such as a
step of a slow model, does not count. A WebSocket whose peer has vanished is detected by unanswered pings.

Web pages: a loopback server is meant for programs on this machine. A web page in a local browser could send requests to it through its own
host name (DNS rebinding), so requests with another host name, or from a page of another host, are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from simia.errors import UserError
from simia.serve.write_deadline import WriteDeadline

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
MOST_BODY = 4 << 20  # bytes of a request's body, and of a WebSocket's message
IDLE_CODE = 1008  # close code of a WebSocket whose client was silent


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises `UserError` for an address that cannot be bound."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # clients that connect before the server runs wait in this queue
    except OSError as error:
        listening.close()
        where = f"port {port}" if is_loopback(host) else f"port {port} of {host}"
        raise UserError(f"{where} is not available ({error.strerror}): give another with --port, 0 for any") from None
    return listening


@contextlib.asynccontextmanager
async def run_until_signal(work: Coroutine[Any, Any, None]) -> AsyncIterator[tuple[asyncio.Task[None], int | None]]:
    """Run the work until it ends, or until Ctrl-C or SIGTERM; inside the context further signals are ignored.

    Yields the task of the work, and the signal's number or, if the work ended by itself, None.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    working = asyncio.ensure_future(work)
    try:
        either: set[asyncio.Future[Any]] = {working, stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        yield working, stopped.result() if stopped.done() else None
        stopped.cancel()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to `run_until_signal`; uvicorn's handler would raise them again after a clean shutdown."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_until_signal(
    config: uvicorn.Config,
    listening: socket.socket,
    announce: Callable[[], None],
    close: Callable[[], Awaitable[None]] | None = None,
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until a signal comes. `announce` is called once signals are handled, `close` at the end while the server still runs.

    After SIGTERM, `drain` is called before `close`; another signal cancels it.
    """
    server = QuietServer(config)

    async def serve() -> None:
        announce()
        await server.serve([listening])

    async with run_until_signal(serve()) as (serving, received):
        if drain is not None and received == signal.SIGTERM:
            draining, again = asyncio.ensure_future(drain()), asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, again.set)
            stopped = asyncio.ensure_future(again.wait())
            await asyncio.wait({draining, stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
            for waiting in (draining, stopped):
                waiting.cancel()
        if close is not None:
            await close()
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def is_loopback(host: str | None) -> bool:
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


class LoopbackOnly:
    """ASGI middleware: admit only requests from this machine whose host, and whose origin if they come from a web page, is the loopback."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")  # None: a Unix socket
        near = not client or is_loopback(client[0])  # an application's server may listen to other machines
        if scope["type"] not in ("http", "websocket") or (near and is_admitted(dict(scope["headers"]))):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # a close before acceptance gives the client a 403
        else:
            await PlainTextResponse("this server accepts only programs on its own machine", 403)(scope, receive, send)


def is_admitted(headers: dict[bytes, bytes]) -> bool:
    origin = headers.get(b"origin")
    addresses = [f"//{headers.get(b'host', b'').decode('latin-1')}"]
    addresses += [] if origin is None else [origin.decode("latin-1")]
    try:
        return all(is_loopback(urlsplit(address).hostname) for address in addresses)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a client may take. `first`: until a WebSocket's first message; `idle`: between two messages; `write`: to read what the
    server has sent."""

    headers: float = 20.0
    body: float = 30.0
    first: float = 300.0
    idle: float = 1_800.0
    ping: float = 20.0
    write: float = 30.0

    def config(self, app: Asgi, **settings: Any) -> uvicorn.Config:
        """Return the settings of a server that enforces these deadlines."""
        protocol = type("TimedProtocol", (TimedProtocol,), {"seconds": self.headers, "write_seconds": self.write})
        if "ws" not in settings:
            from simia.serve.timed_websocket import TimedWebSocket  # needs websockets, which MCP does not need

            settings["ws"] = type("TimedWebSocket", (TimedWebSocket,), {"write_seconds": self.write})
        settings = {"ws_max_size": MOST_BODY, "ws_per_message_deflate": False, **settings}
        return uvicorn.Config(
            DeadlineMiddleware(app, self), http=protocol, ws_ping_interval=self.ping, ws_ping_timeout=self.ping,
            log_level="warning", log_config=None, timeout_graceful_shutdown=1, **settings,
        )  # fmt: skip


class TimedProtocol(WriteDeadline, H11Protocol):
    """HTTP/1.1 connection that is closed if the next request's headers are not complete after `seconds`."""

    seconds = 20.0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the deadline, or stop it when a request is complete. Incomplete headers do not extend it."""
        upgraded = self.transport.get_protocol() is not self
        if upgraded or (self.cycle is not None and not self.cycle.response_complete):
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(self.seconds, self._close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if self.transport.get_protocol() is self and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


class DeadlineMiddleware:
    """ASGI middleware: end a connection if a request body or WebSocket message does not arrive in time."""

    def __init__(self, app: Asgi, deadlines: Deadlines) -> None:
        self._app, self._deadlines = app, deadlines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        refusal = None
        try:
            async with asyncio.timeout(self._deadlines.body):
                async for part in Request(scope, receive).stream():
                    body += part
                    if len(body) > MOST_BODY:
                        refusal = 413, "the request's body is too large"
                        break
        except TimeoutError:
            refusal = 408, "the request's body did not arrive in time"
        except ClientDisconnect:
            return
        if refusal is not None:
            status, text = refusal
            await PlainTextResponse(text, status, headers={"connection": "close"})(scope, receive, send)
            return
        messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Any:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._deadlines
        connected = spoken = closed = False

        async def timed() -> Any:
            nonlocal connected, spoken, closed
            limit = limits.idle if spoken else min(limits.first, limits.idle)
            try:
                async with asyncio.timeout(limit if connected else None):
                    message = await receive()
            except TimeoutError:
                reason = f"nothing was heard for {limit:g} s"
                await send({"type": "websocket.close", "code": IDLE_CODE, "reason": reason})
                closed = True
                return {"type": "websocket.disconnect", "code": IDLE_CODE, "reason": reason}
            spoken, connected = connected, True
            return message

        async def unless_closed(message: Any) -> None:
            if not closed:
                await send(message)

        await self._app(scope, timed, unless_closed)
