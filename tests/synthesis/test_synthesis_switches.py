"""eval/ablations/synthesis_switches.py: what execution and the check agent find is accepted without them, and fails afterwards."""

from __future__ import annotations

from eval.ablations.synthesis_switches import ALL_ON, METHODS, UNCHECKED, UNEXECUTED, count_all, list_methods

CASES = (
    "right get_member", "uses_network", "no_refusal", "lends_unknown_books", "return_book changes nothing",
    "right scenarios/library/0/0", "solution_fails", "check always_true",
)  # fmt: skip


def test_what_a_switch_lets_through_fails_afterwards() -> None:
    found = {
        (switches.name, kind): (count.given, count.accepted, len(count.failed))
        for switches, kind, count in count_all(lambda name: name in CASES)
    }
    assert found == {
        (ALL_ON.name, "tools"): (4, 1, 0),
        (ALL_ON.name, "environments"): (1, 1, 0),
        (ALL_ON.name, "tasks"): (6, 2, 0),
        (UNEXECUTED.name, "tools"): (4, 3, 2),
        (UNEXECUTED.name, "tasks"): (6, 6, 4),
        (UNCHECKED.name, "environments"): (1, 1, 1),
    }


def test_every_wrong_method_is_a_case() -> None:
    assert set(METHODS) < set(list_methods())
    assert set(CASES) & set(list_methods()) == {"right get_member", "uses_network", "no_refusal", "lends_unknown_books"}
