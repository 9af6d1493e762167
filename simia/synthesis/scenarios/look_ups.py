"""Add look-ups to a reference solution: reading calls that find the keys which the user does not mention.

The model that writes a solution sees the state, so it leaves look-ups out. Such a reference would use keys that an agent cannot know, and
its trajectory could not be a seed. Look-ups link a key to what the user says: for the booking of "Lucie Moreau", first find the guest of
that name, then the guest's bookings. An amount in a call, such as a balance, is looked up with the keys of that call.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.synthesis.scenarios.solution_runs import REFERENCE, PlayedSolution
from simia.task import Action, Task
from simia.tool import ToolSpec

MOST_TRIED = 60  # most calls of one tool for one key
LONGEST_CHAIN = 3  # most look-ups for one key, as from a name to a guest to a booking to a task
LEAST_AMOUNT = 100  # smaller numbers are counts, which occur everywhere
SHORTEST = 3  # the user's messages are searched for values with at least this many characters
LINKED, WEAK, SHOWN = 0, 1, 2
"""How well a result identifies a key: by what the user says of its row, by another known key, or not at all."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """A reading call and its result."""

    action: Action
    content: str
    grade: int


async def add_look_ups(
    backend: ExecutableBackend,
    state: Mapping[str, Any],
    played: PlayedSolution,
    said: Sequence[str],
    tools: Sequence[ToolSpec],
) -> list[Action]:
    """Return the written calls of a solution, with look-ups before each call that uses a key or an amount that is not known yet.

    Args:
        backend: the environment's sandbox.
        state: the initial state.
        played: the solution as it was executed.
        said: the user's messages in each mode, one text per mode; a value is known if every text contains it.
        tools: the reading tools.

    A key that no reading call finds has no look-up.
    """
    found: list[Action] = []
    places: list[int] = []  # new numbers of the solution's calls, counted from 1
    known = KnownKeys(state, said)
    async with await backend.open(Task(id="look-ups", initial={"state": dict(state)}), seed=0) as world:
        for written, literal in zip(played.written, played.calls, strict=True):
            for key in list_named_keys(known.rows, literal.arguments):
                for each in await find_chain(world, known, key, tools, LONGEST_CHAIN):
                    found.append(each.action)
                    known.add_result(each.action.arguments, each.content)
                known.keys.add(key)
            for each in await find_amounts(world, known, literal.arguments, tools):
                found.append(each.action)
                known.add_result(each.action.arguments, each.content)
            found.append(Action(name=written.name, arguments=renumber_references(written.arguments, places)))
            places.append(len(found))
            result = await world.call_one(literal.name, literal.arguments)
            known.add_result({}, result.content)
    return found


class KnownKeys:
    """The keys of a state that an agent can know from the user's messages and the results so far."""

    def __init__(self, state: Mapping[str, Any], said: Sequence[str]) -> None:
        self.rows: dict[str, list[str]] = {}
        """Key → texts of its row; of all its rows if several tables have the key."""
        for table in state.values():
            for key, row in table.items() if isinstance(table, Mapping) else ():
                self.rows.setdefault(key, []).extend(list_texts(row))
        counts = Counter(text for texts in self.rows.values() for text in set(texts))
        self.said = [text for text in dict.fromkeys([*self.rows, *counts]) if is_said(text, said)]
        """Keys and texts of the state that the user says."""
        self._names = {text for text in self.said if text not in self.rows and counts[text] == 1}
        self.keys = {text for text in self.said if text in self.rows}
        self.amounts: set[float] = set()
        """Numbers of the results."""
        self._records: list[frozenset[str]] = []

    def list_names(self, key: str) -> list[str]:
        """Return the texts of a key's row that the user says and that no other row has."""
        return [text for text in self.rows[key] if text in self._names]

    def list_parents(self, key: str) -> list[str]:
        """Return the keys of other rows in a key's row."""
        return [text for text in self.rows[key] if text in self.rows and text != key]

    def grade_record(self, key: str, record: frozenset[str]) -> int:
        """Grade how well a record that contains a key identifies it."""
        names = self.list_names(key)
        if record.intersection(names):
            return LINKED
        if record.intersection(self.keys - {key}) or record & self._names:
            return WEAK if names else LINKED
        return SHOWN

    def add_result(self, arguments: Mapping[str, Any], content: str) -> None:
        """Add a result. Keys that it links to known values become known."""
        self._records += list_records(arguments, content)
        self.amounts.update(list_amounts(read_content(content)))
        before = -1
        while before != len(self.keys):
            before = len(self.keys)
            for record in self._records:
                new = [text for text in sorted(record) if text in self.rows and text not in self.keys]
                self.keys.update(text for text in new if self.grade_record(text, record) == LINKED)

    def copy(self) -> KnownKeys:
        made = object.__new__(KnownKeys)
        made.rows, made.said, made._names = self.rows, self.said, self._names
        made.keys, made.amounts, made._records = set(self.keys), set(self.amounts), list(self._records)
        return made


async def find_chain(
    world: ExecutableWorld, known: KnownKeys, key: str, tools: Sequence[ToolSpec], most: int
) -> list[LookUp]:
    """Return at most `most` look-ups that link a key to known values. Of several such chains the one with the shortest last result is taken;
    without any, a single look-up that shows the key. If the user says nothing about a row, the keys in this row are looked up first."""
    if key in known.keys:
        return []
    best = await find_look_up(world, known, key, tools)
    found = [[best]] if best else []
    if known.list_names(key) or most < 2:
        return found[0] if found else []
    linked = [chain for chain in found if chain[-1].grade == LINKED]
    for parent in known.list_parents(key):
        chain = await find_chain(world, known, parent, tools, most - 1)
        if any(each.grade > LINKED for each in chain) or not (chain[1:] or (chain and known.list_names(parent))):
            continue
        after = known.copy()
        for each in chain:
            after.add_result(each.action.arguments, each.content)
        last = await find_look_up(world, after, key, tools)
        if last is not None and last.grade == LINKED:
            linked.append([*chain, last])
    return min(linked or found, key=lambda chain: len(chain[-1].content), default=[])


