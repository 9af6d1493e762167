"""Compare one step of a simulator with the real one: do the changes that it reports, applied to the true state, give the true next state?

The real step is the state before a call, the call's result, and the state after it. A simulator cannot know the keys that a tool makes up,
so keys of new rows are paired first, as in the state reward; every other value must be equal. Entities are compared too. Forgotten ones are
rows of the state that the true answer names and the simulated one does not. Invented ones are identifiers of the simulated answer that
have the form of the state's keys and exist neither in the states nor in the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.envs.rewards.row_pairing import pair_rows
from simia.envs.rewards.state_match import compare_changes, rename_keys
from simia.json_values import iterate_strings
from simia.keyed_changes import (
    ChangeError,
    KeyedChange,
    apply_keyed_changes,
    compute_keyed_changes,
    parse_keyed_changes,
)
from simia.reward_spec import Match
from simia.state import Change, are_equal, count_leaf_changes, diff_states
from simia.state_schema import StateSchema, list_rows
from simia.trajectory import Message, ToolCall, Trajectory, write_compact_json

DIGITS = re.compile(r"\d+")
Transition = dict[str, Any]
"""`delta`: |Δ| of the real step; `real`, `simulated`: the changes of each; `exact`: both lead to the same state, except for made-up keys;
`rewarded`: the state reward, which ignores exempt columns, sees no difference; `invented`, `forgotten`: identifiers; `entities`: number of
entities in the true answer; `names`: keys that the simulator made up in this step → the real ones, if there are any;
`fault`: why the simulated changes cannot be applied."""


def compare_transition(
    before: Any,
    after: Any,
    call: ToolCall,
    real: Any,
    answer: Any,
    named: Sequence[Mapping[str, Any]],
    *,
    schema: StateSchema | None = None,
    policies: Mapping[str, Match] | None = None,
    names: Mapping[str, str] | None = None,
) -> Transition:
    """Compare a real step with a simulated one.

    Arguments:
        before, after: The true states before and after the call.
        real, answer: What the call returned in the real world and in the simulated one.
        named: The changes that the simulator reports, as keyed changes.
        policies: How the state reward compares values, by dotted path.
        names: Identifiers that the simulator made up earlier → the real ones.
    """
    found: Transition = {
        "delta": count_leaf_changes(before, after),
        "real": compute_keyed_changes(before, after, schema),
        "simulated": list(named),
    }
    names = dict(names or {})
    try:
        changes = parse_keyed_changes(list(named))
        predicted = apply_keyed_changes(before, changes, schema)
    except ChangeError as error:
        changes, predicted = [], before
        found |= {"exact": False, "rewarded": False, "fault": str(error)}
    else:
        own, expected = diff_states(before, predicted), diff_states(before, after)
        record = make_record(call, answer, own, expected)
        if pairs := pair_rows(own, expected, record, {}):
            found["names"] = pairs
        names |= pairs
        renamed = sorted(rename_keys(own, names), key=lambda change: change["path"])
        found["exact"] = are_equal(renamed, expected)
        found["rewarded"] = found["exact"] or not any(compare_changes(record, policies or {}).values())
    known = list_keys(before, schema) | list_keys(after, schema)
    true = (known & {*iterate_strings(real)}) | list_changed_rows(found["real"])
    made = {names.get(each, each) for each in {*iterate_strings(answer)} | list_changed_rows(changes)}
    added = {names.get(each, each) for each in list_keys(predicted, schema)}
    shapes = {shape for shape in map(find_shape, known) if shape != "9"}
    given = {*iterate_strings(call.arguments or {}), *iterate_strings(real)}
    looks = {each for each in made if " " not in each and DIGITS.search(each) and find_shape(each) in shapes}
    return {
        **found,
        "entities": len(true),
        "invented": sorted((looks | added) - known - given),
        "forgotten": sorted(true - made),
    }


def make_record(call: ToolCall, answer: Any, own: list[Change], expected: list[Change]) -> Trajectory:
    """Make a trajectory of the call, its simulated answer and the changes of both sides, for the state reward."""
    text = answer if isinstance(answer, str) else write_compact_json(answer)
    call = call.model_copy(update={"id": call.id or "call"})
    messages = [Message(role="assistant", calls=[call]), Message(role="tool", call_id=call.id, content=text)]
    return Trajectory(messages=messages, evidence={"changes": own, "expected": expected})


def list_keys(state: Any, schema: StateSchema | None) -> set[str]:
    """The keys of all rows of a state: of the schema's tables, else of every mapping of objects and of rows with an `id`."""
    if schema is not None and schema.tables:
        return {key for name, table in schema.tables.items() for key, _ in list_rows(state, name, table)}
    return set(iterate_keys(state))


def iterate_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        rows = [inner for inner in value.values() if isinstance(inner, dict)]
        if rows and len(rows) == len(value):
            yield from value
        for inner in value.values():
            yield from iterate_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict) and isinstance(inner.get("id"), str):
                yield inner["id"]
            yield from iterate_keys(inner)


def list_changed_rows(changes: Sequence[KeyedChange]) -> set[str]:
    """Return the keys of the changed rows; an index of a list is not a key."""
    return {change["key"] for change in changes if change["key"] is not None and not change["key"].isdecimal()}


def find_shape(text: str) -> str:
    """Return the form of an identifier, in which the values of its numbers are replaced."""
    return DIGITS.sub("9", text)
