"""Connect to one server with the official SDK, in a thread, with a timeout for every wait; and list its tools."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as wire
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

JSON = Any
START = 18.0  # seconds; the sandbox waits a little longer
GRACE = 1.0
MOST_PAGES = 100
VARIABLE = re.compile(r"\$\{(\w+)\}")


class ServerRefusal(Exception):  # noqa: N818 - the server's own word
    """The server returned an error, which the agent can act on."""

    __simia_refusal__ = True


class ServerFailed(Exception):  # noqa: N818 - a state of the server
    """The server cannot be used; the message is one line."""


class RawListing(JSONRPCDispatcher[Any]):
    """Keep the listed tools as they came: the SDK refuses a whole listing for one tool with a malformed schema."""

    tools: list[JSON]
    """The last page."""

    async def send_raw_request(self, method: str, *words: Any, **options: Any) -> dict[str, Any]:
        found = await super().send_raw_request(method, *words, **options)
        if method == "tools/list" and isinstance(found.get("tools"), list):
            self.tools = found["tools"]
            found = {**found, "tools": []}
        return found


class ServerConnection:
    """A connection to one server, held by a thread with its own event loop.

    how: `mcp.json`, with what the episode adds to it.
    places: name → value, for `${NAME}` in the command, the address, the headers and the variables of the server.
    """

    def __init__(self, how: dict[str, Any], root: Path, places: dict[str, str]) -> None:
        self._settings, self._root, self._places = how, root, places
        if how.get("within"):  # a cached environment in the same folder as the one that runs this
            places["SERVER"] = str(Path(sys.prefix).parent / how["within"])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - as long as the server lives
        self._secrets = [value for name in how.get("variables") or [] if (value := os.environ.get(name))]
        self._session: ClientSession | None = None
        self.listing: RawListing | None = None
        self._ready = threading.Event()
        self._leave = asyncio.Event()
        self._failure: BaseException | None = None
        self._session_task: Any = None
        self._program, self._status = "", ""
        self.junk: str | None = None

    def open(self) -> None:
        """Start the server and initialize the session. Raises `ServerFailed`."""
        self._thread.start()
        self._session_task = asyncio.run_coroutine_threadsafe(self._hold_session(), self._loop)
        limit = self._settings.get("start") or START
        why = ""
        if not self._ready.wait(limit):
            why = f"the server did not answer within {limit:g} s{self._read_last_output()}"
        elif self._failure is not None:
            why = self._mask_secrets(self._explain_failure(find_cause(self._failure)))
        if why:
            self.close()
            raise ServerFailed(why)

    async def _hold_session(self) -> None:
        try:
            async with (
                self._open_transport() as (read, write),
                ClientSession(
                    dispatcher=(listing := RawListing(read, write)), message_handler=self._note_junk
                ) as session,
            ):
                self.listing = listing
                await shake_hands(session)
                self._session = session
                self._ready.set()
                await self._leave.wait()
        except BaseException as error:
            self._failure = error
        finally:
            self._session = None
            self._ready.set()

    @contextlib.asynccontextmanager
    async def _open_transport(self) -> AsyncIterator[Any]:
        how = self._settings
        if how["transport"] == "http":
            headers = {name: fill_variables(value, self._places) for name, value in (how.get("headers") or {}).items()}
            timeout = httpx2.Timeout(START, read=300.0)
            async with (
                httpx2.AsyncClient(
                    headers=headers, timeout=timeout, event_hooks={"response": [self._note_status]}
                ) as client,
                streamable_http_client(fill_variables(how["url"], self._places), http_client=client) as streams,
            ):
                yield streams
            return
        self._program, *words = [fill_variables(word, self._places) for word in how["command"]]
        given = {name: os.environ[name] for name in how.get("variables") or [] if name in os.environ}
        own = {name: fill_variables(value, self._places) for name, value in (how.get("environment") or {}).items()}
        # Caches are not part of the state.
        quiet = {"XDG_CACHE_HOME": "/tmp/cache", "npm_config_cache": "/tmp/npm", "PYTHONDONTWRITEBYTECODE": "1"}
        parameters = StdioServerParameters(
            command=self._program,
            args=words,
            env={**quiet, "HOME": str(self._root), **given, **own},
            cwd=self._root,
            encoding_error_handler="replace",
        )
        async with stdio_client(parameters, errlog=self._errors) as streams:
            yield streams

    async def _note_status(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self._status = f" (HTTP {response.status_code})"

    async def _note_junk(self, message: Any) -> None:
        """Ignore notifications; note the first line that is no message."""
        if isinstance(message, Exception) and self.junk is None:
            line = getattr(message, "errors", lambda: [{"input": str(message)}])()[0].get("input")
            self.junk = flatten_line(str(line))

    def ask(self, what: Callable[[ClientSession], Awaitable[Any]], limit: float) -> Any:
        """Send a request and return the result. Raises `ServerRefusal` for an error, a timeout, or a server that has ended."""
        session = self._session
        if session is None:
            raise ServerRefusal(self._mask_secrets(f"the server has ended{self._read_last_output()}"))
        self.junk = None
        try:
            asking = asyncio.run_coroutine_threadsafe(asyncio.wait_for(what(session), limit), self._loop)
            try:
                return asking.result(limit + GRACE)
            finally:
                asking.cancel()
        except Exception as error:
            raise ServerRefusal(self._mask_secrets(self._explain_refusal(error, limit))) from None

    def _explain_refusal(self, error: Exception, limit: float) -> str:
        if isinstance(error, TimeoutError):
            unread = "" if self.junk is None else f"; what it sent is no message that can be read: {self.junk[:100]!r}"
            return f"the server did not answer within {limit:g} s{unread}"
        if isinstance(error, MCPError) and error.code == wire.CONNECTION_CLOSED:
            return f"the server has ended{self._read_last_output()}"
        if isinstance(error, MCPError):
            return f"MCP error {error.code}: {error.message}"
        return f"the server's reply cannot be read: {flatten_line(str(error))}"

    def close(self) -> None:
        if self._session_task is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
            with contextlib.suppress(BaseException):
                self._session_task.result(0.1 if not self._ready.is_set() else 6.0)
            self._session_task.cancel()
            with contextlib.suppress(BaseException):
                self._session_task.result(6.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._errors.close()

    def _explain_failure(self, error: BaseException) -> str:
        """Explain in one line why a server could not be started."""
        words = flatten_line(str(error) or type(error).__name__)
        if isinstance(error, ServerFailed):
            return str(error)
        if self._settings["transport"] == "http":
            grant = self._status or " (a sandbox has no network unless network is granted)"
            return f"{self._settings['url']} cannot be used: {words}{grant}"
        if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
            return f"the server's program {self._program} is not there, or cannot be run"
        if isinstance(error, MCPError) and error.code != wire.CONNECTION_CLOSED:
            return f"the server refused to begin: {flatten_line(error.message)}"
        if isinstance(error, MCPError):
            return f"the server ended at its start{self._read_last_output()}"
        return f"the server cannot be spoken to: {words}{self._read_last_output()}"

    def _read_last_output(self) -> str:
        """Return the last line of stderr, or a line that the server printed in place of a message."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(max(0, os.fstat(self._errors.fileno()).st_size - 4000))
            lines = [line for line in self._errors.read().splitlines() if line.strip()]
            if self.junk is not None:
                return f"; it printed {self.junk!r} where messages should be"
            if lines:
                return f": {flatten_line(next((line for line in reversed(lines) if 'Error' in line), lines[-1]))}"
        return ""

    def _mask_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


