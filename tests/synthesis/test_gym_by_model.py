"""The verification of a gym with replies of a small local model: every question is decided, and what is accepted earns its reward."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.config import load_config
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.jobs import Run
from simia.llm.embedded import EmbeddedBackend, EmbeddedSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.prices import FREE
from simia.synthesis import session
from simia.synthesis.context import ItemContext
from simia.synthesis.gyms.function_runs import FunctionLimits
from simia.synthesis.gyms.gym_results import INSTANCES, SOLUTIONS, collect_instances
from simia.synthesis.gyms.gym_writing import write_gym
from simia.synthesis.reasons import Reason
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.recipes.codegym import CodeGymConfig
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SamplingSettings, SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stage_figures import cost_by_stage
from simia.synthesis.stages.gym_difficulty import DifficultyStage, GymDifficultySettings
from simia.synthesis.stages.gym_instances import InstanceSettings, InstanceStage
from simia.synthesis.stages.gym_solutions import SolutionSettings, SolutionStage
from tests.synthesis.gym_replies import make_gym
from tests.synthesis.test_gym_solutions import INSTANCES as INPUTS

KEY = "closest-number"


class GymOfFixture:
    name = "gyms"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(KEY, None)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return dump(make_gym())


class VerificationRecipe:
    name = "verification"

    def __init__(self, config: SynthesisConfig) -> None: ...

    def list_stages(self) -> Sequence[Any]:
        instances = InstanceStage(InstanceSettings(questions=1, least=5, share=0.5))
        return [GymOfFixture(), instances, SolutionStage(SolutionSettings(k=2, least_calls=3))]

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        out.mkdir(parents=True)
        instances = collect_instances(outputs, KEY)
        if instances:
            write_gym(out / KEY, make_gym(), instances)
        return [out / KEY] if instances else []


@pytest.mark.all  # two minutes of both cores
def test_two_solutions_by_a_small_model(local_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "verification", RecipeKind(SynthesisConfig, VerificationRecipe))
    config = SynthesisConfig(
        recipe="verification",
        llm=EmbeddedSettings(model=str(local_model)),
        sampling=SamplingSettings(tries=2, max_tokens=800),
    )
    start = session.start_synthesis(config, tmp_path / "out", runs=tmp_path / "runs", name="one", say=print)
    done = asyncio.run(start)
    assert done.stop.kind == "complete"
    outputs = done.outputs
    print(
        {
            stage: [outputs.of(stage), outputs.refused.get(stage), outputs.notes.get(stage)]
            for stage in (INSTANCES, SOLUTIONS)
        }
    )
    assert set(outputs.of(INSTANCES)) | set(outputs.refused.get(INSTANCES, {})) == {KEY}
    if outputs.of(INSTANCES):
        assert set(outputs.of(SOLUTIONS)) | set(outputs.refused.get(SOLUTIONS, {})) == {KEY}
        assert outputs.notes[INSTANCES][KEY]["valid"] >= 5
    assert bool(done.packs) == bool(outputs.of(SOLUTIONS))
    for pack in done.packs:
        rows = (pack / "tasks.jsonl").read_text().splitlines()
        assert len(rows) == outputs.notes[SOLUTIONS][KEY]["gate_passed"]


def test_an_agent_beyond_its_context_has_not_solved_an_input(weights: Path) -> None:
    """The endpoint refuses the request, as it is longer than what the model takes: this ends the episode and says nothing against the gym."""
    settings = GymDifficultySettings(agent="llm", attempts=2, sampling=LLMAgentSettings(calls="hermes", max_tokens=64))
    model = EmbeddedSettings(model=str(weights), context=256, threads=1)

    async def measure() -> tuple[Any, dict[str, Any]]:
        backend = EmbeddedBackend(model, say=lambda _: None)
        async with Engine(backend, limits=EngineLimits(), price=FREE) as engine:
            context: Any = ItemContext("item", {"writer": engine}, SamplingSettings(), asyncio.Semaphore(2))
            stage = DifficultyStage(settings, "smollm2-135m", limits=FunctionLimits(seconds=2))
            made = await stage.make(StageInput(KEY, {"gym": dump(make_gym()), "instances": INPUTS[:1]}), context)
            return made["instances"], context.notes

    found, notes = asyncio.run(measure())
    assert found[0]["measured"] == {"smollm2-135m": {"n": 2, "solved": 0}}
    assert notes["pass_rate"] == 0


@pytest.mark.all
def test_a_shipped_problem_by_a_small_model(local_model: Path, tmp_path: Path) -> None:
    """The recipe from the problem on, K = 2: whatever the model writes, every item is decided, and the stages count what was stored."""
    settings = (
        "llm.kind=embedded", f"llm.model={local_model}", "problems=1", "repairs=0", "solutions.k=2", "sampling.tries=2", "sampling.max_tokens=1200",
    )  # fmt: skip
    config = load_config(CodeGymConfig, "synth/codegym_small", settings)
    start = session.start_synthesis(config, tmp_path / "out", runs=tmp_path / "runs", name="one", say=print)
    done = asyncio.run(start)
    assert done.stop.kind == "complete"
    stages = {each.name: each for each in done.figures.stages}
    print([(each.name, each.inputs, each.made, each.refused, each.questions) for each in done.figures.stages])
    assert stages["problems"].made == 1
    assert 1 <= stages["gyms"].questions <= 2
    assert all(each.open == 0 for each in done.figures.stages)
    assert {reason for each in stages.values() for reason in each.refused} <= set(Reason) - {Reason.INTERNAL}
    with contextlib.closing(Run.read_only(tmp_path / "runs", "one")) as run:
        stored = {each.name: each for each in cost_by_stage(run)}
    assert stored == {name: each for name, each in stages.items() if each.inputs}
    assert len(done.packs) == stages["difficulty"].made
