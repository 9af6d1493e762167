"""The short way for replies that are written exactly as asked, which of a strong model nearly all are.

Reads a reply straight into messages if every turn has our form to the letter, and says None at the first doubt: the
dialects then read it. Never a second opinion: what this reads, they read the same (tests/amplify/test_canonical.py).
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from simia.amplify.repair import EXACT
from simia.amplify.turns import tool_turn, trimmed
from simia.errors import Code
from simia.trajectory import Message, ToolCall

KEYS = {"role", "content", "calls", "reasoning"}
CALL_KEYS = {"name", "arguments"}
TAG = re.compile(r"^<(/?)(user|assistant|tool)>$", re.M)
CALL = re.compile(r"^<tool_call>(\{[^\n]*\})</tool_call>$", re.M)
THOUGHT = re.compile(r"\A<think>([^<]*)</think>\n?")


def read_canonical(text: str) -> list[Message] | None:
    """The messages of a reply in our JSON or tagged form; None if anything about it is not."""
    if text.startswith('{"messages"'):
        return from_json(text)
    if text.startswith("<user>\n"):
        return from_tags(text)
    return None


class Turns:
    """Messages in the making: calls get their ids, results their calls, in the order of both."""

    __slots__ = ("messages", "number", "waiting")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.waiting: list[ToolCall] = []
        self.number = 0

    def call(self, value: Any) -> ToolCall | None:
        if type(value) is not dict or value.keys() != CALL_KEYS:
            return None
        name, arguments = value["name"], value["arguments"]
        if type(name) is not str or type(arguments) is not dict or not name or name != name.strip():
            return None
        if any(type(given) is float and abs(given) >= EXACT for given in arguments.values()):
            return None
        self.number += 1
        return ToolCall(id=f"call_{self.number}", name=name, arguments=arguments)

    def assistant(self, text: str | None, reasoning: str | None, calls: list[ToolCall]) -> bool:
        if self.waiting or (calls and not text and self.messages and self.messages[-1].role == "assistant"):
            return False  # the dialects merge such turns
        self.messages.append(Message(role="assistant", content=text, reasoning=reasoning, calls=calls))
        self.waiting = calls[::-1]
        return True

    def result(self, content: Any) -> bool:
        if not self.waiting:
            return False
        call, turn = self.waiting.pop(), tool_turn(content)
        error = Code.TOOL_ERROR if turn.failed else None
        self.messages.append(Message(role="tool", content=turn.text, call_id=call.id, name=call.name, error=error))
        return True


def from_json(text: str) -> list[Message] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if value.keys() != {"messages"} or type(value["messages"]) is not list:
        return None
    turns = Turns()
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
            if turns.waiting or type(content) is not str or len(row) != 2:
                return None
            turns.messages.append(Message(role="user", content=content))
        elif role != "tool" or len(row) != 2 or "content" not in row or is_parts(content) or not turns.result(content):
            return None
    return turns.messages if not turns.waiting else None


def is_parts(content: Any) -> bool:
    """Maybe OpenAI's list of text parts, which is no JSON result."""
    return type(content) is list and bool(content) and type(content[0]) is dict and "text" in content[0]


def from_tags(text: str) -> list[Message] | None:
    turns = Turns()
    marks = list(TAG.finditer(text))
    if len(marks) % 2 or text[marks[-1].end() :].strip():
        return None
    at = 0
    for opening, closing in zip(marks[::2], marks[1::2], strict=True):
        role = opening[2]
        if opening[1] or not closing[1] or closing[2] != role or text[at : opening.start()].strip("\n"):
            return None
        at = closing.end()
        body = text[opening.end() + 1 : closing.start() - 1]
        if role == "user":
            if "<" in body or turns.waiting:
                return None
            turns.messages.append(Message(role="user", content=trimmed(body)))
        elif role == "assistant":
            if not from_assistant(body, turns):
                return None
        elif not from_tool(body, turns):
            return None
    return turns.messages if not turns.waiting else None


def from_assistant(body: str, turns: Turns) -> bool:
    reasoning, calls = None, []
    if "<" in body:
        if thought := THOUGHT.match(body):
            reasoning, body = thought[1].strip() or None, body[thought.end() :]
        texts = CALL.findall(body)
        if texts:
            body = CALL.sub("", body)
        if "<" in body or ("\n" in trimmed(body) and texts):
            return False
        for text in texts:
            try:
                call = turns.call(orjson.loads(text))
            except orjson.JSONDecodeError:
                return False
            if call is None:
                return False
            calls.append(call)
    return turns.assistant(trimmed(body) or None, reasoning, calls)


def from_tool(body: str, turns: Turns) -> bool:
    if not body.startswith(("{", "[")) or "<" in body:
        return False
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return turns.result(value)
