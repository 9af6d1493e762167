"""Convert results of a server's tools to text, and its files to JSON."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import mcp_types as wire

from simia.sandbox.inside import files

JSON = Any
MOST_ROWS = 10_000
SQLITE = b"SQLite format 3\0"


def result_to_text(found: wire.CallToolResult) -> str:
    """Convert a result to text: text parts verbatim, a description of other parts, or the structured content if there are none."""
    parts = [describe_part(part) for part in found.content]
    if not parts and found.structured_content is not None:
        return json.dumps(found.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def describe_part(part: Any) -> str:
    if isinstance(part, wire.TextContent):
        return part.text
    if isinstance(part, wire.ResourceLink):
        return f"[resource {part.uri} {part.name}]"
    if isinstance(part, wire.EmbeddedResource):
        inner = part.resource
        if isinstance(inner, wire.TextResourceContents):
            return inner.text
        return f"[resource {inner.uri} {inner.mime_type or 'of unknown type'}, {format_size(inner.blob)}]"
    return f"[{part.type} {part.mime_type}, {format_size(part.data)}]"


def format_size(data: str) -> str:
    return f"{len(data) * 3 // 4 - data[-2:].count('='):,} bytes"


def files_to_json(found: files.Files, folder: Path) -> JSON:
    """Convert files to JSON as a file world does (docs/packs.md), with the tables of SQLite files."""
    rows: dict[str, JSON] = {}
    for name, (kind, mode, data) in sorted(found.items()):
        if kind == "folder":
            rows[f"{name}/"] = {"folder": True, **({} if mode == files.FOLDER else {"mode": mode})}
        elif kind == "link":
            rows[name] = {"link": data.decode(errors="replace")}
        elif kind == "file":
            rows[name] = {**file_to_json(data, folder / name), **({} if mode == files.FILE else {"mode": mode})}
        else:
            rows[name] = {"other": kind}
    return {"files": rows}


def file_to_json(data: bytes, path: Path) -> dict[str, JSON]:
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return {"text": data.decode()}
    found: dict[str, JSON] = {"base64": base64.b64encode(data).decode()}
    if data.startswith(SQLITE):
        with contextlib.suppress(sqlite3.Error):
            found["content"] = read_sqlite_tables(data)
    return found


def read_sqlite_tables(data: bytes) -> JSON:
    """Return table → row number → row."""
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
