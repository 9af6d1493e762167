"""The short way for replies that are written exactly as asked, which of a strong model nearly all are.

Reads a reply straight into messages if every turn has our form to the letter, and says None at the first doubt: the
dialects then read it. Never a second opinion: what this reads, they read the same (tests/formats/reply/test_canonical.py).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter

from simia.errors import Code
from simia.formats.reply.assemble import make_tool_turn, trim_blank_lines
from simia.formats.reply.dialect_tagged import GOES_ON
from simia.formats.reply.json_repair import EXACT, repair_quickly
from simia.trajectory import Message

KEYS = {"role", "content", "calls", "reasoning"}
CALL_KEYS = {"name", "arguments"}
MESSAGES = TypeAdapter(list[Message])  # one validation for all turns, at half the cost of one by one
ROLES = {"u": "user", "a": "assistant", "t": "tool"}
TAGS = {role: (f"<{role}>\n", f"\n</{role}>") for role in ROLES.values()}
CALL, CALL_END = "<tool_call>", "</tool_call>"
THOUGHT = re.compile(r"\A<think>([^<]*)</think>\n?")


class CanonicalReply(NamedTuple):
    """A reply in our form: its messages, the same as they are stored, and what was mended."""

    messages: list[Message]
    rows: list[dict[str, Any]]
    repairs: list[str]


def read_canonical(text: str) -> CanonicalReply | None:
    """Read a reply that is exactly in our JSON or tagged form; None otherwise."""
    turns: MessageRows | None = None
    repairs: list[str] = []
    if text.startswith('{"messages"') and "</think>" not in text:
        if found := repair_quickly(text):
            value, repairs = found
            turns = read_json_turns(value)
    elif text.startswith("<user>\n"):
        turns = read_tagged_turns(text)
    if turns is None or turns.waiting or not turns.rows:
        return None
    return CanonicalReply(MESSAGES.validate_python(turns.rows), turns.rows, repairs + turns.repairs)


class MessageRows:
    """Messages in the making: calls get their ids, results their calls, in the order of both."""

    __slots__ = ("number", "repairs", "rows", "waiting")

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.waiting: list[dict[str, Any]] = []
        self.repairs: list[str] = []
        self.number = 0

    def call(self, value: Any) -> dict[str, Any] | None:
        if type(value) is not dict or value.keys() != CALL_KEYS:
            return None
        name, arguments = value["name"], value["arguments"]
        if type(name) is not str or type(arguments) is not dict or not name or name != name.strip():
            return None
        for given in arguments.values():
            if type(given) is float and abs(given) >= EXACT:
                return None
        self.number += 1
        return {"id": f"call_{self.number}", "name": name, "arguments": arguments}

    def user(self, text: str) -> bool:
        self.rows.append({"role": "user", "content": text})
        return not self.waiting

    def assistant(self, text: str | None, reasoning: str | None, calls: list[dict[str, Any]]) -> bool:
        if self.waiting or (calls and not text and self.rows and self.rows[-1]["role"] == "assistant"):
            return False  # the dialects merge such turns
        row: dict[str, Any] = {"role": "assistant"}
        if text is not None:
            row["content"] = text
        if reasoning is not None:
            row["reasoning"] = reasoning
        if calls:
            row["calls"] = calls
        self.rows.append(row)
        self.waiting = calls[::-1]
        return True

    def result(self, content: Any) -> bool:
        if not self.waiting:
            return False
        call, turn = self.waiting.pop(), make_tool_turn(content)
        row = {"role": "tool", "content": turn.text, "call_id": call["id"], "name": call["name"]}
        self.rows.append(row | {"error": Code.TOOL_ERROR} if turn.failed else row)
        return True


def read_json_turns(value: Any) -> MessageRows | None:
    if type(value) is not dict or value.keys() != {"messages"} or type(value["messages"]) is not list:
        return None
    turns = MessageRows()
    for row in value["messages"]:
        if type(row) is not dict or not row.keys() <= KEYS:
            return None
        role, content, given = row.get("role"), row.get("content"), row.get("calls")
        if role == "assistant":
            calls = []
            if given is not None:
                if type(given) is not list:
                    return None
                for each in given:
                    if (call := turns.call(each)) is None:
                        return None
                    calls.append(call)
            reasoning = row.get("reasoning")
            plain = content is None or (type(content) is str and "<" not in content)
            if not plain or not (reasoning is None or (type(reasoning) is str and reasoning.strip())):
                return None
            if not turns.assistant(content or None, reasoning, calls):
                return None
        elif role == "user":
            if type(content) is not str or len(row) != 2 or not turns.user(content):
                return None
        elif (
            role != "tool"
            or len(row) != 2
            or "content" not in row
            or may_be_text_parts(content)
            or not turns.result(content)
        ):
            return None
    return turns


def may_be_text_parts(content: Any) -> bool:
    """Return whether this may be OpenAI's list of text parts, which is not a JSON result."""
    return type(content) is list and bool(content) and type(content[0]) is dict and "text" in content[0]


def read_tagged_turns(text: str) -> MessageRows | None:
    turns = MessageRows()
    at, end = 0, len(text)
    while at < end:
        role = ROLES.get(text[at + 1 : at + 2], "user")
        opening, closing = TAGS[role]
        start = at + len(opening)
        stop = text.find(closing, start - 1)  # the line break after the opening tag may be that before the closing one
        if stop < 0 or not text.startswith(opening, at):
            if not turns.rows or "<" in text[at:] or GOES_ON.search(text, at):
                return None
            turns.repairs.append("trailing_text")  # a remark after the last turn
            return turns
        body = text[start:stop] if stop > start else ""
        at = stop + len(closing)
        if at < end and text[at] != "\n":
            return None
        while at < end and text[at] == "\n":
            at += 1
        if role == "assistant":
            if not add_assistant(body, turns):
                return None
        elif "<" in body or not (turns.user(trim_blank_lines(body)) if role == "user" else add_result(body, turns)):
            return None
    return turns


def add_assistant(body: str, turns: MessageRows) -> bool:
    if "<" not in body:
        return turns.assistant(trim_blank_lines(body) or None, None, [])
    reasoning = None
    if thought := THOUGHT.match(body):
        reasoning, body = thought[1].strip() or None, body[thought.end() :]
    texts, rest = [], []
    for line in body.split("\n"):
        if line.startswith(CALL) and line.endswith(CALL_END):
            texts.append(line[len(CALL) : -len(CALL_END)])
        else:
            rest.append(line)
    said = trim_blank_lines("\n".join(rest))
    if "<" in said or (texts and "\n" in said):
        return False
    calls = []
    for text in texts:
        try:
            call = turns.call(orjson.loads(text))
        except orjson.JSONDecodeError:
            return False
        if call is None:
            return False
        calls.append(call)
    return turns.assistant(said or None, reasoning, calls)


def add_result(body: str, turns: MessageRows) -> bool:
    if not body.startswith(("{", "[")):
        return False
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return turns.result(value)
