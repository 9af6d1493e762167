"""Changes between states."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simia.state import apply_changes, diff_states, merge_patch
from tests.properties import examples

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text("abc", max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False)
)
KEYS = st.text("ab*.0/", max_size=3)
STATES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@given(STATES, STATES)
@examples(200)
def test_a_state_with_its_changes_applied_is_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    kept = copy.deepcopy(old)
    changes = diff_states(old, new)
    assert diff_states(apply_changes(old, changes), new) == []
    assert old == kept
    assert diff_states(old, copy.deepcopy(old)) == []
    assert (changes == []) == (diff_states(new, old) == [])


def test_one_is_not_true() -> None:
    assert diff_states({"a": 1}, {"a": True}) == [{"path": ["a"], "old": 1, "new": True}]
    assert diff_states({"a": 1}, {"a": 1.0}) == []


def test_lists_of_one_length_are_compared_element_by_element_and_others_as_a_whole() -> None:
    assert diff_states({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == [{"path": ["a", "1", "b"], "old": 2, "new": 3}]
    assert diff_states({"a": [1]}, {"a": [1, 2]}) == [{"path": ["a"], "old": [1], "new": [1, 2]}]


def test_a_merge_patch_removes_by_null_and_shares_the_rest() -> None:
    state = {"a": {"x": 1, "y": 2}, "b": [1]}
    patched = merge_patch(state, {"a": {"x": None, "z": 3}})
    assert patched == {"a": {"y": 2, "z": 3}, "b": [1]}
    assert state["a"] == {"x": 1, "y": 2}
    assert patched["b"] is state["b"]
