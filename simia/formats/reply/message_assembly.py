"""Convert the turns that the dialects read to messages: ids, pairing of results, merging of split turns.

The dialects (`dialect_*.py`) find the turns; only this module decides which result answers which call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from simia.errors import Code, Issue
from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.reply_json import ReadCall, RepairError, load_json, read_bare_calls
from simia.trajectory import Role, write_compact_json

ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "ai", "agent", "model"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "environment", "tool_response", "tool_result"), "tool"),
    **dict.fromkeys(("function_response", "function_result"), "tool"),
    **dict.fromkeys(("system", "developer"), "system"),
}
CALL_ROLES = frozenset({"function_call", "tool_call"})
# A tool may print Python: a result that is not JSON stays text.
NOT_A_RESULT = {"trailing_text", "leading_text", "json_repair", "python_literal", "single_quotes"}
THOUGHT = re.compile(r"<(think|thinking|reasoning)>(.*?)</\1>", re.S | re.I)
OPEN_THOUGHT = re.compile(r"<(?:think|thinking|reasoning)>(.*?)(?=<tool_call\b)", re.S | re.I)
ANY_THOUGHT = re.compile(r"<(?:think|thinking|reasoning)>", re.I)
CALL = re.compile(r"<(tool_call|function_call)\b([^<>]*)>(.*?)(</\1\s*>|(?=<\1\b)|\Z)", re.S | re.I)
NAME = re.compile(r"""\bname\s*=\s*["']?([\w.-]+)""")


@dataclass(slots=True)
class ReadTurn:
    """One turn before pairing. `name` and `answers`: tool name and id of the call, as a result gives them."""

    role: Role
    text: str | None = None
    reasoning: str | None = None
    calls: list[ReadCall] = field(default_factory=list)
    name: str | None = None
    answers: str | None = None
    failed: bool = False


@dataclass(slots=True)
class Reading:
    """The turns that were read so far, and the names of the repairs (an ordered set)."""

    turns: list[ReadTurn] = field(default_factory=list)
    repairs: dict[str, None] = field(default_factory=dict)


def read_assistant_turn(body: str, reading: Reading) -> ReadTurn:
    """Split an assistant's text into text, `<think>` and `<tool_call>`."""
    if "<" not in body:
        return ReadTurn("assistant", trim_blank_lines(body) or None)
    thoughts: list[str] = []

    def keep(found: re.Match[str]) -> str:
        thought = found[found.lastindex or 0].strip()
        if ANY_THOUGHT.search(thought):
            raise Unreadable("a <think> within a <think>")
        thoughts.append(thought)
        return ""

    if ANY_THOUGHT.search(body):
        body = THOUGHT.sub(keep, body)
        if ANY_THOUGHT.search(body):
            if (unclosed := OPEN_THOUGHT.search(body)) and "\n" in unclosed[1].strip():
                raise Unreadable("a <think> that is not closed: where it ends cannot be told")
            body = OPEN_THOUGHT.sub(keep, body)
            reading.repairs["missing_close_tag"] = None
            if ANY_THOUGHT.search(body):
                raise Unreadable("a <think> that is never closed")
    turn = ReadTurn("assistant", reasoning="\n".join(t for t in thoughts if t) or None)
    pieces, at = [], 0
    for found in CALL.finditer(body):
        pieces.append(body[at : found.start()])
        at = found.end()
        turn.calls += read_tagged_calls(found, reading)
    pieces.append(body[at:])
    turn.text = "\n".join(piece for piece in map(trim_blank_lines, pieces) if piece) or None
    return turn


def read_tagged_calls(found: re.Match[str], reading: Reading) -> list[ReadCall]:
    name = NAME.search(found[2]) if found[2] else None
    try:
        read, repairs = read_bare_calls(found[3], name[1] if name else None)
    except RepairError as error:
        raise Unreadable(f"a call cannot be read: {error}") from None
    if not found[4]:
        if "trailing_text" in repairs:
            raise Unreadable("text after a call whose tag is not closed")
        reading.repairs["missing_close_tag"] = None
    reading.repairs.update(dict.fromkeys(repairs))
    return read


def trim_blank_lines(text: str) -> str:
    """Remove blank lines around a text; indentation and inner blank lines stay."""
    text = text.strip("\n")
    if not text or not (text[0].isspace() or text[-1].isspace()):
        return text
    lines = text.split("\n")
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    return "\n".join(lines[first:last])


