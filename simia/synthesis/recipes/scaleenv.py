"""ScaleEnv: build tested tools and their graph for a domain, make tasks from chains of the graph, and expand each task's environment until
all its tools execute (ScaleEnv §4).

Stages: `design`, `examples`, `tools`, `environments`, `graph`, `chains`, `expansions`, `instructions`, `verdicts`, `gated`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import Field, model_validator

from simia.errors import UserError
from simia.pack_provenance import SourceQuote
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.sampling import ChainSampling, sample_chain, walk_randomly
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Expectation, Stage, StageInput, StageOutputs
from simia.synthesis.stages.chains import ChainSettings, ChainStage, Sampler
from simia.synthesis.stages.design import DesignStage, make_name
from simia.synthesis.stages.environments import EnvironmentStage
from simia.synthesis.stages.examples import ExampleStage
from simia.synthesis.stages.expansions import Expansions, ExpansionSettings
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.graph import GraphStage
from simia.synthesis.stages.instructions import ChainTasks, Instructions
from simia.synthesis.stages.tools import ToolStage
from simia.task import Task

ROLLOUT = """\
# All packs of this synthesis in one environment. Start in the folder above this one: simia rollout --config {name}/rollout.yaml
extends: rollout/default
"""
TRAINING = """\
# GRPO in TRL over all packs of this synthesis. Start in the folder above this one: simia train trl {name}/train.yaml
# The weights are the numbers of tasks, so that every task is played. With others, a pack's share of the tasks is its weight's.
extends: trl/scaleenv
"""


class ScaleEnvConfig(SynthesisConfig):
    """Settings of `simia synth scaleenv`. Its `source` is one domain in words. Without a `source`, `domains` is used."""

    recipe: str = "scaleenv"
    """Name of the recipe."""
    domains: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Number of chains to sample for each domain in words. Each chain may become a task (Table 8). Only used without a `source`."""
    building: BuildingSettings = Field(default_factory=lambda: BuildingSettings(operations=30, kept=20))
    """How environments are designed, built and tested."""
    graph: GraphSettings = Field(default_factory=GraphSettings)
    """How the tool graph is built."""
    topology: bool = True
    """Whether chains follow the dependencies of the graph. false: random walks along its edges, for comparison."""
    chain_sampling: ChainSampling = Field(default_factory=ChainSampling)
    """How chains are sampled."""
    chains: ChainSettings = Field(default_factory=ChainSettings)
    """Chains as code with an initial state. `chains.number` applies only with a `source`."""
    expansion: ExpansionSettings = Field(default_factory=ExpansionSettings)
    """How the environment of a chain is expanded."""
    difficulty: TaskDifficultySettings = Field(default_factory=TaskDifficultySettings)
    """Measured difficulty of the tasks. Off unless `difficulty.agent` is set."""

    @model_validator(mode="after")
    def check_settings(self) -> Self:
        """Refuse an agent without a model, and environments with fewer tools than a task shows."""
        self.require_role("difficulty.agent", self.difficulty.agent)
        if self.building.kept < self.expansion.least:
            raise UserError(
                f"building.kept is {self.building.kept}, so an environment may have fewer tools than expansion.least ({self.expansion.least}): "
                "raise building.kept, or lower expansion.least"
            )
        return self


class DomainChains(ChainStage):
    """As many chains of each environment as its domain asks for."""

    def __init__(self, counts: dict[str, int], settings: ChainSettings, sample: Sampler, seed: int) -> None:
        super().__init__(settings.model_copy(update={"number": max(counts.values())}), sample, seed)
        self._counts = counts

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [
            each
            for each in super().list_inputs(outputs)
            if each.value["number"] < self._counts[each.value["environment"]]
        ]


