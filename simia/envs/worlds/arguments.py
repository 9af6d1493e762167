"""Validate calls before they reach a pack's code: refuse unknown tools, and arguments that are not JSON or break the schema."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from simia.envs.worlds.world import ToolResult
from simia.errors import Code
from simia.sandbox.inside.frames import MOST_LEVELS, nests_deeper
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall

MOST_ARGUMENTS = 1 << 20


def refuse_call(call: ToolCall, specs: Mapping[str, ToolSpec], *, check_schema: bool = True) -> ToolResult | None:
    """Return the error of a call that must not reach the pack's code: unknown tool, arguments that are not JSON or break the schema."""
    spec = specs.get(call.name)
    if not call.name and call.raw is not None:
        return make_failure(call, Code.UNPARSABLE_ARGUMENTS, "the call is not a JSON object with a name and arguments")
    if spec is None:
        near = difflib.get_close_matches(call.name, specs, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(specs))}"
        return make_failure(call, Code.UNKNOWN_TOOL, f"there is no tool {call.name[:80]!r}; {hint}")
    if call.arguments is None and call.raw is not None:
        return make_failure(call, Code.UNPARSABLE_ARGUMENTS, "the arguments are not a JSON object")
    arguments = call.arguments or {}
    wrong = find_argument_fault(arguments)
    if wrong:
        return make_failure(call, Code.BAD_ARGUMENTS, wrong)
    errors = spec.argument_errors(arguments) if check_schema else []
    if errors:
        words = "; ".join(f"{where}: {what}" if where else what for where, what in errors[:3])
        takes = ", ".join(spec.parameters.get("properties", {})) or "nothing"
        return make_failure(
            call, Code.BAD_ARGUMENTS, f"wrong arguments for {call.name}: {words[:600]}; it takes: {takes[:300]}"
        )
    return None


def refuse_calls_over_limit(
    calls: Sequence[ToolCall], per_message: int | None, limit: int | None, made: int
) -> tuple[list[ToolResult], bool]:
    """Return error results of the last calls of a message, which must not be run: those beyond the first `per_message` of the message, and
    those beyond the `limit` of the episode, of which `made` were made before. The second value: whether that limit is exceeded."""
    taken = calls[:per_message]
    over = [] if limit is None else taken[limit - made :]
    words = f"not executed: the limit of {limit} call{'' if limit == 1 else 's'} in an episode is reached"
    found = [make_failure(call, Code.MAX_CALLS, words) for call in over]
    words = f"not executed: at most {per_message} call{'' if per_message == 1 else 's'} in a message; make this call in a message of its own"
    return [*found, *(make_failure(call, Code.MAX_CALLS, words) for call in calls[len(taken) :])], bool(over)


def find_argument_fault(arguments: dict[str, Any]) -> str | None:
    """Return why arguments cannot be sent at all: NaN, half a Unicode character, excessive size or depth."""
    if is_plain(arguments):
        return None
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


def make_recordable(message: Message) -> Message:
    """Make a message of the agent recordable: half a Unicode character is replaced, and arguments that cannot be written as JSON of a
    bounded depth are kept as text, so that the call is answered with a parse error."""
    calls = [
        arguments_to_text(call) if call.arguments is not None and is_unwritable(call.arguments) else call
        for call in message.calls
    ]
    content = message.content
    if isinstance(content, str):
        content = content.encode(errors="replace").decode()
    if content == message.content and all(a is b for a, b in zip(calls, message.calls, strict=True)):
        return message
    return message.model_copy(update={"calls": calls, "content": content})


def is_plain(arguments: dict[str, Any]) -> bool:
    """Check quickly whether arguments are certainly JSON within the limits. False decides nothing: orjson also writes NaN as null."""
    try:
        text = orjson.dumps(arguments, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        return False
    return b"null" not in text and text.count(b"[") + text.count(b"{") <= MOST_LEVELS and len(text) <= MOST_ARGUMENTS


def is_unwritable(arguments: dict[str, Any]) -> bool:
    if is_plain(arguments):
        return False
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        return True
    return nests_deeper(arguments, MOST_LEVELS)


def arguments_to_text(call: ToolCall) -> ToolCall:
    try:
        raw = json.dumps(call.arguments)
    except (ValueError, TypeError, RecursionError):
        raw = "(arguments that cannot be written)"
    return call.model_copy(update={"arguments": None, "raw": raw})


def make_failure(call: ToolCall, code: Code, words: str, detail: str = "") -> ToolResult:
    """Make the result of a failed call: the error message in the form of every other result."""
    data = {"error": words.encode(errors="replace").decode()}
    return ToolResult(call.id, orjson.dumps(data).decode(), data=data, error=code, detail=detail)
