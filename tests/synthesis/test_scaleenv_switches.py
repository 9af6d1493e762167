"""eval/ablations/scaleenv_switches.py: without execution, tasks are accepted that the gate refuses, or that show a tool which cannot be used."""

from __future__ import annotations

from eval.ablations.scaleenv_switches import EVERYTHING, UNREFINED, UNVERIFIED, count_task_switches

CASES = ("right lend, one tool unusable", "wrong only_reads")


def test_what_a_switch_lets_through_is_wrong() -> None:
    found = {
        switches.name: (count.given, count.accepted, len(count.refused), len(count.unusable), count.shown)
        for switches, count in count_task_switches(lambda name: name in CASES)
    }
    assert found == {
        EVERYTHING.name: (2, 1, 0, 0, 7),
        UNREFINED.name: (2, 1, 0, 0, 6),
        UNVERIFIED.name: (2, 2, 1, 1, 14),
    }
