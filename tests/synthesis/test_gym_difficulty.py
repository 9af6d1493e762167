"""Pass rates of a named agent, and enlarged inputs that the oracle solves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from simia.synthesis.gyms.function_runs import FunctionLimits
from simia.synthesis.gyms.gym_inputs import InputSettings
from simia.synthesis.gyms.gym_results import collect_instances
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump, read_python
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.gym_difficulty import DifficultyStage, GymDifficultySettings
from simia.synthesis.stages.gym_hard import HardSettings, HardStage
from tests.synthesis.gym_replies import FIXTURES, make_gym, run_stage
from tests.synthesis.test_gym_solutions import INSTANCES

LIMITS = FunctionLimits(seconds=2)
REVEALING = "gym_code_that_reveals.py"
LLM = GymDifficultySettings.model_validate({"agent": "llm", "attempts": 2, "sampling": {"calls": "hermes"}})


def measure(settings: GymDifficultySettings, instances: list[dict[str, Any]] = INSTANCES) -> tuple[Any, dict[str, Any]]:
    given = {"gym": dump(make_gym()), "instances": instances}
    name = "small-model" if settings.agent == "llm" else settings.agent or ""
    stage = DifficultyStage(settings, name, limits=LIMITS)
    found, notes, _ = run_stage(stage, given, {"*": "agent_that_guesses_49.md"})
    return found["instances"], notes


def test_without_an_agent_nothing_is_measured() -> None:
    found, notes = measure(GymDifficultySettings())
    assert found == INSTANCES
    assert notes == {"agent": "not measured"}


def test_a_model_is_measured_under_its_name() -> None:
    found, notes = measure(LLM)  # it answers 49 always, which is right for hard-01 alone
    assert [each["id"] for each in found] == ["easy-01", "medium-01", "hard-02"]
    assert found[0]["measured"] == {"small-model": {"n": 2, "solved": 0}}
    assert notes == {"agent": "small-model", "attempts": 2, "pass_rate": 0.25, "hard_enough": 3}
    with pytest.raises(Refused) as refused:
        measure(LLM, INSTANCES[2:3])
    assert refused.value.reason is Reason.TOO_EASY
    assert refused.value.detail == "small-model solves 100% of 2 attempts an input"


def test_a_baseline_is_measured() -> None:
    found, notes = measure(GymDifficultySettings(agent="nothing"), INSTANCES[:1])
    assert found[0]["measured"] == {"nothing": {"n": 4, "solved": 0}}
    assert notes["agent"] == "nothing"


def read_function(name: str) -> str:
    return read_python((FIXTURES / f"{name}.md").read_text())


def enlarge(
    difficulty: GymDifficultySettings,
    code: str = "gym_code.py",
    solvers: Sequence[str] = (),
    observers: Sequence[str] = (),
    **settings: Any,
) -> tuple[Any, dict[str, Any]]:
    """Run the stage; `solvers`, `observers`: fixtures with the functions of stage `solutions`."""
    solved = {
        "oracle": read_function("solver_that_looks_up_all" if code == REVEALING else "solver_right"),
        "instances": [{**INSTANCES[0], "calls": [{"name": "observe", "arguments": {}}]}],
        "solvers": list(map(read_function, solvers)),
        "observers": list(map(read_function, observers)),
    }
    given = {"gym": dump(make_gym(code=code)), "solved": solved}
    hard = HardSettings(inputs=3, attempts=2, **settings)
    stage = HardStage(hard, InputSettings(limits=LIMITS), difficulty, "small-model", least_calls=10)
    files = {"scaled": "inputs_scaled.md", "*": "agent_that_guesses_49.md"}
    found, notes, _ = run_stage(stage, given, files)
    return found["instances"], notes


def test_enlarged_inputs_that_the_oracle_solves_are_kept() -> None:
    found, notes = enlarge(LLM)
    assert [(each["id"], len(each["calls"])) for each in found] == [("augmented-01", 82), ("augmented-02", 122)]
    assert {each["level"] for each in found} == {"augmented"}
    assert found[1]["measured"] == {"small-model": {"n": 2, "solved": 0}}
    assert (notes["valid"], notes["solved"], notes["kept"]) == (3, 3, 2)  # the third takes 602 calls
    with pytest.raises(Refused) as refused:
        enlarge(GymDifficultySettings(), most_calls=50)
    assert refused.value.reason is Reason.CALLS_OUT_OF_BOUNDS
    assert refused.value.detail == "calls of the oracle: 82, 122, 602; wanted are 10 to 50"


@pytest.mark.parametrize(
    "found_by",
    [{"solvers": ["solver_right", "solver_that_reads_the_observation"]}, {"observers": ["observer_that_guesses"]}],
)
def test_enlarged_inputs_that_observe_answers_are_dropped(found_by: dict[str, list[str]]) -> None:
    with pytest.raises(Refused) as refused:
        enlarge(GymDifficultySettings(), code=REVEALING, **found_by)
    assert refused.value.reason is Reason.OBSERVE_SUFFICES
    assert refused.value.detail == "all enlarged inputs are answered without any other tool"


def test_the_check_of_enlarged_inputs_can_be_left_out() -> None:
    found, notes = enlarge(
        GymDifficultySettings(), code=REVEALING, observers=["observer_that_guesses"], observe_check=False
    )
    assert len(found) == 2
    assert "answered_by_observe" not in notes


def test_only_the_enlarged_inputs_that_observe_answers_are_dropped() -> None:
    """An observer that is right by chance costs one input."""
    found, notes = enlarge(GymDifficultySettings(), observers=["observer_that_is_lucky_once"])
    assert [each["id"] for each in found] == ["augmented-02"]
    assert (notes["kept"], notes["answered_by_observe"], notes["gate_tried"], notes["gate_passed"]) == (2, 1, 1, 1)


def test_the_pack_gets_what_passed_the_last_stage() -> None:
    made = {
        "solutions": {"closest-number": {"instances": INSTANCES[:2]}},
        "hard": {"closest-number": {"instances": INSTANCES[3:]}},
    }
    assert [each.id for each in collect_instances(StageOutputs(made), "closest-number")] == [
        "easy-01",
        "medium-01",
        "hard-02",
    ]
    measured = {**made, "difficulty": {"closest-number": {"instances": INSTANCES[:1]}}}
    assert [each.id for each in collect_instances(StageOutputs(measured), "closest-number")] == ["easy-01", "hard-02"]
