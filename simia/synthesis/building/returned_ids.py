"""Check the ids that a call returns: each must identify a row, otherwise an agent that passes it to another tool is refused.

For example, a tool that makes the id "0412" and returns 412 passes most tests, since nine of ten ids have no leading zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from simia.envs.worlds.executable_world import ExecutableWorld
from simia.json_values import iterate_keys, iterate_leaves, iterate_plain_values
from simia.synthesis.design import BuiltEnvironment

ID_NAME = re.compile(r"(?:.*_)?ids?|.*[a-z]Ids?")
"""Names of identifiers: id, loan_id, loanId, loan_ids."""


def list_ids(value: Any) -> Iterator[tuple[str, str]]:
    """(name, id as text) of all identifiers in a JSON value, by the names of fields."""
    for path, leaf in iterate_leaves(value):
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        if ID_NAME.fullmatch(name) and isinstance(leaf, str | int) and not isinstance(leaf, bool) and leaf != "":
            yield name, str(leaf)


def list_unknown_ids(result: Any, arguments: Mapping[str, Any], *states: Any) -> list[tuple[str, str]]:
    """List identifiers of a result that occur neither in a state nor in the call: (name, id as text)."""
    given = set(map(str, iterate_plain_values(arguments)))
    found = [each for each in dict.fromkeys(list_ids(result)) if each[1] not in given]
    if not found:
        return []
    known = {key for state in states for key in iterate_keys(state)}
    known |= {value for state in states for _, value in list_ids(state)}
    return [each for each in found if each[1] not in known]


async def find_unknown_id(
    world: ExecutableWorld, built: BuiltEnvironment, result: Any, arguments: Mapping[str, Any], *states: Any
) -> str | None:
    """Describe an identifier of a result that no row has and no reading tool finds; None if there is none.

    Only identifiers that can be passed to a tool are checked: `id`, and fields with the name of a tool's argument.
    """
    passed_on = {"id", *(name for tool in built.tools.values() for name in tool.spec.parameters.get("properties", {}))}
    for name, value in list_unknown_ids(result, arguments, *states):
        if not passed_on.isdisjoint({name, name.removesuffix("s")}) and not await _is_found(world, built, value):
            return f"it returns {name} {value!r}, which no row has and no tool finds"
    return None


async def _is_found(world: ExecutableWorld, built: BuiltEnvironment, value: str) -> bool:
    """Whether a reading tool whose only required argument is an identifier succeeds with this one."""
    for name, tool in built.tools.items():
        needed = tool.spec.parameters.get("required", [])
        if tool.writes or len(needed) != 1 or not ID_NAME.fullmatch(needed[0]):
            continue
        for given in (value, int(value)) if value.isdecimal() else (value,):
            if (await world.call_one(name, {needed[0]: given})).error is None:
                return True
    return False
