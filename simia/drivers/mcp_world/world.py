"""The driver of a server of the Model Context Protocol. The agent's tools are the tools of the server.

This folder is copied into each imported pack, and the pack's `mcp.json` states the server's command or URL. A server with a
command is restarted for each episode, with the private folder as its working directory and home; the files in that folder are
the state. A server at a URL runs elsewhere; a tool that the pack names can reset it. A result that the server marks as an error
is a refusal with the server's text.

The driver runs with the interpreter of the "mcp" environment, in the sandbox: the server is untrusted, like any pack's code.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as wire
from mcp.client.session import ClientSession

from simia.sandbox.inside import files

from .connection import START, ServerConnection, ServerFailed, ServerRefusal, list_server
from .conversion import describe_file, result_to_text

JSON = Any
LISTING = "list_server"  # the importer's only tool
CALL = 8.0  # seconds


class MCPWorld:
    """One server, and the episode's private folder."""

    rolls_back = False  # a server may change its files before it refuses

    def __init__(self, pack: Path, root: Path) -> None:
        self.pack, self.root = pack, root
        self.how: dict[str, Any] = json.loads((pack / "mcp.json").read_bytes())
        self._connection: ServerConnection | None = None
        self._initial: files.Files = {}

    def tools(self) -> dict[str, dict[str, bool]]:
        """Return tool → whether it writes. Tools that the server does not mark as read-only write."""
        return {"agent": self.how.get("tools") or {LISTING: False}, "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Start a new server process in a new folder, or a new session with a server elsewhere.

        The folder holds the pack's files, then the task's: `{"folder": …, "files": {name: {"text"} | {"base64"} | null}}`.
        """
        if unknown := initial.keys() - {"folder", "files"}:
            raise ValueError(f"initial has {sorted(unknown)}: it is {{folder: …, files: …}}")
        folders = (self.how.get("files"), initial.get("folder"))
        self._restart(files.collect_files(self.pack, folders, initial.get("files") or {}))
        if self.how.get("tools") and (again := self.how.get("reset")) is not None:
            try:
                self._call(again["tool"], again.get("arguments") or {})
            except ServerRefusal as error:
                raise ServerFailed(f"its reset tool {again['tool']} refused: {error}") from None
        self._initial = files.read_files(self.root)

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name == LISTING and not self.how.get("tools"):
            return self._ask(list_server, START)
        return self._call(name, arguments)

    def dump(self) -> JSON:
        return {"files": files.files_to_json(files.read_files(self.root), describe_file)}

    def initial(self) -> JSON:
        return {"files": files.files_to_json(self._initial, describe_file)}

    def restore(self, state: JSON) -> None:
        """Restore the files and restart the server."""
        self._restart(files.files_from_json(state["files"]))

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> JSON:
        raise ValueError("an imported server has no checks of its own: judge its state, the calls or the answer")

    def _restart(self, wanted: files.Files) -> None:
        """Start the server, or a new session with a server elsewhere, on these files."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        files.remove_files(self.root, wanted)
        files.write_files(self.root, wanted)
        self._connection = ServerConnection(self.how, self.root)
        self._connection.open()

    def _ask(self, what: Callable[[ClientSession], Awaitable[Any]], limit: float) -> Any:
        if self._connection is None:
            raise ServerFailed("there is no server: the episode was not set up")
        return self._connection.ask(what, limit)

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        request = wire.CallToolRequest(params=wire.CallToolRequestParams(name=name, arguments=arguments))

        async def call(session: ClientSession) -> wire.CallToolResult:
            return await session.send_request(request, wire.CallToolResult)

        found = self._ask(call, self.how.get("call") or CALL)
        text = result_to_text(found)
        if found.is_error:
            raise ServerRefusal(text or "the tool failed without a word")
        return text
