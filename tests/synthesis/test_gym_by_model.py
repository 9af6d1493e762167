"""The verification of a gym with replies of a small local model: every question is decided, and what is accepted earns its reward."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.llm.embedded import EmbeddedSettings
from simia.synthesis import session
from simia.synthesis.gyms.gym_results import INSTANCES, SOLUTIONS, collect_instances
from simia.synthesis.gyms.gym_writing import write_gym
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SamplingSettings, SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.gym_instances import InstanceSettings, InstanceStage
from simia.synthesis.stages.gym_solutions import SolutionSettings, SolutionStage
from tests.synthesis.gym_replies import make_gym

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
