"""Mutations of a final state: one field, one row less, one row more; what the match policies allow is none."""

from __future__ import annotations

from typing import Any

from simia.authoring.state_mutations import StateMutation, find_mutations
from simia.reward_spec import Match
from simia.state import apply_changes
from simia.trajectory import Trajectory

INITIAL: dict[str, Any] = {
    "orders": {"O-1": {"status": "pending", "note": "leave it", "at": "09:00"}, "O-2": {"status": "sent", "note": "", "at": "08:00"}},
    "log": [{"text": "opened"}],
}  # fmt: skip
CHANGES = [
    {"path": ["orders", "O-1", "status"], "old": "pending", "new": "cancelled"},
    {"path": ["orders", "O-3"], "new": {"status": "pending", "note": "ring twice", "at": "10:00"}},
]


def mutations(
    policies: dict[str, Match] | None = None, changes: list[dict[str, Any]] | None = None
) -> list[StateMutation]:
    given = CHANGES if changes is None else changes
    return find_mutations(INITIAL, Trajectory(evidence={"changes": given}), policies or {})


def test_each_kind_is_there_and_each_is_another_state() -> None:
    found = mutations()
    assert {each.kind for each in found} == {"field", "row_removed", "row_added"}
    assert {each.own for each in found if each.kind == "field"} == {True}
    final = apply_changes(INITIAL, CHANGES)
    for each in found:
        assert apply_changes(INITIAL, each.changes) != final, each
    assert ("orders", "O-3") in {each.path for each in found if each.kind == "row_removed" and each.own}
    assert ("orders", "O-2") in {each.path for each in found if each.kind == "row_removed" and not each.own}
    assert ("log", "0-copy") in {each.path for each in found if each.kind == "row_added"}


def test_exempt_and_semantic_columns_are_respected() -> None:
    policies: dict[str, Match] = {"orders.*.at": "exempt", "orders.*.note": "semantic"}
    paths = {each.path for each in mutations(policies) if each.kind == "field"}
    assert paths == {("orders", "O-1", "status"), ("orders", "O-3", "status")}
    exempt: dict[str, Match] = {"orders": "exempt", "log": "exempt"}
    assert mutations(exempt) == []


def test_where_nothing_changed_other_fields_are_mutated() -> None:
    found = mutations(changes=[])
    assert {each.kind for each in found} == {"field", "row_removed", "row_added"}
    assert not any(each.own for each in found)