class ScaleEnvRecipe:
    """Domain foundation, seed chains and controlled expansion as stages."""

    name = "scaleenv"

    def __init__(self, config: ScaleEnvConfig) -> None:
        """Read the domains. Raises `UserError` if there is none."""
        self._config = config
        given = {config.source: config.chains.number} if config.source.strip() else config.domains
        if not given:
            raise UserError(
                'the source is missing: give a domain in words ("job seeking"), or name several under domains'
            )
        self._words = {make_name(words): words.replace("_", " ") for words in given}
        if len(self._words) < len(given):
            raise UserError("domains: two of them have the same name: remove one")
        self._counts = {make_name(words): count for words, count in given.items()}

    def list_stages(self) -> Sequence[Stage]:
        config = self._config
        domains = [{"domain": words, "name": name} for name, words in self._words.items()]
        return [
            DesignStage(config.building, domains=domains),
            ExampleStage(),
            ToolStage(config.building),
            EnvironmentStage(config.building),
            GraphStage(config.graph),
            DomainChains(self._counts, config.chains, self.sample_tools, config.seed),
            Expansions(config.expansion, config.seed),
            Instructions(config.chains),
            Verdicts(ChainTasks()),
            Gated(ChainTasks(), config.difficulty),
        ]

    def sample_tools(self, graph: ToolGraph, rng: random.Random) -> list[str]:
        """Sample the tools of a chain."""
        sampling = self._config.chain_sampling
        if self._config.topology:
            return sample_chain(graph, rng, sampling)
        return walk_randomly(graph, rng, rng.randint(sampling.shortest, sampling.longest))

    def expected(self) -> dict[str, int | Expectation]:
        """Questions of each stage, for a dry run, if nothing is refused and nothing repaired."""
        config, expansion = self._config, self._config.expansion
        count, tasks = len(self._counts), sum(self._counts.values())
        most = (
            tasks
            if expansion.searched is None
            else sum(min(expansion.searched, each) for each in self._counts.values())
        )
        searched = most * (expansion.chains > 1 and expansion.execution)
        return {
            "design": 2 * count,
            "examples": count,
            "tools": 2 * count * config.building.operations,
            "graph": Expectation(count * config.graph.refine, prompt=6000),
            "chains": Expectation(2 * tasks, prompt=6000),
            "expansions": Expectation(searched * (expansion.rollouts + 1), prompt=8000, reply=300),
            "instructions": Expectation(tasks, prompt=1500, reply=400),
        }

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write a pack for each environment with tasks: at `out`; several ones in folders of `out`, with configs that name all of them."""
        environments, graphs = outputs.of("environments"), outputs.of("graph")
        tasks: dict[str, list[Task]] = {key: [] for key in environments}
        for key, row in outputs.of("gated").items():
            tasks[key.split("/")[0]].append(Task.model_validate(row))
        kept = [key for key in environments if tasks[key]]
        folders = [out if len(kept) == 1 else out / key for key in kept]
        for key, folder in zip(kept, folders, strict=True):
            built = BuiltEnvironment.model_validate(environments[key])
            origin = outputs.origin.model_copy(update={"sources": [SourceQuote(name=self._words[key])]})
            graph = ToolGraph.model_validate(graphs[key])
            write_environment(folder, built, tasks=tasks[key], provenance=origin, user="scripted", graph=graph)
        if len(kept) > 1:
            write_training(out, {key: len(tasks[key]) for key in kept})
        return folders


def write_training(out: Path, counts: dict[str, int]) -> None:
    """Write `rollout.yaml` and `train.yaml`, which name all packs below a folder. `counts`: pack → number of its tasks."""
    shares = [{"pack": f"{out.name}/{name}", "weight": count} for name, count in counts.items()]
    packs = [f"{out.name}/{name}" for name in counts]
    configs = {
        "rollout.yaml": ROLLOUT + yaml.safe_dump({"packs": packs}),
        "train.yaml": TRAINING + yaml.safe_dump({"stage": {"packs": shares}}, sort_keys=False),
    }
    for name, text in configs.items():
        (out / name).write_text(text.format(name=out.name), encoding="utf-8")
