"""Who is let in at a server of the loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from simia.errors import UserError
from simia.serve.http_server import LoopbackOnly, is_admitted, is_loopback, listen


@pytest.mark.parametrize(
    ("host", "origin", "let_in"),
    [
        ("127.0.0.1:8000", None, True),
        ("localhost", None, True),
        ("[::1]:8000", None, True),
        ("127.9.9.9:1", "http://localhost:3000", True),
        ("evil.example.com:8000", None, False),
        ("127.0.0.1.evil.example.com", None, False),
        ("localhost.evil.example.com", None, False),
        ("127.0.0.1:8000", "https://page.example.com", False),
        ("127.0.0.1:8000", "null", False),
        ("127.0.0.1:8000", "http://[", False),
        ("", None, False),
        ("user@evil.example.com", None, False),
    ],
)
def test_hosts_and_pages(host: str, origin: str | None, let_in: bool) -> None:
    headers = {b"host": host.encode(), **({} if origin is None else {b"origin": origin.encode()})}
    assert is_admitted(headers) is let_in


@pytest.mark.attack("a client on another machine names the loopback as its host", where="outside")
@pytest.mark.parametrize(
    ("client", "let_in"),
    [("10.0.0.5", False), ("::ffff:10.0.0.5", False), ("127.0.0.1", True), ("::ffff:127.0.0.1", True), (None, True)],
)
async def test_other_machines_are_refused_whatever_host_they_name(client: str | None, let_in: bool) -> None:
    inside, sent = [], list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        inside.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "client": client and (client, 1), "headers": [(b"host", b"localhost:1")]}
    await LoopbackOnly(app)(scope, lambda: asyncio.sleep(0), send)
    assert bool(inside) is let_in
    assert let_in or sent[0]["status"] == 403


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_door_opens_and_stays_shut(kind: str) -> None:
    inside, sent = [], list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        inside.append(scope["type"])

    async def receive() -> Any:
        return {"type": f"{kind}.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    door = LoopbackOnly(app)
    await door({"type": "lifespan"}, receive, send)
    await door({"type": kind, "headers": [(b"host", b"localhost:1")]}, receive, send)
    assert (inside, sent) == (["lifespan", kind], [])
    await door({"type": kind, "headers": [(b"host", b"page.example.com")]}, receive, send)
    assert len(inside) == 2
    assert sent[0].get("status", sent[0].get("code")) in (403, 1008)


def test_a_port_that_is_taken() -> None:
    first = listen("127.0.0.1", 0)
    port = first.getsockname()[1]
    with pytest.raises(UserError, match=f"^port {port} is not available .*--port"):
        listen("127.0.0.1", port)
    first.close()
    with pytest.raises(UserError, match=r"^port 1 of 192\.0\.2\.1 is not available"):
        listen("192.0.2.1", 1)
    assert not is_loopback("0.0.0.0")
    assert not is_loopback(None)
