"""The driver of a server of the Model Context Protocol: what an agent calls is a tool of the server, which runs in here.

It is copied into each imported pack as `tools.py`, and the pack's `mcp.json` says how the server is started or where it is.
A server of one's own command is started anew for each episode, with the private folder as its working directory and home:
what it keeps in files there is the state. One at a URL lives elsewhere; a tool that the pack names may set it back. The
official SDK speaks to it, in a thread with a loop of its own, and every wait has a limit. A result that the server marks as an
error is a refusal in its own words.

Run with the interpreter of the "mcp" environment, in the sandbox: the server is as little trusted as any pack's code.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as wire
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from simia.sandbox.inside import files

JSON = Any
LISTING = "list_server"  # the importer's one tool: what the server says of itself
START, CALL = 18.0, 8.0  # seconds; the sandbox waits a little longer for each
GRACE = 1.0
MOST_PAGES = 100
MOST_ROWS = 10_000
VARIABLE = re.compile(r"\$\{(\w+)\}")
SQLITE = b"SQLite format 3\0"


class Refusal(Exception):  # noqa: N818 - the server's own word
    """An error that the server answered with, for the agent to act on."""

    __simia_refusal__ = True


class ServerFailed(Exception):  # noqa: N818 - a state of the server
    """The server cannot be used; one line says why."""


class World:
    """One server, and the episode's private folder."""

    rolls_back = False  # what a server did before it refused, it has done

    def __init__(self, pack: Path, root: Path) -> None:
        self.pack, self.root = pack, root
        self.how: dict[str, Any] = json.loads((pack / "mcp.json").read_bytes())
        self.repeats = self.how["transport"] == "stdio"
        self._link: Link | None = None
        self._initial: files.Files = {}

    def tools(self) -> dict[str, dict[str, bool]]:
        """Tool → whether it writes: all do that the server does not mark as reading only."""
        return {"agent": self.how.get("tools") or {LISTING: False}, "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """A fresh process of the server in a fresh folder; of one elsewhere a fresh session."""
        self._close()
        self._lay(self._wanted(initial))
        self._open()
        if self.how.get("tools") and (again := self.how.get("reset")) is not None:
            try:
                self._call(again["tool"], again.get("arguments") or {})
            except Refusal as error:
                raise ServerFailed(f"its reset tool {again['tool']} refused: {error}") from None
        self._initial = files.files_in(self.root)

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name == LISTING and not self.how.get("tools"):
            return self._linked().ask(listing, START)
        return self._call(name, arguments)

    def dump(self) -> JSON:
        return as_json(files.files_in(self.root), self.root)

    def initial(self) -> JSON:
        with files.laid(self._initial) as folder:
            return as_json(self._initial, folder)

    def restore(self, state: JSON) -> None:
        """The files as they were, and a server that finds them."""
        self._close()
        self._lay({name.rstrip("/"): files.raw(entry) for name, entry in state["files"].items()})
        self._open()

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> JSON:
        raise ValueError("an imported server has no checks of its own: judge its state, the calls or the answer")

    # -- files ----------------------------------------------------------------------------------------------------

    def _wanted(self, initial: dict[str, Any]) -> files.Files:
        """The pack's files, then the task's: `{"folder": …, "files": {name: {"text"} | {"base64"} | null}}`."""
        if unknown := initial.keys() - {"folder", "files"}:
            raise ValueError(f"initial has {sorted(unknown)}: it is {{folder: …, files: …}}")
        wanted: files.Files = {}
        for folder in (self.how.get("files"), initial.get("folder")):
            if folder:
                wanted |= files.files_in(files.inside(self.pack, folder), modes=False)
        for name, entry in (initial.get("files") or {}).items():
            for gone in [each for each in wanted if each == name or each.startswith(name.rstrip("/") + "/")]:
                del wanted[gone]
            if entry is not None:
                wanted[name.rstrip("/")] = files.raw(entry)
        return wanted

    def _lay(self, wanted: files.Files) -> None:
        files.clear(self.root, wanted)
        files.lay(self.root, wanted)

    # -- the server -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._link = Link(self.how, self.root)
        self._link.open()

    def _close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _linked(self) -> Link:
        if self._link is None:
            raise ServerFailed("there is no server: the episode was not set up")
        return self._link

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        request = wire.CallToolRequest(params=wire.CallToolRequestParams(name=name, arguments=arguments))

        async def call(session: ClientSession) -> wire.CallToolResult:
            return await session.send_request(request, wire.CallToolResult)

        found = self._linked().ask(call, self.how.get("call") or CALL)
        text = readable(found)
        if found.is_error:
            raise Refusal(text or "the tool failed without a word")
        return text


class Link:
    """A thread in which the SDK speaks to one server."""

    def __init__(self, how: dict[str, Any], root: Path) -> None:
        self._how, self._root = how, root
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - as long as the server lives
        self._secrets = [value for name in how.get("variables") or [] if (value := os.environ.get(name))]
        self._session: ClientSession | None = None
        self._ready = threading.Event()
        self._leave = asyncio.Event()
        self._failure: BaseException | None = None
        self._living: Any = None
        self._program, self._status = "", ""
        self.junk: str | None = None

    def open(self) -> None:
        """Start it and shake hands. Raises `ServerFailed`."""
        self._thread.start()
        self._living = asyncio.run_coroutine_threadsafe(self._live(), self._loop)
        limit = self._how.get("start") or START
        if not self._ready.wait(limit):
            why = f"the server did not answer within {limit:g} s{self._said()}"
            self.close()
            raise ServerFailed(why)
        if self._failure is not None:
            why = self._why(self._failure)
            self.close()
            raise ServerFailed(why)

    async def _live(self) -> None:
        try:
            async with (
                self._transport() as (read, write),
                ClientSession(read, write, message_handler=self._hear) as session,
            ):
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
    async def _transport(self) -> AsyncIterator[Any]:
        how = self._how
        if how["transport"] == "http":
            headers = {name: filled(value, {}) for name, value in (how.get("headers") or {}).items()}
            timeout = httpx2.Timeout(START, read=300.0)
            async with (
                httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [self._see]}) as client,
                streamable_http_client(filled(how["url"], {}), http_client=client) as streams,
            ):
                yield streams
            return
        places = {"ROOT": str(self._root)}
        if how.get("within"):  # a cached environment lies beside the one that runs this
            places["SERVER"] = str(Path(sys.prefix).parent / how["within"])
        self._program, *words = [filled(word, places) for word in how["command"]]
        given = {name: os.environ[name] for name in how.get("variables") or [] if name in os.environ}
        own = {name: filled(value, places) for name, value in (how.get("environment") or {}).items()}
        # Caches of programs are no state.
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

    async def _see(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self._status = f" (HTTP {response.status_code})"

    async def _hear(self, message: Any) -> None:
        """Notifications are let be; a line that is no message is remembered."""
        if isinstance(message, Exception) and self.junk is None:
            said = getattr(message, "errors", lambda: [{"input": str(message)}])()[0].get("input")
            self.junk = one_line(str(said))

    def ask(self, what: Callable[[ClientSession], Awaitable[Any]], limit: float) -> Any:
        """Something of the server. Raises `Refusal` for its errors, its silence and its end."""
        session = self._session
        if session is None:
            raise Refusal(self._hidden(f"the server has ended{self._said()}"))
        self.junk = None
        asking = asyncio.run_coroutine_threadsafe(asyncio.wait_for(answered(what, session), limit), self._loop)
        try:
            return asking.result(limit + GRACE)
        except TimeoutError:
            asking.cancel()
            unread = "" if self.junk is None else f"; what it sent is no message that can be read: {self.junk[:100]!r}"
            raise Refusal(self._hidden(f"the server did not answer within {limit:g} s{unread}")) from None
        except MCPError as error:
            if error.code == wire.CONNECTION_CLOSED:
                raise Refusal(self._hidden(f"the server has ended{self._said()}")) from None
            raise Refusal(self._hidden(f"MCP error {error.code}: {error.message}")) from None
        except Exception as error:  # a reply that is none
            raise Refusal(self._hidden(f"the server's reply cannot be read: {one_line(str(error))}")) from None

    def close(self) -> None:
        if self._living is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
            with contextlib.suppress(BaseException):
                self._living.result(0.1 if not self._ready.is_set() else 6.0)
            self._living.cancel()
            with contextlib.suppress(BaseException):
                self._living.result(6.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._errors.close()

    def _why(self, error: BaseException) -> str:
        """Why a server could not be started, in a line."""
        error = first(error)
        if isinstance(error, ServerFailed):
            return self._hidden(str(error))
        if self._how["transport"] == "http":
            grant = self._status or " (a sandbox has no network unless network is granted)"
            return self._hidden(
                f"{self._how['url']} cannot be used: {one_line(str(error) or type(error).__name__)}{grant}"
            )
        if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
            return f"the server's program {self._program} is not there, or cannot be run"
        if isinstance(error, MCPError) and error.code != wire.CONNECTION_CLOSED:
            return self._hidden(f"the server refused to begin: {one_line(error.message)}")
        if isinstance(error, MCPError):
            return self._hidden(f"the server ended at its start{self._said()}")
        return self._hidden(
            f"the server cannot be spoken to: {one_line(str(error) or type(error).__name__)}{self._said()}"
        )

    def _said(self) -> str:
        """Its last words: on stderr, or where messages should be."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(max(0, os.fstat(self._errors.fileno()).st_size - 4000))
            lines = [line for line in self._errors.read().splitlines() if line.strip()]
            if self.junk is not None:
                return f"; it printed {self.junk!r} where messages should be"
            if lines:
                return f": {one_line(next((line for line in reversed(lines) if 'Error' in line), lines[-1]))}"
        return ""

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


async def answered(what: Callable[[ClientSession], Awaitable[Any]], session: ClientSession) -> Any:
    return await what(session)


async def shake_hands(session: ClientSession) -> None:
    """By the handshake that every server knows; one that has left it behind says so."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != wire.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


async def listing(session: ClientSession) -> JSON:
    """What the server says of itself."""
    can = session.server_capabilities
    info = session.server_info
    found: dict[str, Any] = {
        "server": info.model_dump(mode="json", exclude_none=True, exclude={"icons"}) if info else {},
        "protocol": session.protocol_version,
        "instructions": session.instructions,
        "tools": await paged(session.list_tools, "tools"),
    }
    for name, ask, has in (
        ("resources", session.list_resources, can and can.resources),
        ("resource_templates", session.list_resource_templates, can and can.resources),
        ("prompts", session.list_prompts, can and can.prompts),
    ):
        found[name] = []
        if has:
            with contextlib.suppress(MCPError):  # it says that it has some, and cannot list them
                found[name] = await paged(ask, name)
    return found


async def paged(ask: Callable[..., Awaitable[Any]], name: str) -> list[JSON]:
    rows: list[JSON] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await ask(params=wire.PaginatedRequestParams(cursor=cursor) if cursor else None)
        rows += [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in getattr(page, name)]
        cursor = page.next_cursor
        if not cursor:
            break
    return rows


# -- words --------------------------------------------------------------------------------------------------------


def readable(found: wire.CallToolResult) -> str:
    """A result as text: its text to the letter, a word for what is none; its structure where it says nothing else."""
    parts = [word_of(part) for part in found.content]
    if not parts and found.structured_content is not None:
        return json.dumps(found.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def word_of(part: Any) -> str:
    if isinstance(part, wire.TextContent):
        return part.text
    if isinstance(part, wire.ResourceLink):
        return f"[resource {part.uri} {part.name}]"
    if isinstance(part, wire.EmbeddedResource):
        inner = part.resource
        if isinstance(inner, wire.TextResourceContents):
            return inner.text
        return f"[resource {inner.uri} {inner.mime_type or 'of unknown type'}, {sized(inner.blob)}]"
    return f"[{part.type} {part.mime_type}, {sized(part.data)}]"


def sized(data: str) -> str:
    return f"{len(data) * 3 // 4 - data[-2:].count('='):,} bytes"


def first(error: BaseException) -> BaseException:
    """The cause within groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def filled(text: str, places: Mapping[str, str]) -> str:
    """`${ROOT}` is the private folder, `${SERVER}` the server's environment, any other name a variable that was granted.

    Raises `ServerFailed` for one that was not.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        given = places.get(name, os.environ.get(name))
        if given is None:
            raise ServerFailed(f"the variable {name} is not granted: --set 'backend_settings.variables=[{name}]'")
        return given

    return VARIABLE.sub(value, text)


# -- files as JSON ------------------------------------------------------------------------------------------------


def as_json(found: files.Files, folder: Path) -> JSON:
    """As a world of files has them (docs/packs.md); of a SQLite file also what is in its tables."""
    rows: dict[str, JSON] = {}
    for name, (kind, mode, data) in sorted(found.items()):
        if kind == "folder":
            rows[f"{name}/"] = {"folder": True, **({} if mode == files.FOLDER else {"mode": mode})}
        elif kind == "link":
            rows[name] = {"link": data.decode(errors="replace")}
        elif kind == "file":
            rows[name] = {**content(data, folder / name), **({} if mode == files.FILE else {"mode": mode})}
        else:
            rows[name] = {"other": kind}
    return {"files": rows}


def content(data: bytes, path: Path) -> dict[str, JSON]:
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return {"text": data.decode()}
    found: dict[str, JSON] = {"base64": base64.b64encode(data).decode()}
    if data.startswith(SQLITE):
        with contextlib.suppress(sqlite3.Error):
            found["content"] = tables(data)
    return found


def tables(data: bytes) -> JSON:
    """Table → its rows, by their number."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data)
        base.text_factory = lambda raw: raw.decode(errors="replace")
        names = base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        found: dict[str, JSON] = {}
        for (name,) in names:
            cursor = base.execute(f'SELECT * FROM "{name.replace(chr(34), chr(34) * 2)}" LIMIT {MOST_ROWS}')
            columns = [column[0] for column in cursor.description]
            found[name] = {
                str(number): {
                    column: value.hex() if isinstance(value, bytes) else value
                    for column, value in zip(columns, row, strict=True)
                }
                for number, row in enumerate(cursor, start=1)
            }
        return found
