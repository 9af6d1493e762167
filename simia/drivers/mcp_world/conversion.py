"""Convert results of a server's tools to text, and its SQLite files to JSON."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import Any

import mcp_types as wire

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


def describe_file(name: str, data: bytes) -> JSON:
    """Return the tables of a SQLite file as table → row number → row; None for other files."""
    if not data.startswith(SQLITE):
        return None
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data)
        base.text_factory = lambda raw: raw.decode(errors="replace")
        found: dict[str, JSON] = {}
        names = base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (name,) in names:
            cursor = base.execute(f'SELECT * FROM "{name.replace(chr(34), chr(34) * 2)}" LIMIT {MOST_ROWS}')
            columns = [column[0] for column in cursor.description]
            rows = ([each.hex() if isinstance(each, bytes) else each for each in row] for row in cursor)
            found[name] = {
                str(number): dict(zip(columns, row, strict=True)) for number, row in enumerate(rows, start=1)
            }
        return found
    return None


def parse_state(found: wire.CallToolResult) -> JSON:
    """Return the JSON object that a tool returned, as text or as structured content; None for anything else.

    A text may hold it as JSON within JSON, and servers wrap results that are no objects as `{"result": …}`.
    """
    text = "\n".join(part.text for part in found.content if isinstance(part, wire.TextContent))
    for value in (text, found.structured_content):
        if isinstance(value, dict) and value.keys() == {"result"}:
            value = value["result"]
        for _ in range(2):
            if isinstance(value, str):
                with contextlib.suppress(ValueError):
                    value = json.loads(value)
        if isinstance(value, dict):
            return value
    return None
