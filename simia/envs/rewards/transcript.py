"""The transcript of an episode for a judge: numbered JSON lines between two lines with the same marker.

The text of a turn is untrusted: it may imitate a result, another turn, the end of the transcript or a verdict. So every field is quoted,
a turn is exactly one line, and the environment writes who acted. The marker is a hash of the lines, which no text within the transcript
can contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simia.prompt_quoting import quote
from simia.prompts import decode_result
from simia.trajectory import Message, ToolCall, digest

LONGEST_FIELDS = (4_000, 1_000, 300, 100)  # characters of a field; the first limit that fits is used


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
    """One JSON line for each message. Calls are numbered across all turns, and a result names the number of its call."""
    lines: list[str] = []
    numbers: dict[str, int] = {}
    count = 0
    for turn, message in enumerate(messages, start=1):
        row: dict[str, Any] = {"turn": turn, "by": message.role}
        if message.role == "tool":
            row["answers_call"] = numbers.get(message.call_id or "")
            row["error" if message.error else "result"] = shorten(decode_result(message.text), most)
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


def shorten(value: Any, most: int) -> Any:
    """The value itself, or the beginning of its text when that is longer than `most` characters."""
    text = value if isinstance(value, str) else quote(value)
    return value if len(text) <= most else f"{text[:most]} … (shortened: {len(text) - most:,} more characters)"