async def shake_hands(session: ClientSession) -> None:
    """Initialize the session, or discover the server's capabilities if it no longer supports that handshake."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != wire.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


async def list_server(session: ClientSession, listing: RawListing | None) -> JSON:
    """List the server's tools as they came, its resources and its prompts."""
    can = session.server_capabilities
    info = session.server_info
    found: dict[str, Any] = {
        "server": info.model_dump(mode="json", exclude_none=True, exclude={"icons"}) if info else {},
        "protocol": session.protocol_version,
        "instructions": session.instructions,
        "tools": await list_pages(session.list_tools, lambda _: listing.tools if listing else []),
    }
    for name, ask, has in (
        ("resources", session.list_resources, can and can.resources),
        ("resource_templates", session.list_resource_templates, can and can.resources),
        ("prompts", session.list_prompts, can and can.prompts),
    ):
        found[name] = []
        if has:
            with contextlib.suppress(MCPError):  # it declares the capability and cannot list
                found[name] = await list_pages(ask, partial(dump_rows, name=name))
    return found


def dump_rows(page: Any, name: str) -> list[JSON]:
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in getattr(page, name)]


async def list_pages(ask: Callable[..., Awaitable[Any]], read: Callable[[Any], list[JSON]]) -> list[JSON]:
    rows: list[JSON] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await ask(params=wire.PaginatedRequestParams(cursor=cursor) if cursor else None)
        rows += read(page)
        cursor = page.next_cursor
        if not cursor:
            break
    return rows


def find_cause(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def flatten_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def fill_variables(text: str, places: Mapping[str, str]) -> str:
    """Replace `${ROOT}` by the private folder, `${SERVER}` by the server's environment, `${CLOCK}` by the time at which the
    episode starts, and other names by granted variables.

    Raises `ServerFailed` for a variable that was not granted.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        given = places.get(name, os.environ.get(name))
        if given is None:
            raise ServerFailed(f"the variable {name} is not granted: --set 'backend_settings.variables=[{name}]'")
        return given

    return VARIABLE.sub(value, text)
