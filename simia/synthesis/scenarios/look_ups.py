"""Look-ups of a reference solution: reading calls by which an agent finds the keys that the user does not say.

The writer of a solution sees the state and leaves look-ups out. Without them a reference would name keys that an agent cannot know, and no
trajectory of it could be a seed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.synthesis.scenarios.solution_runs import REFERENCE, PlayedSolution
from simia.task import Action, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall

MOST_TRIED = 60  # calls of one tool for one key
SHORTEST = 3  # characters of a value that is looked for in what was said


async def add_look_ups(
    backend: ExecutableBackend,
    state: Mapping[str, Any],
    played: PlayedSolution,
    said: Sequence[str],
    tools: Sequence[ToolSpec],
) -> list[Action]:
    """Return the written calls of a solution with a look-up before each call that names a key of the state which is unknown by then.

    Args:
        backend: the environment's sandbox.
        state: the initial state.
        played: the solution as it was executed.
        said: what the user tells, in each mode; a value is known if every text holds it, or if an earlier result holds it.
        tools: the tools that read.

    A key that no single reading call finds has no look-up.
    """
    found: list[Action] = []
    places: list[int] = []  # of the solution's calls, counted from 1
    results = ""
    world = await backend.open(Task(id="look-ups", initial={"state": dict(state)}), seed=0)
    try:
        for written, literal in zip(played.written, played.calls, strict=True):
            for key, row in list_named_rows(state, literal.arguments):
                if is_known(key, said, results):
                    continue
                values = [each for each in list_known_values(state, row) if is_known(each, said, results)]
                if looked_up := await find_look_up(world, key, values, tools):
                    found.append(looked_up[0])
                    results += looked_up[1]
            found.append(Action(name=written.name, arguments=renumber_references(written.arguments, places)))
            places.append(len(found))
            result = (await world.call([ToolCall(id="", name=literal.name, arguments=literal.arguments)]))[0]
            results += result.content
    finally:
        await world.close()
    return found


def list_named_rows(state: Mapping[str, Any], arguments: Any) -> Iterator[tuple[str, Any]]:
    """The keys of rows among the texts of a call's arguments, each with its row."""
    if isinstance(arguments, Mapping | list):
        for each in arguments.values() if isinstance(arguments, Mapping) else arguments:
            yield from list_named_rows(state, each)
    elif isinstance(arguments, str):
        for table in state.values():
            if isinstance(table, Mapping) and arguments in table:
                yield arguments, table[arguments]


def list_known_values(state: Mapping[str, Any], row: Any) -> list[str]:
    """Texts by which a row may be found: its own ones first, then keys and texts of all other rows."""
    others = (
        text
        for table in state.values()
        if isinstance(table, Mapping)
        for key, other in table.items()
        for text in (key, *list_texts(other))
    )
    return list(dict.fromkeys([*list_texts(row), *others]))


def list_texts(row: Any) -> list[str]:
    values = row.values() if isinstance(row, Mapping) else []
    return [each for each in values if isinstance(each, str) and len(each) >= SHORTEST]


def is_known(value: str, said: Sequence[str], results: str) -> bool:
    """Whether the user says a value in every mode, or a result holds it."""
    wanted = value.casefold()
    return all(wanted in text.casefold() for text in said) or wanted in results.casefold()


async def find_look_up(
    world: ExecutableWorld, key: str, values: Sequence[str], tools: Sequence[ToolSpec]
) -> tuple[Action, str] | None:
    """The reading call whose result holds the key, and the result; of several the one with the shortest result."""
    best: tuple[Action, str] | None = None
    for tool in tools:
        for arguments in itertools.islice(list_arguments(tool, values), MOST_TRIED):
            result = (await world.call([ToolCall(id="", name=tool.name, arguments=arguments)]))[0]
            if result.error or json.dumps(key) not in result.content:
                continue
            if best is None or len(result.content) < len(best[1]):
                best = Action(name=tool.name, arguments=arguments), result.content
    return best


def list_arguments(tool: ToolSpec, values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Arguments from known values, the required ones only; nothing if one of them is neither a text nor one of a list."""
    required = tool.parameters.get("required", [])
    choices: list[Sequence[Any]] = []
    for name in required:
        schema = tool.parameters["properties"][name]
        if "enum" not in schema and schema.get("type") != "string":
            return
        choices.append(schema.get("enum", values))
    for chosen in itertools.product(*choices):
        yield dict(zip(required, chosen, strict=True))


def renumber_references(value: Any, places: Sequence[int]) -> Any:
    """Replace the number of a call in references by the call's new place."""
    if isinstance(value, dict):
        return {name: renumber_references(each, places) for name, each in value.items()}
    if isinstance(value, list):
        return [renumber_references(each, places) for each in value]
    match = REFERENCE.match(value) if isinstance(value, str) else None
    return f"${places[int(match[1]) - 1]}.{match[2]}" if match else value
