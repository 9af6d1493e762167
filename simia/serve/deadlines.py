"""Deadlines of a server's connections: a client that is silent, slow or gone holds no connection and no seat for long.

uvicorn waits for ever for a request's headers and body, and an ASGI application for a WebSocket's next message. Here each of these
waits has an end. What the server itself takes (a step of a slow model) counts for nothing: only waiting for the client does.
A WebSocket whose peer has vanished is detected by unanswered pings.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from simia.serve.loopback import Asgi, Receive, Scope, Send

MOST_BODY = 4 << 20  # bytes of a request's body


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a client may take. `first` and `idle`: until a WebSocket's first message, and between two."""

    headers: float = 20.0
    body: float = 30.0
    first: float = 300.0
    idle: float = 1_800.0
    ping: float = 20.0

    def config(self, app: Asgi, **settings: Any) -> uvicorn.Config:
        """Settings of a server that keeps these deadlines."""
        protocol = type("TimedProtocol", (TimedProtocol,), {"seconds": self.headers})
        return uvicorn.Config(
            DeadlineMiddleware(app, self), http=protocol, ws_ping_interval=self.ping, ws_ping_timeout=self.ping,
            log_level="warning", log_config=None, timeout_graceful_shutdown=1, **settings,
        )  # fmt: skip


class TimedProtocol(H11Protocol):
    """Closes a connection whose next request is not there, headers complete, after `seconds`."""

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
        """Bytes that do not complete the headers do not move the deadline."""
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
    """ASGI: the body of a request and the messages of a WebSocket come in time, or the connection ends."""

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
        try:
            async with asyncio.timeout(self._deadlines.body):
                body = await read_body(receive)
        except TimeoutError:
            await refuse(send, 408, b"the request's body did not come in time")
            return
        except BodyTooLarge:
            await refuse(send, 413, b"the request's body is too large")
            return
        given = False

        async def replay() -> Any:
            nonlocal given
            if given or body is None:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

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
                await send({"type": "websocket.close", "code": 1008, "reason": reason})
                closed = True
                return {"type": "websocket.disconnect", "code": 1008, "reason": reason}
            spoken, connected = connected, True
            return message

        async def unless_closed(message: Any) -> None:
            if not closed:
                await send(message)

        await self._app(scope, timed, unless_closed)


class BodyTooLarge(Exception):  # noqa: N818
    """More than `MOST_BODY` bytes."""


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None where the client went before its end. Raises `BodyTooLarge`."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            raise BodyTooLarge
        if not message.get("more_body"):
            return b"".join(parts)


async def refuse(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
