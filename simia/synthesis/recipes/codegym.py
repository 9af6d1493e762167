"""The recipe CodeGym: coding problems with solutions become environments with hidden inputs, one pack for each problem."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from simia.errors import UserError
from simia.pack_provenance import PackProvenance, SourceQuote
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.function_runs import FunctionLimits
from simia.synthesis.gym_writing import write_gym
from simia.synthesis.problem_files import SourceProblem, read_problems
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Expectation, Stage, StageOutputs
from simia.synthesis.stages.gyms import GymStage
from simia.synthesis.stages.problems import ProblemStage

INDEX = """\
# All gyms of this folder in one environment. Start in the folder above this one: simia rollout --config {name}/packs.yaml
extends: rollout/default
packs: [{packs}]
episode: {{turns: {turns}}}
"""
MOST_TURNS = 600
"""Above the calls that a task allows: the task's own limit holds."""


class CodeGymConfig(SynthesisConfig):
    """Settings of the recipe CodeGym. Its `source` is a file, a folder or a data set of coding problems with solutions."""

    recipe: Literal["codegym"] = Field("codegym", description="Name of the recipe.")
    problems: int | None = Field(default=None, ge=1)
    """How many rows of the source are read; unset: all."""
    repairs: int = Field(default=3, ge=0)
    """Rounds in which the model may correct a solution or a gym that failed when it was executed."""
    least_tools: int = Field(default=2, ge=0)
    """Tools that a gym has at least, besides `observe` and `done`."""
    functions: FunctionLimits = Field(default_factory=FunctionLimits)
    """What one run of a solution may take (CodeGym §3.3.2)."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the gyms whose tasks are of the split `test` (CodeGym §5.2 keeps 500 of 13,116)."""


class CodeGymRecipe:
    """The stages of CodeGym, and its packs."""

    name = "codegym"

    def __init__(self, config: CodeGymConfig) -> None:
        """Read the problems. Raises `UserError` where the source has none."""
        if not config.source:
            raise UserError("codegym: name a file of problems: simia synth codegym problems.jsonl --out FOLDER")
        self._config = config
        self._problems = read_problems(config.source, limit=config.problems)

    def list_stages(self) -> Sequence[Stage]:
        config = self._config
        return [
            ProblemStage(self._problems, config.functions, repairs=config.repairs),
            GymStage(repairs=config.repairs, least_tools=config.least_tools),
        ]

    def expected(self) -> Mapping[str, int | Expectation]:
        """What each stage is expected to ask, for a dry run."""
        count = len(self._problems)
        return {"problems": Expectation(count, 1500, 700), "gyms": Expectation(2 * count, 2600, 1800)}

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write a pack for each gym with instances, and `packs.yaml`, which names them all."""
        out.mkdir(parents=True)
        sources = {problem.id: problem for problem in self._problems}
        packs: list[Path] = []
        for key, value in outputs.of("gyms").items():
            if instances := list_instances(outputs, key):
                gym = GymEnvironment.model_validate(value)
                split = choose_split(key, self._config.seed, self._config.test_share)
                write_gym(out / key, gym, instances, split=split, provenance=name_provenance(sources[key]))
                packs.append(out / key)
        if packs:
            names = ", ".join(f"{out.name}/{pack.name}" for pack in packs)
            index = INDEX.format(name=out.name, packs=names, turns=MOST_TURNS)
            (out / "packs.yaml").write_text(index, encoding="utf-8")
        return packs


def list_instances(outputs: StageOutputs, key: str) -> list[GymInstance]:
    """The verified instances of a gym."""
    return [GymInstance.model_validate(each) for each in outputs.of("difficulty").get(key, [])]


def choose_split(key: str, seed: int, share: float) -> str:
    """The split of a gym, by its name: the same for the same seed, whatever other gyms there are."""
    number = int.from_bytes(hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest(), "big")
    return "test" if number < share * 2**64 else "train"


def name_provenance(problem: SourceProblem) -> PackProvenance:
    return PackProvenance(recipe="codegym", sources=[SourceQuote(name=problem.source, licence=problem.licence)])
