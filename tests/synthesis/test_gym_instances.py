"""Test inputs of a gym: made in the sandbox, answered under limits, refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.synthesis.design import GymEnvironment
from simia.synthesis.gyms.function_runs import FunctionLimits
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stages.gym_instances import InstanceSettings, InstanceStage
from tests.synthesis.gym_replies import make_gym, run_stage

LIMITS = FunctionLimits(seconds=1)


def make_instances(gym: GymEnvironment, *files: str, seed: int = 0, repairs: int = 0):
    labels = ["inputs0", "inputs1"] if len(files) == 2 else ["inputs0", "inputs0-repair1", "inputs1"]
    stage = InstanceStage(InstanceSettings(limits=LIMITS, repairs=repairs), seed=seed)
    return run_stage(stage, dump(gym), dict(zip(labels, files, strict=True)))


def test_generated_and_literal_inputs_are_answered_by_the_solution() -> None:
    found, notes, replies = make_instances(make_gym(), "inputs_good.md", "inputs_literal.md")
    instances = found["instances"]
    assert notes == {"proposed": 30, "valid": 30, "faults": {}}
    assert [each["id"] for each in instances][:6] == [f"easy-0{n}" for n in range(1, 6)] + ["medium-01"]
    assert instances[-1] == {
        "id": "hard-10", "level": "hard", "answer": 41,
        "inputs": {"numbers": [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41], "target": 40},
    }  # fmt: skip
    assert '{"numbers": [4], "target": 4}' in replies.prompts["inputs1"]
    again, _, _ = make_instances(make_gym(), "inputs_good.md", "inputs_literal.md")
    assert again == found
    other, _, _ = make_instances(make_gym(), "inputs_good.md", "inputs_literal.md", seed=1)
    assert other != found


def test_a_reference_solution_that_is_too_slow_for_hard_inputs() -> None:
    with pytest.raises(Refused) as refused:
        make_instances(make_gym(solution="solution_too_slow.py"), "inputs_literal.md", "inputs_literal.md")
    assert refused.value.reason is Reason.TOO_FEW_INPUTS
    assert "timed_out" in refused.value.detail


def test_inputs_that_break_the_schema() -> None:
    with pytest.raises(Refused) as refused:
        make_instances(make_gym(), "inputs_breaking_the_schema.md", "inputs_breaking_the_schema.md")
    assert refused.value.reason is Reason.TOO_FEW_INPUTS
    assert refused.value.detail.startswith("valid: 9 of 15 inputs; schema: ")


def test_random_inputs_without_the_seed_are_written_again() -> None:
    found, _, replies = make_instances(
        make_gym(), "inputs_without_seed.md", "inputs_good.md", "inputs_literal.md", repairs=1
    )
    assert len(found["instances"]) == 30
    assert "two runs made different inputs" in replies.prompts["inputs0-repair1"]
    with pytest.raises(Refused, match="two runs made different inputs"):
        make_instances(make_gym(), "inputs_without_seed.md", "inputs_without_seed.md")


def test_hostile_code_and_equal_inputs_make_nothing() -> None:
    with pytest.raises(Refused, match="valid: 1 of 1 input"):
        make_instances(make_gym(), "inputs_hostile.md", "inputs_hostile.md")
    assert not Path("/tmp/simia-was-here").exists()
