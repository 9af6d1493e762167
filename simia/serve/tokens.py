"""Token authentication of servers: every request and WebSocket needs `Authorization: Bearer TOKEN`, except the health check."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse

from simia.envs.remote.remote_pack import read_token
from simia.errors import UserError
from simia.serve.http_server import Asgi, Receive, Scope, Send

OPEN_PATHS = ("/health",)
LEAST_TOKEN = 16  # characters; shorter ones can be guessed
DEFAULT_VARIABLE = "SIMIA_TOKEN"


def read_server_token(variable: str | None, host: str, *, loopback: bool, without: bool) -> str | None:
    """Read the token that clients must send; None: no token is needed.

    On the loopback a token is needed only if `variable` is given; on other hosts always, except with `without`. Raises `UserError`.
    """
    if without:
        if variable is not None:
            raise UserError("--token-env and --no-token cannot be combined: give one of them")
        return None
    if variable is None and loopback:
        return None
    variable = variable or DEFAULT_VARIABLE
    try:
        token = read_token(variable)
    except UserError as error:
        if loopback:
            raise
        raise UserError(
            f"{host} can be reached from other machines, and {error}; or serve everybody with --no-token"
        ) from None
    assert token is not None
    if len(token) < LEAST_TOKEN:
        raise UserError(
            f"the token in {variable} is shorter than {LEAST_TOKEN} characters: openssl rand -hex 32 makes one"
        )
    return token


class TokenRequired:
    """ASGI middleware: answer 401 to requests and WebSockets without the token. Tokens are compared in constant time."""

    def __init__(self, app: Asgi, token: str, *, on_refusal: Callable[[], None]) -> None:
        self._app, self._on_refusal = app, on_refusal
        self._digest = digest_token(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS or self._is_admitted(scope):
            await self._app(scope, receive, send)
            return
        self._on_refusal()
        body = {"detail": "send the server's token: Authorization: Bearer TOKEN"}
        response = JSONResponse(body, 401, headers={"WWW-Authenticate": "Bearer"})
        if scope["type"] == "http":
            await response(scope, receive, send)
            return
        await receive()
        await deny_websocket(response, send)

    def _is_admitted(self, scope: Scope) -> bool:
        found = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(found) != 1:
            return False
        scheme, _, given = found[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(digest_token(given.strip()), self._digest)


def digest_token(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


async def deny_websocket(response: JSONResponse, send: Callable[[Any], Any]) -> None:
    """Refuse a WebSocket's handshake with an HTTP response."""
    head = {"type": "websocket.http.response.start", "status": response.status_code, "headers": response.raw_headers}
    await send(head)
    await send({"type": "websocket.http.response.body", "body": response.body})
