"""What servers of packs share: a port, a clean shutdown, and protection against requests of web pages.

A server of the loopback is for programs of this machine. A page in a browser of this machine could talk to it too, under a name of
its own that points here, so requests that name another host or come from another's page are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from simia.errors import UserError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `UserError` for an address that cannot be had."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # who comes before the server is up waits, and is not turned away
    except OSError as error:
        listening.close()
        where = f"port {port}" if is_loopback(host) else f"port {port} of {host}"
        raise UserError(f"{where} cannot be had ({error.strerror}): give another with --port, 0 for any") from None
    return listening


@contextlib.contextmanager
def until_signal() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class QuietServer(uvicorn.Server):
    """Leaves signals to us: its own handler would raise them again after a clean end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class LoopbackOnly:
    """ASGI: lets in what names the loopback as its host and, where it comes from a page, a page of the loopback."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not is_admitted(dict(scope["headers"])):
            await refuse_request(scope["type"], receive, send)
        else:
            await self._app(scope, receive, send)


def is_admitted(headers: dict[bytes, bytes]) -> bool:
    origin = headers.get(b"origin")
    addresses = [f"//{headers.get(b'host', b'').decode('latin-1')}"]
    addresses += [] if origin is None else [origin.decode("latin-1")]
    try:
        return all(is_loopback(urlsplit(address).hostname) for address in addresses)
    except ValueError:
        return False


async def refuse_request(kind: str, receive: Receive, send: Send) -> None:
    if kind == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})  # before it is accepted: the client sees a 403
        return
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"this server is for programs of its own machine"})
