"""What never reaches a pack's code: calls of no such tool, arguments that are not JSON or break the schema. And errors in words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

import orjson

from simia.errors import Code
from simia.sandbox.inside.frames import MOST_LEVELS, nests_deeper
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall
from simia.worlds.world import ToolResult

MOST_ARGUMENTS = 1 << 20


def refused(call: ToolCall, specs: Mapping[str, ToolSpec]) -> ToolResult | None:
    """What never reaches the pack's code: no such tool, arguments that are not JSON or break the schema."""
    spec = specs.get(call.name)
    if spec is None:
        near = difflib.get_close_matches(call.name, specs, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(specs))}"
        return failure(call, Code.UNKNOWN_TOOL, f"there is no tool {call.name[:80]!r}; {hint}")
    if call.arguments is None and call.raw is not None:
        return failure(call, Code.UNPARSABLE_ARGUMENTS, "the arguments are not a JSON object")
    arguments = call.arguments or {}
    wrong = unfit(arguments)
    if wrong:
        return failure(call, Code.BAD_ARGUMENTS, wrong)
    errors = spec.argument_errors(arguments)
    if errors:
        words = "; ".join(f"{where}: {what}" if where else what for where, what in errors[:3])
        takes = ", ".join(spec.parameters.get("properties", {})) or "nothing"
        return failure(
            call, Code.BAD_ARGUMENTS, f"wrong arguments for {call.name}: {words[:600]}; it takes: {takes[:300]}"
        )
    return None


def unfit(arguments: dict[str, Any]) -> str | None:
    """Why arguments cannot be sent at all: NaN, half a Unicode character, absurd size or depth."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError as error:
        return (
            "the arguments hold half a Unicode character"
            if isinstance(error, UnicodeError)
            else "the arguments hold NaN or Infinity"
        )
    except RecursionError:
        return "the arguments nest too deep"
    except TypeError:
        return "the arguments are not JSON"
    if text.count(b"[") + text.count(b"{") > MOST_LEVELS and nests_deeper(arguments, MOST_LEVELS):
        return f"the arguments nest deeper than {MOST_LEVELS} levels"
    return (
        f"the arguments are {len(text):,} bytes, more than {MOST_ARGUMENTS:,}" if len(text) > MOST_ARGUMENTS else None
    )


def recordable(message: Message) -> Message:
    """A message of the agent's as a record can hold it: half a Unicode character is replaced, and arguments that cannot be written
    as JSON of a bounded depth are kept as text, so that the call is answered as one that cannot be read."""
    calls = [
        as_text(call) if call.arguments is not None and cannot_be_written(call.arguments) else call
        for call in message.calls
    ]
    content = message.content
    if isinstance(content, str):
        content = content.encode(errors="replace").decode()
    if content == message.content and all(a is b for a, b in zip(calls, message.calls, strict=True)):
        return message
    return message.model_copy(update={"calls": calls, "content": content})


def cannot_be_written(arguments: dict[str, Any]) -> bool:
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        return True
    return nests_deeper(arguments, MOST_LEVELS)


def as_text(call: ToolCall) -> ToolCall:
    try:
        raw = json.dumps(call.arguments)
    except (ValueError, TypeError, RecursionError):
        raw = "(arguments that cannot be written)"
    return call.model_copy(update={"arguments": None, "raw": raw})


def failure(call: ToolCall, code: Code, words: str, detail: str = "") -> ToolResult:
    """An error as an observation: what is wrong in words, in the form of every other result."""
    data = {"error": words.encode(errors="replace").decode()}
    return ToolResult(call.id, orjson.dumps(data).decode(), data=data, error=code, detail=detail)
