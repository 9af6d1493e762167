"""The part of a start that a prompt shows: the rows that a task concerns, those that are connected with them, and a few others."""

from __future__ import annotations

import json
from typing import Any

from simia.authoring.variant_checks import is_mentioned

LONGEST_TEXT = 300
MOST_ROWS = 12
LINKED_ROWS = 4
OTHER_ROWS = 3
MOST_KEYS = 40
MOST_CHARACTERS = 24_000


def excerpt_start(state: Any, mentions: str) -> str:
    """Write a state for a prompt. `mentions`: the words and calls of the task, whose rows come first."""
    if not isinstance(state, dict):
        return write_line(state)[:MOST_CHARACTERS]
    tables = {name: rows for name, rows in state.items() if is_table(rows)}
    named = {key for rows in tables.values() for key in rows if is_mentioned(key, mentions)}
    linked = {
        key
        for rows in tables.values()
        for key, row in rows.items()
        if key not in named and any(is_mentioned(each, json.dumps(row)) for each in named)
    }
    parts = [
        excerpt_table(name, rows, named, linked) if name in tables else f"{json.dumps(name)}: {write_line(rows)}"
        for name, rows in state.items()
    ]
    text = "\n".join(parts)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n(cut here)"


def excerpt_table(name: str, rows: dict[str, Any], named: set[str], linked: set[str]) -> str:
    """A table: its rows by weight, and the keys of those that are not shown."""
    groups = (
        ([key for key in rows if key in named], MOST_ROWS),
        ([key for key in rows if key in linked], LINKED_ROWS),
        ([key for key in rows if key not in named | linked], OTHER_ROWS),
    )
    shown = {key for keys, most in groups for key in keys[:most]}
    lines = [f"  {json.dumps(key)}: {write_line(rows[key])}" for key in rows if key in shown]
    left = [key for key in rows if key not in shown]
    if left:
        more = "" if len(left) <= MOST_KEYS else " and more"
        lines.append(f"  ({len(left)} more rows: {', '.join(left[:MOST_KEYS])}{more})")
    return "\n".join([f"{json.dumps(name)}: {len(rows)} rows", *lines])


def is_table(value: Any) -> bool:
    """Whether a value maps keys to rows."""
    return isinstance(value, dict) and bool(value) and all(isinstance(row, dict) for row in value.values())


def write_line(value: Any) -> str:
    """JSON in one line, with long texts cut."""
    return json.dumps(cut_texts(value), ensure_ascii=False)


def cut_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: cut_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [cut_texts(each) for each in value]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}… ({len(value)} characters)"
    return value
