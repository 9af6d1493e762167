"""The recipe CodeGym: coding problems with solutions become environments with hidden inputs, one pack for each problem."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from simia.errors import UserError
from simia.formats.data_sets import is_data_set
from simia.pack_provenance import PackProvenance, SourceQuote
from simia.search_path import find_named_resource
from simia.synthesis.design import GymEnvironment
from simia.synthesis.gyms.gym_results import collect_instances
from simia.synthesis.gyms.gym_writing import write_gym
from simia.synthesis.gyms.problem_code import adopt_unified
from simia.synthesis.gyms.problem_files import SourceProblem, list_problem_files, read_problems
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Expectation, Stage, StageOutputs
from simia.synthesis.stages.gym_difficulty import AGENT_ROLE, DifficultyStage, GymDifficultySettings, name_agent
from simia.synthesis.stages.gym_hard import HardSettings, HardStage
from simia.synthesis.stages.gym_instances import PER_QUESTION, InstanceSettings, InstanceStage
from simia.synthesis.stages.gym_solutions import SolutionSettings, SolutionStage
from simia.synthesis.stages.gyms import GymStage
from simia.synthesis.stages.problems import ProblemStage

INDEX = """\
# All gyms of this folder in one environment. Start in this folder: simia rollout --config packs.yaml
extends: rollout/default
packs: [{packs}]
episode: {{turns: {turns}}}
"""
MOST_TURNS = 600
"""More than any task allows, so that the task's own limit applies."""
EPISODE_CALLS, HARD_EPISODE_CALLS = 44, 180
"""Assumed calls of an agent's episode, for a dry run: the mean of CodeGym's figure 4, and four times as many on an enlarged input."""


class CodeGymConfig(SynthesisConfig):
    """Settings of `simia synth codegym`. Its `source` is a file, a folder or a data set of coding problems with solutions."""

    recipe: Literal["codegym"] = Field("codegym", description="Name of the recipe.")
    problems: int | None = Field(default=None, ge=1)
    """Maximum number of rows to read from the source. null: all."""
    repairs: int = Field(default=3, ge=0)
    """Maximum number of rounds in which the model corrects a solution or a gym that failed when it was executed."""
    least_tools: int = Field(default=2, ge=0)
    """Minimum number of tools of a gym, besides `observe` and `done`."""
    instances: InstanceSettings = Field(default_factory=InstanceSettings)
    """Test inputs, and the limits of one run of a problem's solution."""
    solutions: SolutionSettings = Field(default_factory=SolutionSettings)
    """Solution functions, which use only tools, and the numbers of calls and tools that they must use."""
    difficulty: GymDifficultySettings = Field(default_factory=GymDifficultySettings)
    """The agent that measures which inputs are too easy."""
    hard: HardSettings = Field(default_factory=HardSettings)
    """Enlarged inputs."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the gyms whose tasks are in the split `test` (0 to 1). CodeGym §5.2 holds out 500 of 13,116 gyms."""


class CodeGymRecipe:
    """The stages of CodeGym, and its packs."""

    name = "codegym"

    def __init__(self, config: CodeGymConfig) -> None:
        """Read the problems. Raises `UserError` if the source has none."""
        if not config.source:
            raise UserError("codegym: name a file of problems: simia synth codegym problems.jsonl --out FOLDER")
        self._config = config
        self._problems = read_problems(config.source, limit=config.problems)

    def list_stages(self) -> Sequence[Stage]:
        config = self._config
        agent = name_agent(config.difficulty, config)
        least = config.solutions.least_calls
        return [
            ProblemStage(self._problems, config.instances.limits, repairs=config.repairs),
            GymStage(repairs=config.repairs, least_tools=config.least_tools),
            InstanceStage(config.instances, seed=config.seed),
            SolutionStage(config.solutions),
            DifficultyStage(config.difficulty, agent, limits=config.solutions.limits),
            HardStage(config.hard, config.instances, config.difficulty, agent, least_calls=least, seed=config.seed),
        ]

    def list_source_files(self) -> Mapping[str, Path]:
        """The files of a folder of problems, by their names in it; empty for another source."""
        folder = Path(self._config.source).expanduser()
        bundled = is_data_set(self._config.source) or find_named_resource("seeds", self._config.source) is not None
        if bundled or not folder.is_dir():
            return {}
        return {path.relative_to(folder).as_posix(): path for path in list_problem_files(folder)}

    def list_faults(self) -> list[str]:
        """The problems that cannot be used, with file and line, for a dry run."""
        return [problem.detail for problem in self._problems if problem.reason]

    def expected(self) -> Mapping[str, int | Expectation]:
        """What each stage is expected to ask, for a dry run, if nothing is refused. The agent's part is the largest by far."""
        config, count = self._config, sum(not problem.reason for problem in self._problems)
        asked = sum(adopt_unified(problem) is None for problem in self._problems if not problem.reason)
        played = count if config.difficulty.agent == "llm" else 0
        episodes = played * config.instances.questions * PER_QUESTION * config.difficulty.attempts
        hard_episodes = played * config.hard.inputs * config.hard.attempts
        return {
            "problems": Expectation(asked, 1500, 700),
            "gyms": Expectation(2 * count, 2600, 1800),
            "instances": Expectation(config.instances.questions * count, 1500, 900),
            "solutions": Expectation((config.solutions.k + config.solutions.observe_only) * count, 1200, 600),
            "difficulty": Expectation(episodes * EPISODE_CALLS, 3500, 60, AGENT_ROLE),
            "hard": Expectation(count if config.hard.inputs else 0, 1500, 900),
            "hard, agent": Expectation(hard_episodes * HARD_EPISODE_CALLS, 9000, 60, AGENT_ROLE),
        }

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write a pack for each gym with instances, and `packs.yaml`, which names them all."""
        out.mkdir(parents=True)
        sources = {problem.id: problem for problem in self._problems}
        packs: list[Path] = []
        for key, value in outputs.of("gyms").items():
            if instances := collect_instances(outputs, key):
                gym = GymEnvironment.model_validate(value)
                split = choose_split(key, self._config.seed, self._config.test_share)
                write_gym(out / key, gym, instances, split=split, provenance=name_source(outputs.origin, sources[key]))
                packs.append(out / key)
        if packs:
            names = ", ".join(f"./{pack.name}" for pack in packs)
            index = INDEX.format(packs=names, turns=MOST_TURNS)
            (out / "packs.yaml").write_text(index, encoding="utf-8")
        return packs


def choose_split(key: str, seed: int, share: float) -> str:
    """Choose the split of a gym by its name and the seed, independent of the other gyms."""
    number = int.from_bytes(hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest(), "big")
    return "test" if number < share * 2**64 else "train"


def name_source(origin: PackProvenance, problem: SourceProblem) -> PackProvenance:
    """The provenance of a problem's pack."""
    return origin.model_copy(update={"sources": [SourceQuote(name=problem.source, licence=problem.licence)]})
