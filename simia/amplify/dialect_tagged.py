"""The tagged form of a reply: turns between `<user>`, `<assistant>` and `<tool>`, for endpoints that return text only.

Tags count at the start of a line (a closing one also at its end), so that nothing inside a turn that merely looks like
a role (`A: …`, `User: …`) can start one. A tag too many has two readings and is refused; a missing closing tag has one.
"""

from __future__ import annotations

import re
import textwrap

from simia.amplify.turns import ROLES, Reading, Turn, Unreadable, assistant_turn, result_text, trimmed

NAMES = "user|human|assistant|gpt|ai|agent|tool|function|observation|environment|tool_response|tool_result|system"
ATTRIBUTES = r"""(?:\s+[\w:-]+\s*=\s*(?:"[^"\n]*"|'[^'\n]*'|[^\s>"']+))*"""
TAG = re.compile(
    rf"^(?P<indent>[ \t]*)<(?P<open>{NAMES})(?P<attributes>{ATTRIBUTES})[ \t]*>|</(?P<close>{NAMES})[ \t]*>(?=[ \t]*$)",
    re.I | re.M,
)
ADJACENT = re.compile(rf"(</(?:{NAMES})[ \t]*>)[ \t]*(?=<(?:{NAMES})[\s>])", re.I)
ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*["']?([^"'>\s]+)""")
INNER = frozenset({"tool_response", "tool_result"})
INNER_BLOCK = re.compile(rf"<(tool_response|tool_result)({ATTRIBUTES})\s*>(.*?)(?:</\1\s*>|(?=<\1\b)|\Z)", re.S | re.I)
STRAY_CALL = re.compile(r"\s*<(tool_call|function_call)\b", re.I)


def read_tagged(text: str) -> Reading | None:
    """None if there are no such tags at all. Raises `Unreadable`."""
    if "<" not in text:
        return None
    if "</" in text:
        text = ADJACENT.sub(r"\1\n", text)
    reading = Reading()
    opened: re.Match[str] | None = None
    closed_at: int | None = None
    for tag in TAG.finditer(text):
        name = tag["open"] or tag["close"]
        if opened is not None and closed_at is None and name.lower() in INNER and holds_blocks(opened):
            continue
        if tag["open"]:
            if opened is not None and closed_at is None:
                reading.repairs["missing_close_tag"] = None
                add(opened, text[opened.end() : tag.start()], reading)
            elif closed_at is not None:
                between(text[closed_at : tag.start()], reading)
            opened, closed_at = tag, None
        elif opened is None or closed_at is not None or ROLES[name.lower()] != role(opened):
            raise Unreadable(f"</{name.lower()}> closes nothing: tags inside a turn, or a tag too many")
        else:
            add(opened, text[opened.end() : tag.start()], reading)
            closed_at = tag.end()
    if opened is None:
        return None
    if closed_at is None:
        reading.repairs["missing_close_tag"] = None
        add(opened, text[opened.end() :], reading)
    elif text[closed_at:].strip():
        if STRAY_CALL.match(text[closed_at:]):
            between(text[closed_at:], reading)
        else:
            reading.repairs["trailing_text"] = None
    return reading


def role(tag: re.Match[str]) -> str:
    return ROLES[tag["open"].lower()]


def holds_blocks(tag: re.Match[str]) -> bool:
    """`<tool_response>` inside a tool turn is part of it, not a turn."""
    return role(tag) == "tool" and tag["open"].lower() not in INNER


def between(text: str, reading: Reading) -> None:
    """Between two turns stand blank lines or rules; a call without its turn is the assistant's."""
    if STRAY_CALL.match(text):
        reading.turns.append(assistant_turn(text, reading))
        if reading.turns[-1].text:
            raise Unreadable("text between two turns")
    elif any(char.isalnum() for char in text):
        raise Unreadable(f"text between two turns: {text.strip()[:60]!r}")


def add(tag: re.Match[str], body: str, reading: Reading) -> None:
    if tag["indent"]:
        body = textwrap.dedent(body)
        reading.repairs["indented_tags"] = None
    kind = role(tag)
    if kind == "assistant":
        reading.turns.append(assistant_turn(body, reading))
    elif kind == "tool":
        reading.turns += tool_turns(tag["attributes"], body, reading)
    else:
        # A closing tag on the opening tag's own line: the space between is not the user's.
        text = trimmed(body) if "\n" in body else body.strip()
        reading.turns.append(Turn("system" if kind == "system" else "user", text))


def tool_turns(attributes: str, body: str, reading: Reading) -> list[Turn]:
    """One result, or several that each stand in a tag of their own."""
    blocks = list(INNER_BLOCK.finditer(body))
    if not blocks:
        return [one_result(attributes, body, reading)]
    if INNER_BLOCK.sub("", body).strip():
        raise Unreadable("text beside <tool_response>")
    return [one_result(block[2] or attributes, block[3], reading) for block in blocks]


def one_result(attributes: str, body: str, reading: Reading) -> Turn:
    given = {key.lower(): value for key, value in ATTRIBUTE.findall(attributes or "")}
    answers = given.get("tool_call_id") or given.get("call_id") or given.get("id")
    return result_text(body, reading, name=given.get("name"), answers=answers)
