"""One simulated step beside the real one: exact or not, made-up keys, invented and forgotten entities, and |Δ|."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.envs.worlds.compare_transitions import compare_transition
from simia.keyed_changes import compute_keyed_changes
from simia.state import count_leaf_changes, diff_states
from simia.state_schema import StateSchema
from simia.trajectory import ToolCall
from tests.properties import examples

SCHEMA = StateSchema.model_validate({"tables": {"orders": {}, "refunds": {}}})
LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "open", "closed"])
ROWS = st.dictionaries(st.sampled_from(["status", "total", "note"]), LEAVES, min_size=1, max_size=3)
STATES = st.fixed_dictionaries(
    {
        "orders": st.dictionaries(st.sampled_from(["ORD-1", "ORD-2", "ORD-3"]), ROWS, max_size=3),
        "refunds": st.dictionaries(st.sampled_from(["REF-1", "REF-2"]), ROWS, max_size=2),
    }
)
BEFORE: dict[str, Any] = {
    "orders": {"ORD-1": {"status": "open", "total": 3}, "ORD-2": {"status": "open"}},
    "refunds": {},
}
AFTER: dict[str, Any] = {
    "orders": {"ORD-1": {"status": "closed", "total": 3}, "ORD-2": {"status": "open"}},
    "refunds": {"REF-7731": {"order_id": "ORD-1", "amount": 3, "at": "10:30"}},
}
CLOSE = {"table": "orders", "key": "ORD-1", "set": {"status": "closed"}}
REFUND = {"table": "refunds", "key": "REF-7731", "set": {"order_id": "ORD-1", "amount": 3, "at": "10:30"}}


def compare(
    named: Any, answer: Any = None, *, before: Any = BEFORE, after: Any = AFTER, real: Any = None, **more: Any
) -> dict[str, Any]:
    call = ToolCall(id="c", name="close_order", arguments={"order_id": "ORD-1"})
    return compare_transition(before, after, call, real, answer, named, schema=SCHEMA, **more)


@given(STATES, STATES)
@examples(200)
def test_the_true_changes_are_exact_and_delta_is_their_size(before: Any, after: Any) -> None:
    found = compare(compute_keyed_changes(before, after, SCHEMA), before=before, after=after)
    assert found["exact"]
    assert found["rewarded"]
    assert found["delta"] == count_leaf_changes(before, after) == count_leaf_changes(after, before)
    assert (found["delta"] == 0) == (not diff_states(before, after))
    assert found["invented"] == found["forgotten"] == []


@given(STATES, STATES, STATES)
@examples(200)
def test_delta_is_a_distance(one: Any, two: Any, three: Any) -> None:
    assert count_leaf_changes(one, three) <= count_leaf_changes(one, two) + count_leaf_changes(two, three)
    assert count_leaf_changes(one, one) == 0


@given(STATES, st.sets(st.sampled_from([("orders", "ORD-1"), ("orders", "ORD-2"), ("refunds", "REF-1")])))
@examples(100)
def test_delta_counts_every_changed_leaf_once(before: Any, places: set[tuple[str, str]]) -> None:
    after = copy.deepcopy(before)
    wanted = 0
    for table, key in places:
        row = after[table].get(key)
        if row is not None:
            row["status"] = ["changed", row.get("status")]
            row["added"] = 1
            old = 1 if "status" in before[table][key] else 0
            wanted += 2 + old + 1  # a list of two in place of a leaf or of nothing, and a new field
    assert count_leaf_changes(before, after) == wanted


@given(STATES, STATES, STATES)
@examples(200)
def test_other_changes_are_exact_only_where_they_lead_to_the_same_state(before: Any, after: Any, other: Any) -> None:
    """These keys have forms that tools make up, so a row that is new on both sides may bear another one."""
    found = compare(compute_keyed_changes(before, other, SCHEMA), before=before, after=after)
    if not diff_states(other, after):
        assert found["exact"]
    elif {*other["orders"]} == {*after["orders"]} and {*other["refunds"]} == {*after["refunds"]}:
        common = all(set(other[table]) == set(before[table]) for table in other)
        assert not (found["exact"] and common)


@pytest.mark.parametrize(
    ("named", "exact"),
    [
        ([CLOSE, REFUND], True),
        ([REFUND, CLOSE], True),
        ([{**REFUND, "key": "REF-1"}, CLOSE], True),  # no model can know which number the code draws
        ([CLOSE], False),
        ([CLOSE, REFUND, {"table": "orders", "key": "ORD-2", "set": {"status": "closed"}}], False),
        ([CLOSE, {**REFUND, "set": {**REFUND["set"], "amount": 4}}], False),
        ([CLOSE, {**REFUND, "set": {"order_id": "ORD-1", "amount": 3}}], False),
        ([{**CLOSE, "key": "ORD-9"}, REFUND], False),
        ([{**CLOSE, "table": "order"}, REFUND], False),
        ([], False),
    ],
)
def test_a_change_too_few_too_many_or_wrong_is_not_exact(named: Any, exact: bool) -> None:
    found = compare(named)
    assert found["exact"] is exact
    assert found["delta"] == 4
    assert ("fault" in found) == any(change["table"] == "order" for change in named)


def test_the_reward_leaves_exempt_columns_out() -> None:
    named = [CLOSE, {**REFUND, "set": {**REFUND["set"], "at": "11:00"}}]
    assert (compare(named)["exact"], compare(named)["rewarded"]) == (False, False)
    found = compare(named, policies={"refunds.*.at": "exempt"})
    assert (found["exact"], found["rewarded"]) == (False, True)


def test_entities_are_invented_and_forgotten() -> None:
    real = {"orders": ["ORD-1", "ORD-2"], "refund": "REF-7731"}
    found = compare([CLOSE, REFUND], {"orders": ["ORD-1"], "refund": "REF-7731"}, real=real)
    assert (found["entities"], found["invented"], found["forgotten"]) == (3, [], ["ORD-2"])
    found = compare([CLOSE, REFUND], {"orders": ["ORD-1", "ORD-2", "ORD-55"], "note": "call 42"}, real=real)
    assert (found["invented"], found["forgotten"]) == (["ORD-55"], [])
    found = compare([CLOSE, {**REFUND, "key": "REF-1"}], {**real, "refund": "REF-1"}, real=real)
    assert (found["invented"], found["forgotten"]) == ([], []), "the same refund under another made-up number"
    found = compare([CLOSE, REFUND, {**REFUND, "key": "REF-2", "set": {"amount": 9}}], real, real=real)
    assert found["invented"] == ["REF-2"]
