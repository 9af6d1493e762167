"""eval/ablations/scaleenv_switches.py: without execution, tasks are accepted that the gate refuses, or that show a tool which cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.ablations import recorded_refinement
from eval.ablations.recorded_refinement import ARMS, count_arm, read_arms, replay_arm
from eval.ablations.scaleenv_switches import (
    EVERYTHING,
    LIBRARY_GRAPH,
    SAMPLED,
    UNREFINED,
    UNVERIFIED,
    count_samplers,
    count_task_switches,
    list_sampled,
    sample_by_topology,
    sample_by_walk,
)
from simia.pack import Pack
from simia.synthesis.graph.sampling import find_unsatisfied

RESULTS = Path(recorded_refinement.__file__).parent / "results"

CASES = ("right lend, one tool unusable", "wrong only_reads")


@pytest.mark.all
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


def test_a_walk_that_lacks_an_input_makes_a_task_only_with_another_tool() -> None:
    found = {
        each.sampler: (each.given, each.unsatisfied, each.accepted, each.passed)
        for each in count_samplers(lambda name: name in ("list_loans renew_loan", "renew_loan"))
    }
    assert found == {
        "topology-aware": (1, 0, 1, 1),
        "random walk, its tools alone": (2, 1, 1, 1),
        "random walk, other tools may be called": (2, 1, 2, 2),
    }


def test_a_chain_is_written_for_all_that_the_samplers_give() -> None:
    topology, walks = list_sampled(sample_by_topology), list_sampled(sample_by_walk)
    assert {*topology, *walks} == set(SAMPLED)
    lacking = {name for name, tools in (topology | walks).items() if find_unsatisfied(LIBRARY_GRAPH, tools)}
    assert lacking == {name for name, case in SAMPLED.items() if "filled" in case}
    assert lacking.isdisjoint(topology)


def test_stored_refinement_gives_the_stored_counts_and_the_shipped_pack() -> None:
    arms = read_arms(RESULTS)
    assert [arm.arm for arm in arms] == list(ARMS)
    rows = json.loads((RESULTS / "scaleenv_accepted.json").read_text())["rows"]
    assert [row for row in rows if row["arm"] in ARMS] == [row for arm in arms for row in count_arm(arm)]
    assert arms[0].shown == {task.id: len(task.tools or ()) for task in Pack.load("job_seeking").tasks}


@pytest.mark.all
def test_without_refinement_fewer_tools_are_shown_and_a_task_is_lost() -> None:
    recorded, unrefined = read_arms(RESULTS)
    assert replay_arm(unrefined.arm) == unrefined
    assert len(unrefined.shown) < len(recorded.shown)
    assert all(unrefined.shown[task] <= recorded.shown[task] for task in unrefined.shown)
