"""Solution functions reach a gym through its tools alone; the oracle's calls earn the reward in the pack."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from simia.synthesis.design import GymInstance
from simia.synthesis.gyms.function_runs import FunctionLimits, FunctionRun, FunctionRunner
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump, read_python
from simia.synthesis.stages.gym_solutions import SolutionSettings, SolutionStage
from tests.synthesis.gym_replies import FIXTURES, make_gym, run_stage


def make_instance(name: str, size: int, target: int) -> dict[str, Any]:
    numbers = [n * n for n in range(size)]
    answer = min(numbers, key=lambda number: (abs(number - target), number))
    inputs = {"numbers": numbers, "target": target}
    return dump(GymInstance(id=name, level=name.split("-")[0], inputs=inputs, answer=answer))


INSTANCES = [
    make_instance("easy-01", 3, 2),
    make_instance("medium-01", 6, 17),
    make_instance("hard-01", 9, 50),
    make_instance("hard-02", 12, 90),
]


def solve(*solvers: str, code: str = "gym_code.py", **settings: Any) -> tuple[Any, dict[str, Any]]:
    given = {"gym": dump(make_gym(code=code)), "instances": INSTANCES}
    files = {f"solution{n}": f"solver_{name}.md" for n, name in enumerate(solvers)}
    limits = FunctionLimits(seconds=1, calls=60)
    stage = SolutionStage(SolutionSettings(k=len(solvers), limits=limits, **settings))
    found, notes, _ = run_stage(stage, given, files | {"observe_only0": "observer_that_guesses.md"})
    return found, notes


def test_one_of_k_functions_is_right() -> None:
    found, notes = solve("for_easy_inputs", "that_never_ends", "right", "right")
    assert found["oracle"].startswith("def solve_by_calls(call):\n    size = ")
    assert len(found["solvers"]) == 3
    assert [each["id"] for each in found["instances"]] == ["medium-01", "hard-01", "hard-02"]  # 8, 14, 20 and 26 calls
    calls = found["instances"][0]["calls"]
    assert len(calls) == 14
    assert calls[0] == {"name": "observe", "arguments": {}}
    assert calls[-1] == {"name": "done", "arguments": {"answer": 16}}
    assert (notes["k"], notes["passed"], notes["oracle_tools"], notes["kept"]) == (4, 2, 4, 3)
    assert notes["failures"] == ["a wrong answer", "timed_out: more than 1 s"]


def test_no_function_reaches_the_state_or_runs_for_ever() -> None:
    solvers = ("that_cheats", "that_calls_for_ever", "that_forges", "that_guesses")
    with pytest.raises(Refused) as refused:
        solve(*solvers)
    assert refused.value.reason is Reason.NOT_SOLVED
    assert refused.value.detail.startswith("the best of 4 different functions solves 0 of 4 inputs, then: ")


@pytest.mark.parametrize(
    ("solver", "why"),
    [
        ("that_cheats", "raised: SystemExit: nothing in "),
        ("that_calls_for_ever", "too_many_calls: more than 60 calls"),
        ("that_forges", "crashed: the process sent what is no call"),
    ],
)
def test_how_a_hostile_function_ends(solver: str, why: str) -> None:
    with pytest.raises(Refused, match=f"then: {why}"):
        solve(solver)


CONTROL = """

class World:
    def __init__(self):
        self.state = {"numbers": [1, 5, 9], "target": 6}
        self.submitted = None

    def call(self, name, /, **arguments):
        self.submitted = arguments.get("answer")


def control():
    world = World()
    solve_by_calls(world.call)
    return world.submitted
"""


def test_the_function_that_cheats_finds_a_state_in_its_own_process(tmp_path: Path) -> None:
    source = read_python((FIXTURES / "solver_that_cheats.md").read_text()) + CONTROL

    async def run() -> FunctionRun:
        async with FunctionRunner(tmp_path / "functions", FunctionLimits()) as runner:
            return await runner.run(source, "control", {})

    assert asyncio.run(run()).value == 5


def test_an_oracle_that_needs_too_few_tools_or_calls() -> None:
    with pytest.raises(Refused) as refused:
        solve("with_three_tools")
    assert refused.value.reason is Reason.FEW_TOOLS_USED
    assert "done, look_up, observe" in refused.value.detail
    found, _ = solve("with_three_tools", "right")  # of two that pass, the one that uses the tools
    assert "measure_distance" in found["oracle"]
    with pytest.raises(Refused) as refused:
        solve("right", least_calls=100)
    assert refused.value.reason is Reason.CALLS_OUT_OF_BOUNDS
    found, _ = solve("right", most_calls=20)
    assert [each["id"] for each in found["instances"]] == ["medium-01", "hard-01"]


def test_an_observation_that_reveals_the_inputs() -> None:
    with pytest.raises(Refused) as refused:
        solve("that_guesses", code="gym_code_that_reveals.py")
    assert refused.value.reason is Reason.NOT_SOLVED  # it looks up where it may
    with pytest.raises(Refused) as refused:
        solve("that_reads_the_observation", "that_guesses", code="gym_code_that_reveals.py", observe_only=0)
    assert refused.value.reason is Reason.OBSERVE_SUFFICES
    assert refused.value.detail == "one solver answers 2 of 2 hard inputs without any other tool"
    with pytest.raises(Refused) as refused:
        solve("that_looks_up_all", code="gym_code_that_reveals.py")
    assert refused.value.detail == "one observer answers 2 of 2 hard inputs without any other tool"


def test_a_gym_whose_episodes_differ_is_refused_by_the_gate() -> None:
    with pytest.raises(Refused) as refused:
        solve("right", code="gym_code_with_a_nonce.py")
    assert refused.value.reason is Reason.GYM_GATE_REFUSES
    assert "not_repeatable" in refused.value.detail
