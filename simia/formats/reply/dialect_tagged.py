"""The tagged form of a reply: turns between `<user>`, `<assistant>` and `<tool>`, for endpoints that return text only.

Tags count only at the start of a line (a closing tag also at its end), and text that looks like a role (`A: …`, `User: …`) does
not start a turn. A reply with an extra tag is ambiguous and is refused; a missing closing tag is not ambiguous and is repaired.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.message_assembly import (
    ROLES,
    Reading,
    ReadTurn,
    read_assistant_turn,
    read_result_turn,
    trim_blank_lines,
)
from simia.trajectory import Role

NAMES = "user|human|assistant|gpt|ai|agent|tool|function|observation|environment|tool_response|tool_result|system"
ATTRIBUTES = r"""(?:\s+[\w:-]+\s*=\s*(?:"[^"\n]*"|'[^'\n]*'|[^\s>"']+))*"""
# Begins with a literal `<`, which makes the search fast; its place on the line is checked later.
TAG = re.compile(rf"<(/?)({NAMES})({ATTRIBUTES})[ \t]*>", re.I)
LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
ADJACENT = re.compile(rf"(</(?:{NAMES})[ \t]*>)[ \t]*(?=<(?:{NAMES})[\s>])", re.I)
ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*["']?([^"'>\s]+)""")
INNER = frozenset({"tool_response", "tool_result"})
INNER_BLOCK = re.compile(rf"<(tool_response|tool_result)({ATTRIBUTES})\s*>(.*?)(?:</\1\s*>|(?=<\1\b)|\Z)", re.S | re.I)
GOES_ON = re.compile(r'"(?:messages|role|conversations)"\s*:')
LAST_TAG = re.compile(r"(?:^|\n)[ \t]*</([a-z_]+)(>?)\s*\Z", re.I)
STRAY_CALL = re.compile(r"\s*<(tool_call|function_call)\b", re.I)


class Tag(NamedTuple):
    """A turn's tag on its line. `indent`: the blanks before an opening tag."""

    name: str
    role: Role
    closing: bool
    attributes: str
    indent: str
    start: int
    end: int


def iterate_tags(text: str) -> Iterator[Tag]:
    """Yield opening tags at the start of a line, and closing ones at the start or the end of one."""
    for found in TAG.finditer(text):
        line = text.rfind("\n", 0, found.start()) + 1
        indent = text[line : found.start()]
        closing = bool(found[1])
        if LINE_END.match(text, found.end()) if closing else not indent.strip(" \t"):
            name = found[2].lower()
            start = found.start() if closing else line
            yield Tag(name, ROLES[name], closing, found[3], indent, start, found.end())


def read_tagged_reply(text: str) -> Reading | None:
    """Read turns between tags; None if there are no tags. Raises `Unreadable`."""
    if "<" not in text:
        return None
    text = ADJACENT.sub(r"\1\n", text)
    reading = Reading()
    opened: Tag | None = None
    closed_at: int | None = None
    inner = 0
    for tag in iterate_tags(text):
        # `<tool_response>` inside a tool turn is part of it, not a turn.
        if opened and closed_at is None and tag.name in INNER and opened.role == "tool" and opened.name not in INNER:
            inner += -1 if tag.closing else 1
            if inner >= 0:
                continue  # else no inner tag is open, so this tag closes the turn itself
        inner = 0
        if not tag.closing:
            if opened and closed_at is None:
                reading.repairs["missing_close_tag"] = None
                add_turn(opened, text[opened.end : tag.start], reading)
            elif closed_at is not None:
                read_between_turns(text[closed_at : tag.start], reading)
            opened, closed_at = tag, None
        elif opened is None or closed_at is not None or tag.role != opened.role:
            raise Unreadable(f"</{tag.name}> closes nothing: tags inside a turn, or a tag too many")
        else:
            add_turn(opened, text[opened.end : tag.start], reading)
            closed_at = tag.end
    if opened is None:
        return None
    if closed_at is None:
        if opened.role == "tool":  # no conversation ends with a result, so more than a tag is missing
            raise Unreadable("the text is cut off inside a result")
        reading.repairs["missing_close_tag"] = None
        add_turn(opened, text[opened.end :], reading)
    elif STRAY_CALL.match(text[closed_at:]):
        read_between_turns(text[closed_at:], reading)
    elif rest := text[closed_at:].strip():
        if GOES_ON.search(rest):
            raise Unreadable("after the last turn there is more of a conversation")
        reading.repairs["trailing_text"] = None
    return reading


def read_between_turns(text: str, reading: Reading) -> None:
    """Check the text between two turns: blank lines and rules are ignored, a call without a turn is the assistant's."""
    if STRAY_CALL.match(text):
        reading.turns.append(read_assistant_turn(text, reading))
        if reading.turns[-1].text:
            raise Unreadable("text between two turns")
    elif any(char.isalnum() for char in text):
        raise Unreadable(f"text between two turns: {text.strip()[:60]!r}")


def add_turn(tag: Tag, body: str, reading: Reading) -> None:
    body = strip_misspelt_end(tag, body, reading)
    if tag.indent:
        body = textwrap.dedent(body)
        reading.repairs["indented_tags"] = None
    if tag.role == "assistant":
        reading.turns.append(read_assistant_turn(body, reading))
    elif tag.role == "tool":
        reading.turns += read_tool_turns(tag.attributes, body, reading)
    else:
        # A closing tag on the opening tag's own line: the space between is not the user's.
        text = trim_blank_lines(body) if "\n" in body else body.strip()
        reading.turns.append(ReadTurn(tag.role, text))


def strip_misspelt_end(tag: Tag, body: str, reading: Reading) -> str:
    """Remove a closing tag that is misspelt (`</asistant>`) or broken off (`</assis`)."""
    found = LAST_TAG.search(body)
    if found is None or f"<{found[1]}" in body[: found.start()]:
        return body
    name = found[1].lower()
    if tag.name.startswith(name) or (found[2] and difflib.get_close_matches(name, (tag.name, tag.role), 1, 0.75)):
        reading.repairs["missing_close_tag"] = None
        return body[: found.start()]
    return body


def read_tool_turns(attributes: str, body: str, reading: Reading) -> list[ReadTurn]:
    """Read one result, or several in a tag each."""
    blocks = list(INNER_BLOCK.finditer(body))
    if not blocks:
        return [read_single_result(attributes, body, reading)]
    if INNER_BLOCK.sub("", body).strip():
        raise Unreadable("text beside <tool_response>")
    return [read_single_result(block[2] or attributes, block[3], reading) for block in blocks]


def read_single_result(attributes: str, body: str, reading: Reading) -> ReadTurn:
    given = {key.lower(): value for key, value in ATTRIBUTE.findall(attributes or "")}
    answers = given.get("tool_call_id") or given.get("call_id") or given.get("id")
    return read_result_turn(body, reading, name=given.get("name"), answers=answers)
