"""Write the part of a start state that a prompt shows: the rows that a task mentions, rows connected with them, and a few others."""

from __future__ import annotations

import json
from typing import Any

from simia.authoring.variant_checks import is_mentioned

LONGEST_TEXT = 300
MOST_ROWS = 8
LINKED_ROWS = 3
OTHER_ROWS = 2
MOST_KEYS = 12
MOST_CHARACTERS = 16_000


def excerpt_start(state: Any, mentions: str) -> str:
    """Write a state for a prompt. `mentions`: the words and calls of the task, whose rows come first."""
    if not isinstance(state, dict):
        return write_line(state)[:MOST_CHARACTERS]
    tables = {name: rows for name, rows in state.items() if is_table(rows)}
    texts = {key: json.dumps(row) for rows in tables.values() for key, row in rows.items()}
    named = {key for key in texts if contains_key(key, mentions)}
    named |= {key for key in texts if any(contains_key(key, texts[each]) for each in named)}
    linked: dict[str, int] = {}
    for each in named:
        found = [key for key, text in texts.items() if key not in named and contains_key(each, text)]
        linked |= {key: min(len(found), linked.get(key, len(found))) for key in found}
    parts = [
        excerpt_table(name, rows, named, linked) if name in tables else f"{json.dumps(name)}: {write_line(rows)}"
        for name, rows in state.items()
    ]
    text = "\n".join(parts)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n(cut here)"


def excerpt_table(name: str, rows: dict[str, Any], named: set[str], linked: dict[str, int]) -> str:
    """Write a table: its most important rows, and the keys of others. `linked`: row → number of rows that share its rarest link."""
    groups = (
        ([key for key in rows if key in named], MOST_ROWS),
        (sorted((key for key in rows if key in linked), key=linked.__getitem__), LINKED_ROWS),
        ([key for key in rows if key not in named and key not in linked], OTHER_ROWS),
    )
    shown = {key for keys, most in groups for key in keys[:most]}
    lines = [f"  {json.dumps(key)}: {write_line(rows[key])}" for key in rows if key in shown]
    left = [key for key in rows if key not in shown]
    if left:
        more = "" if len(left) <= MOST_KEYS else " and more"
        lines.append(f"  ({len(left)} more rows: {', '.join(left[:MOST_KEYS])}{more})")
    return "\n".join([f"{json.dumps(name)}: {len(rows)} rows", *lines])


def contains_key(key: str, text: str) -> bool:
    """Whether a text contains a key as a whole word."""
    return key in text and is_mentioned(key, text)


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