def make_tool_turn(content: Any, *, name: str | None = None, answers: str | None = None) -> ReadTurn:
    """Make a result: a JSON value becomes compact JSON text, other text stays unchanged."""
    if not isinstance(content, str):
        return ReadTurn("tool", write_compact_json(content), name=name, answers=answers, failed=is_error(content))
    return ReadTurn("tool", content, name=name, answers=answers, failed=content.startswith(('{"error":', "Error:")))


def read_result_turn(body: str, reading: Reading, *, name: str | None = None, answers: str | None = None) -> ReadTurn:
    """Read a result from a text form: JSON if it is an object or a list, else text."""
    body = trim_blank_lines(body)
    if body.lstrip().startswith(("{", "[", "```")):
        fenced = body.lstrip().startswith("```")
        try:
            value, repairs = load_json(body, exact=not fenced, big=True)
        except RepairError:
            return make_tool_turn(body, name=name, answers=answers)
        if isinstance(value, dict | list) and not NOT_A_RESULT & set(repairs):
            reading.repairs.update(dict.fromkeys(repairs))
            return make_tool_turn(value, name=name, answers=answers)
    return make_tool_turn(body, name=name, answers=answers)


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get("error"))


def assemble_messages(reading: Reading) -> tuple[list[dict[str, Any]], list[Issue]]:
    """Build the rows of messages, with call ids `call_1`, `call_2`, …; a result gets the id of the call that it answers, if any."""
    rows: list[dict[str, Any]] = []
    issues: list[Issue] = []
    number = 0
    given: dict[str, str] = {}
    for role, turns in groupby(reading.turns, key=lambda turn: turn.role):
        if role == "tool":
            asked = rows[-1].get("calls", []) if rows else []
            rows += pair_results(list(turns), asked, given, reading)
            continue
        for turn in turns:
            if role == "system" and not rows:
                reading.repairs["dropped_system_turn"] = None
                continue
            calls = []
            for read in turn.calls:
                number += 1
                calls.append(make_row(id=f"call_{number}", name=read.name, arguments=read.arguments, raw=read.raw))
                if read.id:
                    given[read.id] = f"call_{number}"
            if calls and not turn.text and rows and rows[-1]["role"] == "assistant":
                # One turn written as two (text, then its calls), or parallel calls written one by one.
                before = rows[-1]
                before["calls"] = before.get("calls", []) + calls
                if thoughts := [thought for thought in (before.get("reasoning"), turn.reasoning) if thought]:
                    before["reasoning"] = "\n".join(thoughts)
                reading.repairs["merged_turns"] = None
            else:
                rows.append(make_row(role=role, content=turn.text, reasoning=turn.reasoning, calls=calls or None))
    for i, row in enumerate(rows):
        for j, call in enumerate(row.get("calls", [])):
            if "raw" in call:
                where = f"messages[{i}].calls[{j}]"
                issues.append(Issue(code=Code.UNPARSABLE_ARGUMENTS, where=where, detail=call["raw"][:120]))
    return rows, issues


def make_row(**fields: Any) -> dict[str, Any]:
    """Make a row as it is stored: fields without a value are left out."""
    return {name: value for name, value in fields.items() if value is not None}


def pair_results(
    turns: list[ReadTurn], asked: list[dict[str, Any]], given: dict[str, str], reading: Reading
) -> list[dict[str, Any]]:
    """Pair results, in the order written, with calls: by id or name if given, else with the next open call."""
    if len(turns) == 1 and len(asked) > 1:
        turns = split_results(turns[0], len(asked), reading)
    waiting = {call["id"]: call["name"] for call in asked}
    named = bool(waiting.keys() & set(given.values()))
    rows = []
    for turn in turns:
        call_id = None
        if turn.answers is not None and (turn.answers in given or named):
            call_id = given.get(turn.answers)  # an unknown id answers no call
        elif turn.name is not None:
            call_id = next((key for key, name in waiting.items() if name == turn.name), None)
        else:
            call_id = next(iter(waiting), None)
        name = waiting.pop(call_id, None) if call_id else None
        rows.append(
            make_row(
                role="tool",
                content=turn.text,
                call_id=None if name is None else call_id,
                name=turn.name if name is None else name,
                error=Code.TOOL_ERROR if turn.failed else None,
            )
        )
    return rows


def split_results(turn: ReadTurn, count: int, reading: Reading) -> list[ReadTurn]:
    """Split the results of parallel calls that were written as one JSON list."""
    text = turn.text or ""
    if not text.lstrip().startswith("["):
        return [turn]
    try:
        value, _ = load_json(text, exact=True, big=True)
    except RepairError:
        return [turn]
    if not isinstance(value, list) or len(value) != count:
        return [turn]
    reading.repairs["parted_results"] = None
    return [make_tool_turn(each) for each in value]
