"""`codegym`: calls between the marks of CodeGym's agent prompt (CodeGym B.4), one call a step.

    <|FunctionCallBegin|>[{"name": "look_up", "parameters": {"index": 2}}]<|FunctionCallEnd|>

The system turn lists the tools as Python functions (`simia.formats.function_listing`) and says how to call them. The paper does not
show the form of results: here they are user turns with `<tool_response>` tags, which every chat template writes in the same way.
Rows are chat messages with only role and text, for LLaMA-Factory and TRL.

These variants are read too: a missing end mark, one object instead of a list, `arguments` instead of `parameters`, a call without
either, marks inside strings. Any other text between the marks is an unreadable call: the environment answers it with an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from simia.formats import tagged_calls
from simia.formats.dialect import RowError, dump_json, take_carried
from simia.formats.function_listing import read_functions, write_functions
from simia.formats.hermes import CHAT, HermesContainer
from simia.formats.turn_dialect import find_roles
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall

BEGIN, END = "<|FunctionCallBegin|>", "<|FunctionCallEnd|>"
INTRO = "# Functions\n\n"
RULES = f"""

# How to call

Solve the task by calling these functions, step by step. Do not write code, and do not answer without calling.
- Make at most one call in a message, then wait for its result. Do not guess results.
- If a description leaves something open, try the function and see what it returns.
- Think briefly before a call. You have many calls, so you need not plan all of them at the start.

Write a call as a JSON list of one object, between these marks:
{BEGIN}[{{"name": "function_name", "parameters": {{"key": "value"}}}}]{END}"""
DECODER = json.JSONDecoder()
SPACE = re.compile(r"\s*")
CALL_FIELDS = ("name", "parameters", "arguments")


class CodeGymDialect(HermesContainer):
    """CodeGym's text in chat messages."""

    name = "codegym"

    def __init__(self) -> None:
        super().__init__(CHAT)
        self.mark = {}
        self.names["tool"] = "user"

    def sniff(self, row: Mapping[str, Any]) -> bool:
        found = find_roles(row, self.shape)
        if (
            found is None
            or not found <= self.shape.roles.keys()
            or any("tool_calls" in turn for turn in row["messages"])
        ):
            return False
        return tagged_calls.holds_marks(row) or not tagged_calls.holds_tags(row)

    def split_head(self, text: str) -> tuple[str | None, list[ToolSpec] | None]:
        return split_functions(text)

    def join_head(self, system: str | None, specs: list[ToolSpec]) -> str | None:
        return join_functions(system, specs)

    def read_text(self, text: str) -> tuple[str | None, list[ToolCall]]:
        return read_marked(text, python=True)

    def write_text(self, content: str | None, calls: list[ToolCall]) -> str | None:
        return write_marked(content, calls)


def join_functions(system: str | None, specs: Sequence[ToolSpec]) -> str | None:
    """Append the tools and the form of calls to the system text. Without tools, return it unchanged."""
    if not specs:
        return system
    section = f"{INTRO}{write_functions(specs)}{RULES}"
    return section if system is None else f"{system}\n\n{section}"


def split_functions(text: str) -> tuple[str | None, list[ToolSpec] | None]:
    """(system text, tools) of a system turn; tools is None when the text lists none."""
    if text.endswith(RULES) and INTRO in text:
        before, _, listed = text.removesuffix(RULES).rpartition(INTRO)
        if not before or before.endswith("\n\n"):
            specs = read_functions(listed)
            if specs is not None:
                return (before[:-2] if before else None), specs
    try:
        specs = read_functions(text)  # CodeGym's own system turn is the list alone
    except RowError:
        return text, None
    return (text, None) if specs is None else (None, specs)


def read_marked_message(text: str, ids: str = "call") -> Message:
    """A policy's turn as a message; its calls are numbered `{ids}_0`, `{ids}_1`, …; see `tagged_calls.read_message`."""
    return tagged_calls.read_message(text, ids, read=read_marked)


def read_marked(text: str, *, python: bool = False) -> tuple[str | None, list[ToolCall]]:
    """(content, calls) of assistant text. `python`: Python literals are read too, see `tagged_calls.read_arguments`."""
    start = text.find(BEGIN)
    if start < 0:
        return text, []
    before = text[:start]
    calls: list[ToolCall] = []
    after: list[str] = []
    while start >= 0:
        found, end = read_block(text, start + len(BEGIN), python=python)
        calls += found
        start = text.find(BEGIN, end)
        after.append(text[end : start if start >= 0 else len(text)].strip())
    content = before.removesuffix("\n") if before.strip() or before == "\n" else None
    after = [piece for piece in after if piece]
    return ("\n".join([content, *after] if content else after) if after else content), calls


def read_block(text: str, start: int, *, python: bool) -> tuple[list[ToolCall], int]:
    """Read (calls, end) of the block that begins at `start`, after a begin mark. In JSON, marks inside strings do not end the block."""
    at = skip_space(text, start)
    try:
        _, stop = DECODER.raw_decode(text, at)
        stop = skip_space(text, stop)
        closed = text.startswith(END, stop)
        if closed or stop == len(text) or text.find(END, stop) < 0:
            return read_calls(text[at:stop].rstrip(), python=python), stop + len(END) * closed
    except (ValueError, RecursionError):
        pass
    ends = [place for mark in (END, BEGIN) if (place := text.find(mark, start)) >= 0]
    stop = min(ends, default=len(text))
    closed = text.startswith(END, stop)
    return read_calls(text[start:stop].strip(), python=python), stop + len(END) * closed


def skip_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def read_calls(text: str, *, python: bool) -> list[ToolCall]:
    """Read the calls between two marks; at least one, which is an unreadable call if nothing else can be read."""
    return tagged_calls.read_calls(text, python=python, prepare=name_arguments)


def name_arguments(item: Any) -> Any:
    """Move a call's arguments to the key `arguments`; missing arguments become an empty object."""
    if not isinstance(item, dict) or "name" not in item or "arguments" in item:
        return item
    return {
        **{key: value for key, value in item.items() if key != "parameters"},
        "arguments": item.get("parameters", {}),
    }


def write_marked(content: str | None, calls: Sequence[ToolCall]) -> str | None:
    """Reverse `read_marked`; None for a turn without text and calls. Strings in calls are escaped so that they hold no end mark."""
    if not calls:
        return content
    listed = dump_json([write_call(call) for call in calls]).replace("<|", "<\\u007c")
    return "\n".join([*([] if content is None else [content]), f"{BEGIN}{listed}{END}"])


def write_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw or "" if call.arguments is None else call.arguments
    return {"name": call.name, "parameters": arguments, **take_carried(call.extra, CALL_FIELDS)}
