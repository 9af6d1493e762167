"""Clients that are silent, slow or gone, over real sockets: nothing of theirs is held for long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from simia.serve.http_server import MOST_BODY, DeadlineMiddleware, Deadlines, QuietServer, listen

HANGS = 240.0  # seconds after which a test gives up: without deadlines these connections stay for ever
SHORT = Deadlines(headers=0.3, body=0.3, first=0.3, idle=0.3)
HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body's length, after a wait that is longer than the deadlines: a server's own time does not count."""
    if scope["type"] != "http":
        return
    message = await receive()
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})
    await send({"type": "http.response.body", "body": b"%7d" % len(message.get("body", b""))})


@contextlib.asynccontextmanager
async def served(deadlines: Deadlines = SHORT, app: Any = echo) -> AsyncIterator[int]:
    listening = listen("127.0.0.1", 0)
    server = QuietServer(deadlines.config(app, ws="none", lifespan="off"))
    serving = asyncio.ensure_future(server.serve([listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def exchange(port: int, *parts: bytes) -> bytes:
    """What comes back until the server closes the connection; the client itself never does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(HANGS):
            with contextlib.suppress(ConnectionResetError):
                return await reader.read()
        return b""
    finally:
        writer.close()


@pytest.mark.attack("half-open connections and half a request are held for ever", where="outside")
@pytest.mark.parametrize("sent", [b"", b"P", HEAD, HEAD + b"x-slow: "])
async def test_headers_that_do_not_come_end_the_connection(sent: bytes) -> None:
    async with served() as port:
        assert await exchange(port, sent) == b""


@pytest.mark.attack("a client drips the bytes of its headers", where="outside")
async def test_dripped_headers_do_not_move_the_deadline() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)

        async def drip() -> None:
            while True:
                writer.write(b"a: b\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)

        dripping = asyncio.ensure_future(drip())
        async with asyncio.timeout(HANGS):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        dripping.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await dripping
        writer.close()


@pytest.mark.attack("a request's body never comes to its end", where="outside")
@pytest.mark.parametrize("sent", [b"content-length: 9\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"])
async def test_a_body_that_does_not_come_is_refused(sent: bytes) -> None:
    async with served() as port:
        said = await exchange(port, HEAD + sent)
    assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.attack("a body without an end fills the server's memory", where="outside")
async def test_a_body_that_is_too_large_is_refused() -> None:
    async with served(Deadlines()) as port:
        said = await exchange(port, HEAD + b"content-length: 999999999\r\n\r\n", b"x" * (MOST_BODY + 1))
    assert said.startswith(b"HTTP/1.1 413 ")


async def test_a_second_half_request_on_a_kept_connection_ends_it_too() -> None:
    async with served() as port:
        said = await exchange(port, HEAD + b"content-length: 4\r\n\r\nbody", HEAD)
    assert said.count(b"HTTP/1.1 200 OK") == 1
    assert said.endswith(b"      4")


@pytest.mark.attack("a client asks over and over and reads no response", where="outside")
async def test_responses_that_nobody_reads_end_the_connection() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1048576")]})
        await send({"type": "http.response.body", "body": bytes(1 << 20)})

    def flood(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), HANGS) as client:
            while True:
                client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")

    async with served(Deadlines(write=0.3), answer) as port:
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(flood, port)


async def test_the_servers_own_time_does_not_count() -> None:
    async with served() as port:
        said = await exchange(port, HEAD + b"content-length: 4\r\nconnection: close\r\n\r\nbody")
    assert said.startswith(b"HTTP/1.1 200 OK")


class Socket:
    """The client's half of a WebSocket: says what it is given, then nothing."""

    def __init__(self, *messages: str) -> None:
        self.messages: list[Any] = [{"type": "websocket.connect"}]
        self.messages += [{"type": "websocket.receive", "text": text} for text in messages]
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if self.messages:
            return self.messages.pop(0)
        await asyncio.sleep(HANGS)
        raise AssertionError("it was waited for")

    async def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.mark.attack("a WebSocket that says nothing keeps its seat for ever", where="outside")
@pytest.mark.parametrize("messages", [(), ("one",), ("one", "two")])
async def test_a_silent_websocket_is_closed_and_its_application_hears_it(messages: tuple[str, ...]) -> None:
    heard = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            heard.append(message.get("text"))
            await asyncio.sleep(0.6)  # a slow step: no silence of the client
        await send({"type": "websocket.close"})  # as applications do at their end

    socket = Socket(*messages)
    await DeadlineMiddleware(app, SHORT)({"type": "websocket"}, socket.receive, socket.send)
    assert heard == [None, *messages]
    assert socket.sent == [{"type": "websocket.close", "code": 1008, "reason": "nothing was heard for 0.3 s"}]
