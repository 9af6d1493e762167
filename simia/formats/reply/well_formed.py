"""A fast reader for well-formed replies: those in exactly the JSON or tagged form that the prompt asks for. Most replies are.

It is faster than the dialects (`dialect_*.py`) and returns None at the first deviation, so that they read the reply instead.
For a reply that it accepts, the dialects would give the same messages (tests/formats/reply/test_well_formed.py).
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from simia.errors import Code
from simia.formats.reply.dialect_tagged import GOES_ON
from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.message_assembly import ReadTurn, make_tool_turn, trim_blank_lines
from simia.formats.reply.reply_json import refuse_repeated_keys, repair_quickly
from simia.json_values import holds_beyond_64_bits

CONTENT_KEYS = {"role", "content"}
ASSISTANT_KEYS = {"role", "content", "calls", "reasoning"}
CALL_KEYS = {"name", "arguments"}
TAGGED_TURN = re.compile(r"<(user|assistant|tool)>\n([^<]*+(?:<(?!/\1>)[^<]*+)*+)(?<=\n)</\1>(?:\n+|\Z)")
THOUGHT = re.compile(r"<think>([^<]*)</think>")


class NotWellFormed(Unreadable):
    """The reply deviates from the form asked for; the dialects may still read it."""


def read_well_formed(text: str) -> tuple[list[dict[str, Any]], list[str]] | None:
    """Return the rows of the messages and the names of the repairs; None if the reply is not well-formed."""
    try:
        if text.startswith("<user>\n"):
            messages, repairs = read_tagged_turns(text)
            return build_rows(messages), repairs
        if text.startswith('{"messages"') and "</think>" not in text and (found := repair_quickly(text)):
            value, repairs = found
            return (build_rows(value["messages"]), repairs) if len(value) == 1 else None
    except (Unreadable, orjson.JSONDecodeError):
        pass
    return None


def read_tagged_turns(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the messages of a tagged reply in the JSON form, results as turns, and the names of the repairs."""
    messages: list[dict[str, Any]] = []
    at = 0
    while found := TAGGED_TURN.match(text, at):
        role, body = found.groups()
        at = found.end()
        if role == "assistant":
            messages.append(read_tagged_assistant(body))
        elif "<" in body:
            raise NotWellFormed
        elif role == "user":
            messages.append({"role": "user", "content": trim_blank_lines(body)})
        else:
            messages.append({"role": "tool", "content": read_tagged_result(body)})
    rest = text[at:]
    if "<" in rest or GOES_ON.search(rest):
        raise NotWellFormed
    return messages, ["trailing_text"] if rest.strip() else []


def read_tagged_assistant(body: str) -> dict[str, Any]:
    if "<" not in body:
        return {"role": "assistant", "content": trim_blank_lines(body)}
    message: dict[str, Any] = {"role": "assistant"}
    if thought := THOUGHT.match(body):
        message["reasoning"] = thought[1].strip() or None
        body = body[thought.end() :]
    content, *calls = body.split("<tool_call>")
    message["content"] = trim_blank_lines(content)
    message["calls"] = []
    for each in calls:
        call, closed, rest = each.partition("</tool_call>")
        if not closed or "<" in call or rest.strip():
            raise NotWellFormed
        value = orjson.loads(call)
        if orjson.dumps(value) != call.encode():  # equal texts need no closer look
            refuse_repeated_keys(value, call)
        message["calls"].append(value)
    return message


def read_tagged_result(body: str) -> ReadTurn:
    if not body.startswith(("{", "[")):
        raise NotWellFormed
    value = orjson.loads(body)
    if holds_beyond_64_bits(value):
        raise NotWellFormed
    turn = make_tool_turn(value)
    if turn.text != body.rstrip("\n"):  # equal texts need no closer look
        refuse_repeated_keys(value, body)
    return turn


def build_rows(messages: Any) -> list[dict[str, Any]]:
    """Build the rows as they are stored: calls get their ids, and results, in order, those of the calls before them."""
    rows: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []  # calls without a result, the next one last
    number = 0
    for message in messages if type(messages) is list else []:
        if type(message) is not dict:
            raise NotWellFormed
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            if not waiting or message.keys() != CONTENT_KEYS or may_be_text_parts(content):
                raise NotWellFormed
            if holds_beyond_64_bits(content):
                raise NotWellFormed
            turn = content if type(content) is ReadTurn else make_tool_turn(content)
            call = waiting.pop()
            row = {"role": "tool", "content": turn.text, "call_id": call["id"], "name": call["name"]}
            rows.append(row | {"error": Code.TOOL_ERROR} if turn.failed else row)
        elif waiting:
            raise NotWellFormed
        elif role == "user":
            if type(content) is not str or len(message) != 2:
                raise NotWellFormed
            rows.append({"role": "user", "content": content})
        elif role == "assistant":
            row = build_assistant_row(message, number)
            calls = row.get("calls", [])
            if calls and "content" not in row and rows and rows[-1]["role"] == "assistant":
                raise NotWellFormed  # the dialects merge such turns
            rows.append(row)
            number += len(calls)
            waiting = calls[::-1]
        else:
            raise NotWellFormed
    if waiting or not rows:
        raise NotWellFormed
    return rows


def build_assistant_row(message: dict[str, Any], number: int) -> dict[str, Any]:
    """Build the row of an assistant's message; `number` is how many calls came before it."""
    content, reasoning, calls = message.get("content"), message.get("reasoning"), message.get("calls")
    if (
        not message.keys() <= ASSISTANT_KEYS
        or not (content is None or (type(content) is str and "<" not in content))
        or not (reasoning is None or (type(reasoning) is str and reasoning.strip()))
        or not (calls is None or type(calls) is list)
    ):
        raise NotWellFormed
    row: dict[str, Any] = {"role": "assistant"}
    if content:
        row["content"] = content
    if reasoning:
        row["reasoning"] = reasoning
    if calls:
        row["calls"] = [build_call(call, number + i) for i, call in enumerate(calls, 1)]
    return row


def build_call(call: Any, number: int) -> dict[str, Any]:
    if type(call) is not dict or call.keys() != CALL_KEYS:
        raise NotWellFormed
    name, arguments = call["name"], call["arguments"]
    if type(name) is not str or type(arguments) is not dict or not name or name != name.strip():
        raise NotWellFormed
    if holds_beyond_64_bits(arguments):
        raise NotWellFormed
    return {"id": f"call_{number}", "name": name, "arguments": arguments}


def may_be_text_parts(content: Any) -> bool:
    """Return whether this may be OpenAI's list of text parts, which is not a JSON result."""
    return type(content) is list and bool(content) and type(content[0]) is dict and "text" in content[0]
