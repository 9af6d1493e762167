"""Short reasons for the steps of recorded solutions, derived from calls and results alone.

The oracle of a gym is a function, so its calls come without text. A reason says what the last call returned, and where the arguments of the
next call come from: a field of an earlier result, or the argument of the previous call plus or minus one. It states only what can be
derived from the trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.json_values import is_number
from simia.trajectory import Message, ToolCall

LATEST = 4  # results that are searched for the value of an argument
LONGEST_RESULT = 160  # characters of a result that a reason repeats
LEAST_NUMBER = 2  # smaller ones occur everywhere
LEAST_TEXT = 2


def add_step_reasons(messages: Sequence[Message]) -> list[Message]:
    """Add a reason to each call in turns of the agent without text. Turns with text or reasoning stay as they are."""
    found: list[Message] = []
    results: list[tuple[str, Any]] = []
    latest: dict[str, Mapping[str, Any]] = {}
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            name = names.get(message.call_id or "", "")
            results.append((name, message.text if message.error else read_value(message.text)))
        if message.role == "assistant" and message.calls and not message.text and not message.reasoning:
            call = message.calls[0]
            message = message.model_copy(update={"content": explain_call(call, results, latest.get(call.name))})
        for each in message.calls:
            names[each.id] = each.name
            latest[each.name] = each.arguments or {}
        found.append(message)
    return found


def explain_call(call: ToolCall, results: Sequence[tuple[str, Any]], before: Mapping[str, Any] | None) -> str:
    """One or two sentences: the last result, and where the arguments come from.

    Args:
        call: the next call.
        results: (tool, value) of all results so far.
        before: the arguments of the last call of this tool; None if there was none.
    """
    parts = []
    if results:
        name, value = results[-1]
        shown = json.dumps(value, ensure_ascii=False)
        if len(shown) <= LONGEST_RESULT:
            parts.append(f"{name} returned {shown}.")
    origins = [
        origin
        for name, value in (call.arguments or {}).items()
        if (origin := find_origin(name, value, results, before or {}))
    ]
    parts.append(f"Next: {call.name}{', with ' + ', '.join(origins) if origins else ''}.")
    return " ".join(parts)


def find_origin(name: str, value: Any, results: Sequence[tuple[str, Any]], before: Mapping[str, Any]) -> str | None:
    """Where an argument's value comes from; None if that cannot be told."""
    shown = json.dumps(value, ensure_ascii=False)
    earlier = before.get(name)
    if is_number(value) and is_number(earlier) and abs(value - earlier) == 1:
        return f"{name} {shown}, one {'more' if value > earlier else 'less'} than before"
    if not is_telling(value):
        return None
    for tool, result in reversed(results[-LATEST:]):
        for path, each in walk_values(result):
            if type(each) is type(value) and each == value:
                where = f"{path} of {tool}" if path else f"the result of {tool}"
                return f"{name} {shown}, {where}"
    return None


def is_telling(value: Any) -> bool:
    """Whether a value is so specific that an equal value in a result is its origin."""
    if is_number(value):
        return bool(abs(value) >= LEAST_NUMBER)
    return isinstance(value, str | list) and len(value) >= LEAST_TEXT


def walk_values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of a result with its path: the result itself, its fields, and theirs."""
    yield path, value
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in rows:
        yield from walk_values(each, f"{path}.{name}" if path else str(name))


def read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
