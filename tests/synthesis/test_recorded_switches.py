"""eval/ablations/recorded_switches.py: what execution and the check agent find in replies of a strong model."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.ablations.recorded_switches import RECORDING, SETTINGS, SOURCE, SWITCHES, count_accepted, replay_recording
from simia.synthesis.reasons import Reason
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import Refusal, StageOutputs
from tests.synthesis.build_fixtures import load_library
from tests.synthesis.test_assessment import break_tool


def count(outputs: StageOutputs) -> dict[str, tuple[int, int, int]]:
    return {kind: (each.given, each.accepted, len(each.failed)) for kind, each in count_accepted(outputs).items()}


def test_what_fails_when_it_is_executed_or_gated_is_counted() -> None:
    built = load_library()
    tools = {f"library/{name}": {} for name in built.tools}
    notes = {"assessment": {"library": {"rounds": 9, "passed": 6, "failures": [{"call": "pay_fine()"}]}}}
    refused = {"gated": {"library/0/1/conversation": Refusal(Reason.REFERENCE_FAILS, "it earns 0.5")}}
    made = {
        "tools": tools,
        "environments": {"library": dump(built)},
        "gated": {"library/0/0/conversation": {}},
        "variants": {"library/0/0/missing_function": {}},
    }
    assert count(StageOutputs(made=made, refused=refused, notes=notes)) == {
        "tools": (7, 7, 0),
        "rounds": (9, 6, 1),
        "tasks": (2, 2, 1),
        "variants": (1, 1, 0),
    }
    broken = dump(break_tool("return_book changes nothing"))
    assert count(StageOutputs(made={**made, "assessment": {"library": broken}}))["tools"] == (7, 7, 1)


@pytest.mark.all
@pytest.mark.parametrize(
    ("name", "tools", "tasks"),
    [
        ("building", (33, 33, 2), (24, 24, 0)),
        ("scenarios", (33, 33, 0), (24, 24, 22)),
        ("agent", (33, 33, 0), (24, 24, 0)),
    ],
)
def test_the_recorded_hotel_without_a_switch(
    tmp_path: Path, name: str, tools: tuple[int, int, int], tasks: tuple[int, int, int]
) -> None:
    done = replay_recording(RECORDING, SOURCE, (*SETTINGS, *SWITCHES[name]), tmp_path)
    assert done.stop.kind == "complete", done.stop
    found = count(done.outputs)
    assert (found["tools"], found["tasks"]) == (tools, tasks)
    assert found["rounds"] == (12, 11, 0)
