"""The transcript of an episode as a judge reads it: numbered JSON lines between two lines with one marker.

Everything in a turn was written by the agent, its user or a tool, and may try to look like something else: a result, another
turn, the end of the transcript, a verdict. Every field is quoted, so that a turn is exactly one line, and only the environment
says who acted. The marker is a hash of the lines: no text can hold the hash of a transcript that it stands in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from simia.prompt_quoting import quote
from simia.trajectory import Message, ToolCall, digest

LONGEST_FIELDS = (4_000, 1_000, 300, 100)  # characters; the first at which the transcript has room is taken


@dataclass(frozen=True, slots=True)
class Transcript:
    """The lines of an episode, and the marker that stands before and after them."""

    lines: list[str]
    marker: str


def write_transcript(messages: Sequence[Message], room: int) -> Transcript:
    """Quote every turn. Long fields are shortened until the lines take at most `room` characters in all."""
    for most in LONGEST_FIELDS:
        lines = quote_turns(messages, most)
        if sum(map(len, lines)) <= room:
            break
    return Transcript(lines, digest(lines)[:16])


def quote_turns(messages: Sequence[Message], most: int) -> list[str]:
    """One JSON line for each message. Calls are numbered through, and a result names the number of its call."""
    lines: list[str] = []
    numbers: dict[str, int] = {}
    count = 0
    for turn, message in enumerate(messages, start=1):
        row: dict[str, Any] = {"turn": turn, "by": message.role}
        if message.role == "tool":
            row["answers_call"] = numbers.get(message.call_id or "")
            row["error" if message.error else "result"] = shorten(parse_result(message.text), most)
        elif message.text or not message.calls:
            row["text"] = shorten(message.text, most)
        if message.calls:
            row["calls"] = []
        for call in message.calls:
            count += 1
            numbers[call.id] = count
            row["calls"].append({"call": count, **describe_call(call, most)})
        lines.append(quote(row))
    return lines


def describe_call(call: ToolCall, most: int) -> dict[str, Any]:
    if call.arguments is None:
        return {"name": shorten(call.name, most), "unreadable": shorten(call.raw or "", most)}
    return {"name": shorten(call.name, most), "arguments": shorten(call.arguments, most)}


def parse_result(text: str) -> Any:
    """The object or list that a result holds, which needs no second quotation; any other result as text."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, dict | list) else text


def shorten(value: Any, most: int) -> Any:
    """The value itself, or the beginning of its text when that is longer than `most` characters."""
    text = value if isinstance(value, str) else quote(value)
    return value if len(text) <= most else f"{text[:most]} … (shortened: {len(text) - most:,} more characters)"
