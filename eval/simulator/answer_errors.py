"""Put simulator errors into right answers, of the kinds that real simulators make (docs/simulator-fidelity.md).

| kind | what is wrong |
|---|---|
| forgotten | the result is right, and none of its changes is named |
| other value | one value of the result is that of another row, or another number, in the changes too |
| refused | a call that succeeds is refused |
| let through | a call that the system refuses succeeds, and nothing changes |

Each kind that an answer can have is equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

KINDS = ("forgotten", "other value", "refused", "let through")
Answer = dict[str, Any]


def corrupt_answer(
    answer: Answer, state: Mapping[str, Any], arguments: Mapping[str, Any], chance: random.Random
) -> tuple[Answer, str]:
    """Return a wrong answer in place of a right one, and its kind. `state`: the tables before the call."""
    if answer["outcome"] == "error":
        return {"outcome": "result", "content": {**arguments, "status": "done"}, "changes": []}, "let through"
    kinds = ["refused"]
    if answer["changes"]:
        kinds.append("forgotten")
    leaves = list(iterate_leaves(answer["content"]))
    if leaves:
        kinds.append("other value")
    kind = chance.choice(sorted(kinds))
    if kind == "refused":
        return {"outcome": "error", "content": "this is not possible at the moment", "changes": []}, kind
    if kind == "forgotten":
        return {**answer, "changes": []}, kind
    name, old = chance.choice(leaves)
    new = find_other_value(name, old, state, chance)
    changes = [{**change, "set": replace_value(change["set"], name, old, new)} for change in answer["changes"]]
    return {**answer, "content": replace_value(answer["content"], name, old, new), "changes": changes}, kind


def iterate_leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of every text, number and boolean; the name is the nearest object key above it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from iterate_leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_leaves(inner, name)
    elif value is not None:
        yield name, value


def find_other_value(name: str, old: Any, state: Mapping[str, Any], chance: random.Random) -> Any:
    """Return another value of the same kind: another key of the table in which `old` is a key, a value of the column in another row, or
    else an invented one."""
    if isinstance(old, bool):
        return not old
    tables = [table for table in state.values() if isinstance(table, dict) and isinstance(old, str) and old in table]
    if keys := sorted({key for table in tables for key in table} - {old}):
        return chance.choice(keys)
    column = {
        value for key, value in iterate_leaves(state) if key == name and type(value) is type(old) and value != old
    }
    if column:
        return chance.choice(sorted(column))
    return old + chance.choice((1, 2)) if isinstance(old, int | float) else f"{old} 2"


def replace_value(value: Any, name: str, old: Any, new: Any) -> Any:
    """Return a copy of the value in which `new` replaces `old` at each key `name`."""
    if isinstance(value, dict):
        return {
            key: new if key == name and inner == old else replace_value(inner, name, old, new)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [replace_value(inner, name, old, new) for inner in value]
    return value
