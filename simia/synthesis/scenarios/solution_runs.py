"""Reference solutions: calls that a model wrote, executed in the sandbox.

An argument may be a value of an earlier call's result, written `$2.booking_id`: the field `booking_id` of the second call's result.
Executing a solution puts the value in its place, so that the stored calls are literal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from simia.envs.worlds.executable import ExecutableBackend
from simia.reward_spec import StrictModel
from simia.state import Change
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.task import Action, Task

REFERENCE = re.compile(r"^\$(\d+)\.([A-Za-z_][\w.]*)$")
MOST_CALLS = 40
MOST_RESULT = 600  # characters of a result that a repair shows


class WrittenCall(StrictModel):
    """A call as a model writes it."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


@dataclass(slots=True)
class PlayedSolution:
    """A solution as it was executed."""

    written: list[Action] = field(default_factory=list)
    """The calls as they were written."""
    calls: list[Action] = field(default_factory=list)
    """The calls that were executed, with literal arguments."""
    results: list[str] = field(default_factory=list)
    """What each call returned, shortened."""
    fault: str | None = None
    """Why this is no solution; the call after `calls` is the one that failed. None: every call succeeded, and the state changed."""
    changes: list[Change] = field(default_factory=list)
    """What it changed."""
    final: Any = None
    """The state after it."""


def read_solution(text: str) -> list[Action]:
    """Return the calls of a reply. Raises `Unreadable`."""
    calls: list[WrittenCall] = read_json(text, list[WrittenCall])
    if not 0 < len(calls) <= MOST_CALLS:
        raise Unreadable(f"there must be 1 to {MOST_CALLS} calls, not {len(calls)}")
    return [Action(name=call.name, arguments=call.arguments) for call in calls]


async def play_solution(backend: ExecutableBackend, state: dict[str, Any], calls: Sequence[Action]) -> PlayedSolution:
    """Execute calls from an initial state, up to the first that fails."""
    return await play_calls(backend, Task(id="solution", initial={"state": state}), calls)


async def play_calls(
    backend: ExecutableBackend, task: Task, calls: Sequence[Action], *, refused: bool = False
) -> PlayedSolution:
    """Execute calls from the start of a task, up to the first that fails; with `refused` continue after failed calls."""
    played = PlayedSolution(written=list(calls))
    values: list[Any] = []
    async with await backend.open(task, seed=0) as world:
        for number, call in enumerate(calls, start=1):
            try:
                arguments = resolve_references(call.arguments, values)
            except LookupError as error:
                played.fault = f"call {number}, {call.name}: {error.args[0]}"
                return played
            result = await world.call_one(call.name, arguments, call.by)
            if result.error and not refused:
                played.fault = f"call {number}, {call.name}: {result.content[:MOST_RESULT]}"
                return played
            played.calls.append(call.model_copy(update={"arguments": arguments}))
            played.results.append(result.content[:MOST_RESULT])
            values.append(result.data)
        played.changes, played.final = await world.changes(), await world.state()
    if not played.changes:
        played.fault = "all calls succeed, and the state is as it was before them"
    return played


def resolve_references(value: Any, results: Sequence[Any]) -> Any:
    """Replace references to earlier results by their values. Raises `LookupError` for one that names nothing."""
    if isinstance(value, dict):
        return {key: resolve_references(each, results) for key, each in value.items()}
    if isinstance(value, list):
        return [resolve_references(each, results) for each in value]
    match = REFERENCE.match(value) if isinstance(value, str) else None
    if match is None:
        return value
    found = results[int(match[1]) - 1] if 0 < int(match[1]) <= len(results) else None
    for step in match[2].split("."):
        if isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            raise LookupError(f"{value} names no value of an earlier result")
    return found
