"""Derive what a turn must do from its selected solution: essential calls, masked arguments, match policies (EnvFactory §3.4).

Essential calls are the successful calls of writing tools, and the look-ups that the selector names. They are executed without the other
calls. A value that a tool makes up, such as a new id, depends on the number of calls; so an argument with such a value is taken from the
result of the call that made it, and is masked. A second execution, some calls later, finds the columns that depend on the clock; these are
exempt from the comparison of states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from simia.envs.rewards.row_pairing import pair_rows
from simia.envs.rewards.state_match import index_changes, rename_keys
from simia.envs.worlds.executable import ExecutableBackend
from simia.json_values import iterate_keys, iterate_leaves, iterate_plain_values
from simia.reward_spec import GoalPart, Match, StateSpec, TraceSpec
from simia.state import Change, diff_states
from simia.synthesis.conversations.turn_playing import PlayedCall
from simia.task import GoalCall, Task
from simia.trajectory import Trajectory

PADDING = 4  # calls before the second execution: they take more than a minute on the episode's clock
SMALLEST_ID = 100  # smaller whole numbers are not taken for ids
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ValueSource:
    """An argument that is a value of an earlier result."""

    argument: Place
    """Place in the arguments."""
    call: int
    """Number of the essential call, counted over all turns."""
    result: Place
    """Place in its result."""


@dataclass(slots=True)
class EssentialCall:
    """A call that a turn needs."""

    name: str
    arguments: dict[str, Any]
    writes: bool
    data: Any
    """Its result in the solver's conversation."""
    free: list[str] = field(default_factory=list)
    """Arguments whose value is left to the agent."""
    sources: list[ValueSource] = field(default_factory=list)

    @property
    def mask(self) -> list[str]:
        """Arguments that are not compared."""
        return list(dict.fromkeys([*self.free, *(str(each.argument[0]) for each in self.sources)]))


@dataclass(slots=True)
class ReplayedCalls:
    """Essential calls as they were executed without the other calls."""

    turns: list[list[GoalCall]] = field(default_factory=list)
    """The calls of each turn with literal arguments."""
    changes: list[list[Change]] = field(default_factory=list)
    """Changes since the start, after each turn."""
    fault: str = ""
    """Why they cannot be executed without the other calls; empty if they can."""


def pick_essential(
    calls: Sequence[PlayedCall], writing: Collection[str], look_ups: Collection[int], free: Mapping[int, Sequence[str]]
) -> list[EssentialCall]:
    """Return the essential calls of a turn. `look_ups`: numbers of essential look-ups; `free`: number → free arguments; counted from 1."""
    return [
        EssentialCall(
            each.call.name,
            each.call.arguments or {},
            each.call.name in writing,
            load_result(each.result.text),
            list(free.get(number, ())),
        )
        for number, each in enumerate(calls, start=1)
        if each.succeeded and (each.call.name in writing or number in look_ups)
    ]


def load_result(text: str) -> Any:
    """The value of a result, or its text."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def link_values(turns: Sequence[Sequence[EssentialCall]], state: Mapping[str, Any], words: Sequence[str]) -> None:
    """Find the arguments of the last turn whose values tools made up: values in an earlier writing call's result that occur neither in the
    initial state nor in the user's words."""
    known = set(map(str, iterate_plain_values(state))) | set(iterate_keys(state))
    said = "\n".join(words)
    before = [call for turn in turns[:-1] for call in turn]
    for call in turns[-1]:
        call.sources = []
        for place, value in iterate_leaves(call.arguments):
            if not may_be_made_up(value) or str(value) in known or str(value) in said:
                continue
            for number, earlier in enumerate(before):
                found = next(
                    (at for at, made in iterate_leaves(earlier.data) if earlier.writes and made == value), None
                )
                if found is not None:
                    call.sources.append(ValueSource(place, number, found))
                    break
        before.append(call)


def may_be_made_up(value: Any) -> bool:
    """Whether a value can be an id that a tool made: a text, or a whole number from `SMALLEST_ID` on. Smaller numbers are amounts."""
    if isinstance(value, str):
        return len(value) > 1
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) >= SMALLEST_ID


async def replay_essential(
    backend: ExecutableBackend, state: dict[str, Any], turns: Sequence[Sequence[EssentialCall]], padding: int = 0
) -> ReplayedCalls:
    """Execute essential calls without the others, up to the first that fails. `padding`: number of calls without effect made before."""
    played, results = ReplayedCalls(), list[Any]()
    async with await backend.open(Task(id="essential", initial={"state": state}), seed=0) as world:
        for _ in range(padding):
            await world.call_one("", {})
        for turn in turns:
            own: list[GoalCall] = []
            for call in turn:
                try:
                    arguments = put_values(call, results)
                except LookupError:
                    played.fault = f"{call.name}: a value of an earlier result is missing"
                    return played
                result = await world.call_one(call.name, arguments)
                if result.error:
                    played.fault = f"{call.name} fails without the other calls: {result.content[:200]}"
                    return played
                results.append(result.data if result.data is not None else result.content)
                own.append(GoalCall(name=call.name, arguments=arguments, mask=call.mask))
            played.turns.append(own)
            played.changes.append(await world.changes())
    return played


def put_values(call: EssentialCall, results: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments with the values that earlier calls returned in this execution. Raises `LookupError` for a missing value."""
    arguments = call.arguments
    for source in call.sources:
        value = results[source.call]
        for step in source.result:
            value = value[step]
        arguments = replace_value(arguments, source.argument, value)
    return arguments


def replace_value(value: Any, place: Place, new: Any) -> Any:
    """A copy of a JSON value with another value at one place."""
    if not place:
        return new
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    copied[place[0]] = replace_value(value[place[0]], place[1:], new)
    return copied


def find_policies(
    plain: Sequence[Change], later: Sequence[Change], calls: Sequence[EssentialCall], played: Sequence[GoalCall]
) -> dict[str, Match]:
    """Columns that are not compared: those that differ when the same calls are made later, and those that hold free arguments.

    Args:
        plain: changes of the essential calls.
        later: changes of the same calls after `PADDING` other calls.
        calls, played: the essential calls, and the same calls as executed.
    """
    found: dict[str, Match] = {}
    empty = Trajectory(messages=[])
    renamed = index_changes(rename_keys(list(later), pair_rows(list(later), list(plain), empty, {})))
    free = {
        str(one.arguments[name])
        for each, one in zip(calls, played, strict=True)
        for name in each.free
        if name in one.arguments
    }
    for path, change in index_changes(plain).items():
        is_row = len(path) == 2 and "old" not in change
        if path in renamed:
            for inner in diff_states(change.get("new"), renamed[path].get("new")):
                found[name_path((*path, *inner["path"]), is_row)] = "exempt"
        for place, value in iterate_leaves(change.get("new")):
            if isinstance(value, str) and value in free:
                found[name_path((*path, *map(str, place)), is_row)] = "exempt"
    return found


def name_path(path: Sequence[str], is_row: bool) -> str:
    """Write a path for match policies; `*` stands for the key of a new row."""
    return ".".join([path[0], "*", *path[2:]] if is_row else path)


def make_parts(calls: Sequence[EssentialCall], changed: bool, policies: dict[str, Match]) -> list[GoalPart]:
    """Make the reward parts of a turn: the state, and the look-ups that the user asked for."""
    look_ups = list(dict.fromkeys(call.name for call in calls if not call.writes))
    state: list[GoalPart] = [StateSpec(policies=policies)]
    if not changed:
        return [*state, TraceSpec()]
    return [*state, TraceSpec(only=look_ups)] if look_ups else state
