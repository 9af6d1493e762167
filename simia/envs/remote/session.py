"""The client's connections to a server of environments: sessions that survive a lost connection, and waiting for a full server.

A session uses one WebSocket at a time. When the connection is lost, the session connects again within the server's lease and repeats the
message that was not answered; its serial number keeps the server from running it twice. A server that is full or draining
answers 503 with Retry-After, and the session waits.

An asyncio task reads the connection all the time: aiohttp answers the server's pings only during a read, and a policy may take minutes for a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from simia.envs.remote.wire import (
    DRAINING,
    LARGEST_REPLY,
    NO_EPISODE,
    PROTOCOL,
    SESSION_HEADER,
    EnvironmentDescription,
    read_frame,
    write_frame,
)
from simia.errors import Aborted, Code, UserError
from simia.llm.http_response import receive_body
from simia.llm.openai_backend import clean_text, explain_connector_error
from simia.llm.types import LLMFault

CONNECT_SECONDS = 10.0
PING_SECONDS = 20.0
PATIENCE = 120.0  # seconds that a reset waits for a server that is full, draining or away
PAUSES = (0.1, 0.2, 0.5, 1.0)  # seconds between attempts to connect; the last one repeats
FAREWELL_SECONDS = 2.0
ENDS = frozenset(
    (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.ERROR)
)
UNASKED = (
    100  # unread messages, after which the connection counts as lost; so do more than `LARGEST_REPLY` bytes of them
)
KEPT_IDLE = 5.0  # seconds for which a connection without an episode is kept for the next one


class Unavailable(Exception):  # noqa: N818 - the reason to wait
    """No connection now. `pause`: seconds that the server asks for; `code`: the reason if it stays so."""

    def __init__(self, detail: str, code: Code = Code.CONNECTION, pause: float | None = None) -> None:
        super().__init__(detail)
        self.detail, self.code, self.pause = detail, code, pause


@dataclass(slots=True)
class RemoteServer:
    """One environment's address, and the connections to it. All of it belongs to one event loop."""

    url: str
    token: str | None = None
    patience: float = PATIENCE
    description: EnvironmentDescription | None = None
    _http: aiohttp.ClientSession | None = None
    _idle: list[RemoteSession] = field(default_factory=list)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    async def describe(self) -> EnvironmentDescription:
        """Ask the server what it serves here. Raises `UserError` where it cannot be asked, with what to change."""
        try:
            async with self._session().get(
                f"{self.url}/environment", allow_redirects=False, headers={"Accept-Encoding": "gzip"},
                timeout=aiohttp.ClientTimeout(total=PATIENCE, sock_connect=CONNECT_SECONDS, sock_read=CONNECT_SECONDS),
            ) as response:  # fmt: skip
                if response.status != 200:
                    raise UserError(self._explain_status(response.status))
                body = orjson.loads(await receive_body(response, LARGEST_REPLY))
            newer = isinstance(body, dict) and isinstance(body.get("protocol"), int) and body["protocol"] > PROTOCOL
            if newer:
                raise UserError(f"{self.url} speaks a newer protocol than this simia: upgrade simia")
            self.description = EnvironmentDescription.model_validate(body)
        except LLMFault:
            raise UserError(
                f"{self.url} describes itself in more than {LARGEST_REPLY:,} bytes, or in no valid gzip"
            ) from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise UserError(self._explain_certificate(error)) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UserError(f"{self.url} cannot be reached ({explain_error(error)}): is the server running?") from None
        except ValueError:
            raise UserError(
                f"{self.url} is not an environment of simia: give the address that simia serve prints"
            ) from None
        return self.description

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._http

    def _explain_status(self, status: int) -> str:
        if status == 401:
            if self.token is None:
                return f"{self.url} needs a token: name the variable that holds it in token_env"
            return f"{self.url} refused the token: check the variable that token_env names"
        if status == 404:
            return f"{self.url}: the server has no environment at this address; give one of the form https://HOST/PACK"
        return f"{self.url} answered {status}: it is not a server of simia, or it is not ready yet"

    def _explain_certificate(self, error: aiohttp.ClientConnectorCertificateError) -> str:
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return (
            f"{self.url} has a certificate that this machine does not trust ({clean_text(reason)}): "
            "name the file of its authority in SSL_CERT_FILE"
        )

    async def connect(self, session_id: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket for a session. Raises `Unavailable` if waiting may help, else `Aborted`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._session().ws_connect(
                    f"{self.url}/ws",
                    headers={SESSION_HEADER: session_id},
                    heartbeat=PING_SECONDS,
                    max_msg_size=LARGEST_REPLY,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 503:
                pause = error.headers.get("Retry-After", "") if error.headers is not None else ""
                code, wait = Code.RATE_LIMITED, float(pause) if pause.isdecimal() else None
                found: Unavailable | Aborted = Unavailable("the server has no free session", code, wait)
            elif error.status in (401, 403):
                found = Aborted(Code.AUTH, self._explain_status(401))
            elif error.status == 404:
                found = Aborted(Code.NOT_FOUND, self._explain_status(404))
            else:
                found = Unavailable(f"the server answered {error.status}")
        except aiohttp.ClientConnectorCertificateError as error:
            found = Aborted(Code.CONNECTION, self._explain_certificate(error))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            found = Unavailable(explain_error(error))
        raise found  # outside of the blocks: aiohttp's exceptions carry the request's headers

    def take_session(self) -> RemoteSession:
        """Return a session whose connection is free, or a new one."""
        while self._idle:
            session = self._idle.pop()
            if time.monotonic() - session.freed < KEPT_IDLE:
                return session
            self.end_session(session)
        return RemoteSession(self)

    def free_session(self, session: RemoteSession) -> None:
        """Keep the session's connection for the next episode, for a few seconds."""
        if session.broken:
            self.end_session(session)
            return
        session.freed = time.monotonic()
        self._idle.append(session)
        asyncio.get_running_loop().call_later(KEPT_IDLE, self._drop_idle, session)

    def _drop_idle(self, session: RemoteSession) -> None:
        if session in self._idle and time.monotonic() - session.freed >= KEPT_IDLE * 0.99:
            self._idle.remove(session)
            self.end_session(session)

    def end_session(self, session: RemoteSession) -> None:
        """End a session in the background: the server ends its episode at once."""
        if session.socket is not None:
            closing = asyncio.ensure_future(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all idle sessions and close the connections. Closing twice is harmless."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(session.close() for session in idle), *self._closing)
        http, self._http = self._http, None
        if http is not None:
            await http.close()


@dataclass(slots=True, eq=False)
class RemoteSession:
    """One session. It sends one request at a time and gets one answer to each."""

    server: RemoteServer
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    socket: aiohttp.ClientWebSocketResponse | None = None
    answers: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """Received messages that were not read yet; None marks the end of the connection."""
    reading: asyncio.Task[None] | None = None
    serial: int = 0
    broken: bool = False
    freed: float = 0.0

    async def request(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the `data` of its answer.

        A lost connection is opened again: for a step within the server's lease, for a reset within `PATIENCE`. Raises `Aborted` if
        that fails, and `UserError` if the server refuses the request.
        """
        assert self.server.description is not None
        if self.broken:
            raise Aborted(Code.CONNECTION, "an earlier request of this session was interrupted")
        self.serial += 1
        frame = write_frame({"type": kind, "data": data, "serial": self.serial})
        if len(frame.encode()) > self.server.description.largest_frame:
            limit = self.server.description.largest_frame
            raise Aborted(
                Code.TOO_LARGE, f"the message has {len(frame.encode()):,} bytes, and the server accepts {limit:,}"
            )
        patience = self.server.patience if kind == "reset" else self.server.description.lease
        try:
            return await self._exchange(frame, patience)
        except UserError:
            raise
        except BaseException:  # also when cancelled: the next caller would take the unread answer for its own
            self.broken = True
            self.server.end_session(self)
            raise

    async def _exchange(self, frame: str, patience: float) -> dict[str, Any]:
        lost_at: float | None = None
        attempt = 0
        while True:
            try:
                if self.socket is None:
                    self.socket = await self.server.connect(self.id)
                    self.answers = asyncio.Queue()
                    self.reading = asyncio.ensure_future(read_messages(self.socket, self.answers))
                await self.socket.send_str(frame)
                return self._read_answer(await self._receive(self.socket))
            except Unavailable as error:
                found = error
            except (aiohttp.ClientError, OSError) as error:
                found = Unavailable(explain_error(error))
            await self._drop_socket()
            now = time.monotonic()
            lost_at = now if lost_at is None else lost_at
            pause = found.pause if found.pause is not None else PAUSES[min(attempt, len(PAUSES) - 1)]
            pause *= random.uniform(0.75, 1.25)  # after an outage, clients must not all return at once
            attempt += 1
            if now + pause - lost_at > patience:
                raise Aborted(found.code, f"{found.detail}, for {now - lost_at:.0f} s")
            await asyncio.sleep(pause)

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
        """The answer to the latest message. Raises `Unavailable` where the connection ends before."""
        while (text := await self.answers.get()) is not None:
            try:
                answer = read_frame(text)
            except ValueError:
                raise Unavailable("the server's answer is not JSON") from None
            if isinstance(answer, dict) and answer.get("serial") in (None, self.serial):
                return answer
        raise Unavailable(f"the connection was lost ({socket.close_code or 'no code'})")

    def _read_answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        data = answer.get("data")
        data = data if isinstance(data, dict) else {}
        if answer.get("type") != "error":
            return data
        code, words = data.get("code"), clean_text(str(data.get("message", "no reason")))
        if code == NO_EPISODE:
            raise Aborted(Code.CONNECTION, "the server no longer has the episode: it was restarted, or the lease ended")
        if code == DRAINING:
            after = data.get("retry_after")
            pause = max(0.0, float(after)) if isinstance(after, int | float) else 1.0
            raise Unavailable("the server is about to end", Code.RATE_LIMITED, pause)
        if code == "EXECUTION_ERROR":
            raise Aborted(Code.SERVER_ERROR, words)
        raise UserError(words)

    async def _drop_socket(self) -> None:
        socket, self.socket = self.socket, None
        if socket is not None:
            await self._close_socket(socket)

    async def _close_socket(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            await socket.close()  # this ends the task that reads

    async def close(self) -> None:
        """Tell the server that the session ends, so that it keeps no episode for it."""
        socket, self.socket = self.socket, None
        if socket is not None:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await socket.send_str('{"type":"close"}')
                # Let the server close the connection. If the client closed it, a step in progress would get no answer, which would
                # look like a lost connection.
                async with asyncio.timeout(FAREWELL_SECONDS):
                    while await self.answers.get() is not None:
                        pass
            await self._close_socket(socket)


async def read_messages(socket: aiohttp.ClientWebSocketResponse, answers: asyncio.Queue[str | None]) -> None:
    """Put what a connection receives into `answers`, and None at its end. Pings are answered meanwhile."""
    try:
        size = 0
        while (message := await socket.receive()).type not in ENDS and answers.qsize() < UNASKED:
            if message.type is aiohttp.WSMsgType.TEXT:
                size = len(message.data) + (0 if answers.empty() else size)
                if size > LARGEST_REPLY:
                    break
                answers.put_nowait(message.data)
    finally:
        answers.put_nowait(None)


def explain_error(error: BaseException) -> str:
    """Describe a failed connection in one line, without the request."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_SECONDS:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        return clean_text(explain_connector_error(error))
    return clean_text(str(error).splitlines()[0][:200]) if str(error) else type(error).__name__
