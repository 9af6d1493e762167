"""Tests of tools: which changes they must name."""

from __future__ import annotations

from simia.authoring.tool_tests import find_unexpected_change
from simia.reward_spec import Match
from simia.state import Change

EXEMPT: dict[str, Match] = {"jobs.*.changed_at": "exempt"}
CHANGES: list[Change] = [
    {"path": ["jobs", "J-1", "day"], "old": "1", "new": "2"},
    {"path": ["jobs", "J-1", "changed_at"], "old": "", "new": "2025-05-12T09:00:40"},
]


def test_a_test_of_a_tool_need_not_name_exempt_columns() -> None:
    named = {"jobs.J-1.day": "2"}
    assert find_unexpected_change(named, CHANGES, EXEMPT) is None
    assert find_unexpected_change({**named, "jobs.J-1.changed_at": "another"}, CHANGES, EXEMPT) is None
    assert find_unexpected_change(named, CHANGES, {}) == "jobs.J-1.changed_at changes too, to '2025-05-12T09:00:40'"
    assert find_unexpected_change({"jobs.J-1.day": "3"}, CHANGES, EXEMPT) == "jobs.J-1.day: it is '2', expected '3'"
    assert find_unexpected_change({}, CHANGES, EXEMPT) == "jobs.J-1.day changes too, to '2'"