async def find_look_up(world: ExecutableWorld, known: KnownKeys, key: str, tools: Sequence[ToolSpec]) -> LookUp | None:
    """Return the best reading call whose result contains the key: prefer one that shows its row, then the best link, then a short result."""
    best: tuple[tuple[bool, int, int], LookUp] | None = None
    row = frozenset(known.rows[key])
    near = [text for text in known.rows[key] if text in known.keys or text in known.said]
    values = list(dict.fromkeys([*near, *known.said, *sorted(known.keys)]))
    for tool in tools:
        for arguments in itertools.islice(list_arguments(tool, values, near), MOST_TRIED):
            result = await world.call_one(tool.name, arguments)
            if result.error or json.dumps(key) not in result.content:
                continue
            records = [each for each in list_records(arguments, result.content) if key in each]
            hidden, grade = min(
                ((not each & row, known.grade_record(key, each)) for each in records), default=(True, SHOWN)
            )
            rank = hidden, grade, len(result.content)
            if best is None or rank < best[0]:
                best = rank, LookUp(Action(name=tool.name, arguments=arguments), result.content, grade)
    return best[1] if best else None


async def find_amounts(
    world: ExecutableWorld, known: KnownKeys, given: Mapping[str, Any], tools: Sequence[ToolSpec]
) -> list[LookUp]:
    """Return reading calls that show the amounts of a call, made with the keys of that call. Amounts that earlier results show, and those that
    no call shows, have none."""
    found: list[LookUp] = []
    keys = list(dict.fromkeys(list_named_keys(known.rows, given)))
    for amount in sorted(set(list_amounts(dict(given))) - known.amounts):
        shown: list[LookUp] = []
        for tool in tools if keys else ():
            if not tool.parameters.get("required"):
                continue
            for arguments in itertools.islice(list_arguments(tool, keys), MOST_TRIED):
                result = await world.call_one(tool.name, arguments)
                if not result.error and amount in list_amounts(read_content(result.content)):
                    shown.append(LookUp(Action(name=tool.name, arguments=arguments), result.content, LINKED))
        if shown:
            found.append(min(shown, key=lambda each: len(each.content)))
    return found


def list_amounts(value: Any) -> Iterator[float]:
    """Yield the numbers of a JSON value that are at least `LEAST_AMOUNT`."""
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from list_amounts(each)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= LEAST_AMOUNT:
        yield value


def list_named_keys(rows: Mapping[str, object], arguments: Any) -> Iterator[str]:
    """The keys of rows among the texts of a call's arguments."""
    if isinstance(arguments, Mapping | list):
        for each in arguments.values() if isinstance(arguments, Mapping) else arguments:
            yield from list_named_keys(rows, each)
    elif isinstance(arguments, str) and arguments in rows:
        yield arguments


def list_texts(row: Any) -> list[str]:
    values = row.values() if isinstance(row, Mapping) else []
    return [each for each in values if isinstance(each, str) and len(each) >= SHORTEST]


def list_records(arguments: Mapping[str, Any], content: str) -> list[frozenset[str]]:
    """Return for each object of a result its texts, those of the objects around it, and those of the call's arguments."""
    return list(walk_records(read_content(content), frozenset(list_texts(arguments))))


def read_content(content: str) -> Any:
    """The JSON value of a result; None for another one."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def walk_records(value: Any, around: frozenset[str]) -> Iterator[frozenset[str]]:
    if isinstance(value, dict):
        own = around | frozenset(list_texts(value))
        yield own
        for name, each in value.items():
            yield from walk_records(each, own | {name} if isinstance(each, dict) else own)
    elif isinstance(value, list):
        for each in value:
            yield from walk_records(each, around)
    elif isinstance(value, str):
        yield around | {value}


def is_said(value: str, said: Sequence[str]) -> bool:
    """Whether every text holds a value as whole words, in any case."""
    pattern = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", re.IGNORECASE)
    return all(pattern.search(text) for text in said)


def list_arguments(tool: ToolSpec, values: Sequence[str], filters: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield arguments from known values: first only the required arguments, then each of these with one of `filters` for an optional text.

    Yields nothing if a required argument is neither a text nor enumerated.
    """
    required = tool.parameters.get("required", [])
    properties = tool.parameters.get("properties", {})
    choices: list[Sequence[Any]] = []
    for name in required:
        schema = properties[name]
        if "enum" not in schema and schema.get("type") != "string":
            return
        choices.append(schema.get("enum", values))
    for chosen in itertools.product(*choices):
        yield dict(zip(required, chosen, strict=True))
    optional = [name for name, schema in properties.items() if name not in required and takes_text(schema)]
    for chosen in itertools.product(*choices):
        for name, value in itertools.product(optional, filters):
            yield {**dict(zip(required, chosen, strict=True)), name: value}


def takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether an argument may be any text."""
    types = schema.get("type")
    return "enum" not in schema and "string" in (types if isinstance(types, list) else [types])


def renumber_references(value: Any, places: Sequence[int]) -> Any:
    """Replace the number of a call in references by the call's new place."""
    if isinstance(value, dict):
        return {name: renumber_references(each, places) for name, each in value.items()}
    if isinstance(value, list):
        return [renumber_references(each, places) for each in value]
    match = REFERENCE.match(value) if isinstance(value, str) else None
    return f"${places[int(match[1]) - 1]}.{match[2]}" if match else value
