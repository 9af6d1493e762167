"""Read replies in JSON: `{"messages": […]}`, the requested form, and other forms that models write.

Also read: a bare list, one message a line, OpenAI's `tool_calls` nesting, ShareGPT's `conversations` with from/value.
"""

from __future__ import annotations

from typing import Any

from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.message_assembly import (
    CALL_ROLES,
    ROLES,
    Reading,
    ReadTurn,
    make_tool_turn,
    read_assistant_turn,
)
from simia.formats.reply.reply_json import ReadCall, load_json_values, read_call, read_call_text

LISTS = ("messages", "conversations", "conversation", "trajectory", "turns", "dialogue")
CONTENT = ("content", "value", "text")
RESULT = (*CONTENT, "result", "output", "observation")
CALLS = ("calls", "tool_calls", "call", "tool_call", "function_call")
REASONING = ("reasoning", "reasoning_content", "think", "thinking", "thought")


class UnknownRole(Unreadable):
    """A message has an unknown role."""


def read_json_reply(text: str) -> Reading:
    """Read a reply in JSON. Raises `Unreadable`."""
    found, repairs = load_json_values(text, big=True)
    reading = Reading(repairs=dict.fromkeys(repairs))
    rows = find_messages(found[0]) if len(found) == 1 else found
    if rows is None or (len(found) > 1 and not all(isinstance(row, dict) and read_role(row) for row in rows)):
        raise Unreadable("the JSON holds no list of messages" if len(found) == 1 else f"{len(found)} JSON values")
    for at, row in enumerate(rows):
        try:
            reading.turns.append(read_json_message(row, reading))
        except UnknownRole as error:
            raise UnknownRole(f"messages[{at}]: {error}") from None
        except Unreadable as error:
            raise Unreadable(f"messages[{at}]: {error}") from None
    return reading


def find_messages(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    if sum(holds_turns(inner) for inner in value.values()) > 1:
        raise Unreadable("two lists of messages in one reply")
    for key in LISTS:
        inner = value.get(key)
        if isinstance(inner, list):
            return inner
        if isinstance(inner, dict):
            return find_messages(inner)
    return None


def holds_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) and read_role(row) for row in value)


def read_role(row: dict[str, Any]) -> str:
    role = row.get("role", row.get("from"))
    return role.strip().lower() if isinstance(role, str) else ""


def read_json_message(row: Any, reading: Reading) -> ReadTurn:
    if not isinstance(row, dict):
        raise Unreadable("not an object")
    name = read_role(row)
    if name in CALL_ROLES:
        return ReadTurn(
            "assistant",
            calls=read_message_calls(get_first(row, CONTENT + CALLS), reading),
            reasoning=read_reasoning(row),
        )
    role = ROLES.get(name)
    if role is None:
        raise UnknownRole(f"role {name[:40]!r}")
    if role == "tool":
        given = row.get("tool_call_id", row.get("call_id", row.get("id")))
        called = row.get("name", row.get("tool"))
        return make_tool_turn(
            read_result_content(row),
            name=called if isinstance(called, str) and called else None,
            answers=given if isinstance(given, str) else None,
        )
    text = join_text_parts(get_first(row, CONTENT))
    if role != "assistant":
        return ReadTurn(role, text)
    if text and "<" in text and ("<think" in text or "<tool_call>" in text or "<reasoning>" in text):
        turn = read_assistant_turn(text, reading)
    else:
        turn = ReadTurn("assistant", text or None)
    turn.reasoning = turn.reasoning or read_reasoning(row)
    turn.calls += read_message_calls(get_first(row, CALLS), reading)
    return turn


def get_first(row: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if (value := row.get(key)) is not None:
            return value
    return None


def read_reasoning(row: dict[str, Any]) -> str | None:
    found = get_first(row, REASONING)
    return found if isinstance(found, str) and found.strip() else None


def join_text_parts(content: Any) -> str | None:
    """Return text, also from OpenAI's list of text parts."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "".join(part["text"] for part in content)
    raise Unreadable(f"content is {type(content).__name__}, not text")


def read_result_content(row: dict[str, Any]) -> Any:
    key = next((key for key in RESULT if key in row), None)
    content = row[key] if key else ""
    if isinstance(content, list) and content and all(is_text_part(part) for part in content):
        return "".join(part["text"] for part in content)
    return content


def is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


def read_message_calls(given: Any, reading: Reading) -> list[ReadCall]:
    if given is None or given == "":
        return []
    if isinstance(given, str):
        read, repairs = read_call_text(given)
        reading.repairs.update(dict.fromkeys(repairs))
        return read
    found = []
    for value in given if isinstance(given, list) else [given]:
        call, repairs = read_call(value)
        reading.repairs.update(dict.fromkeys(repairs))
        found.append(call)
    return found
