"""EnvScaler: environments from a domain or from existing tasks, assessed by two agents, with scenarios whose checks are executed.

Stages: `screening`, `stateful`, `descriptions`, `clusters`, `themes` (with a file of tasks), `design`, `examples`, `tools`,
`environments`, `assessment`, `states`, `scenarios`, `verdicts`, `gated`, `variants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from simia.authoring.task_variants import MISSING_PARAMETER, VARIANT_KINDS, VariantKind
from simia.config import Config
from simia.errors import UserError
from simia.pack_provenance import SourceQuote
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.scenarios.task_sources import is_task_source, read_task_texts
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Stage, StageInput, StageOutputs
from simia.synthesis.stages.assessment import Assessment, AssessmentSettings
from simia.synthesis.stages.design import DesignStage
from simia.synthesis.stages.environments import EnvironmentStage
from simia.synthesis.stages.examples import ExampleStage
from simia.synthesis.stages.gated import Gated, ScenarioTasks, Verdicts
from simia.synthesis.stages.scenarios import Scenarios, ScenarioSettings
from simia.synthesis.stages.states import States, list_environments
from simia.synthesis.stages.task_filter import Screening, StatefulFilter
from simia.synthesis.stages.themes import Clusters, Descriptions, Themes
from simia.synthesis.stages.tools import ToolStage
from simia.synthesis.stages.variants import Variants, group_by_scenario
from simia.task import Task

CHECKS = 4  # checks that a scenario has, for the projection of a dry run


class DiscoverySettings(Config):
    """How environments are found in existing tasks. Not used if `source` is a domain in words."""

    limit: int | None = Field(default=None, ge=1)
    """Maximum number of tasks to read. null: all."""
    field: str | None = None
    """Field of a row with the text of its task. null: the first field with a usual name."""
    tasks_per_question: int = Field(default=10, ge=1)
    """Number of tasks in one request of the stateful filter."""
    usefulness: int = Field(default=6, ge=1, le=10)
    """Minimum usefulness of an environment that is kept, from 1 to 10."""
    modelability: int = Field(default=6, ge=1, le=10)
    """Minimum modelability of an environment that is kept, from 1 to 10."""
    cosine: float | None = Field(default=None, gt=0, le=1)
    """Minimum cosine similarity (0 to 1) at which two descriptions count as the same environment. null: a default, which depends on whether
    embeddings or words are compared."""


class StateSettings(Config):
    """Initial states of each environment."""

    number: int = Field(default=4, ge=1)
    """Number of initial states of each environment."""
    rows: int = Field(default=8, ge=1)
    """Approximate number of rows of a table."""


class EnvScalerConfig(SynthesisConfig):
    """Settings of `simia synth envscaler`."""

    recipe: str = "envscaler"
    """Name of the recipe."""
    environments: int = Field(default=10, ge=1)
    """Maximum number of environments to design. A domain in words gives one."""
    discovery: DiscoverySettings = Field(default_factory=DiscoverySettings)
    """How environments are found in existing tasks."""
    building: BuildingSettings = Field(default_factory=BuildingSettings)
    """How environments are designed, built and tested."""
    assessment: AssessmentSettings = Field(default_factory=AssessmentSettings)
    """The dual-agent assessment of environments."""
    states: StateSettings = Field(default_factory=StateSettings)
    """Initial states of each environment."""
    scenarios: ScenarioSettings = Field(default_factory=ScenarioSettings)
    """Scenarios of each initial state."""
    variants: list[VariantKind] = Field(default_factory=lambda: list(VARIANT_KINDS))
    """Variants of each scenario with a conversation. missing_parameter: the user tells a value only when asked. missing_function: a tool
    becomes visible later."""
    difficulty: TaskDifficultySettings = Field(default_factory=TaskDifficultySettings)
    """Measured difficulty of the tasks. Off unless `difficulty.agent` is set."""

    @model_validator(mode="after")
    def check_difficulty_agent(self) -> Self:
        """Refuse an agent that has no model."""
        self.require_role("difficulty.agent", self.difficulty.agent)
        return self


class ChosenDesigns(DesignStage):
    """The first environments only, as many as the config asks for."""

    def __init__(self, most: int, settings: BuildingSettings, **source: Any) -> None:
        super().__init__(settings, **source)
        self._most = most

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return super().list_inputs(outputs)[: self._most]


class EnvScalerRecipe:
    """EnvScaler's SkelBuilder and ScenGenerator as stages."""

    name = "envscaler"

    def __init__(self, config: EnvScalerConfig) -> None:
        self._config = config

    @cached_property
    def _texts(self) -> list[str] | None:
        """The existing tasks; None for a domain in words. Raises `UserError`."""
        config, discovery = self._config, self._config.discovery
        if not config.source.strip():
            raise UserError('the source is missing: give a domain in words ("hotel front desk") or a file of tasks')
        if not is_task_source(config.source):
            return None
        return read_task_texts(config.source, text_field=discovery.field, limit=discovery.limit).texts

    @property
    def _variants(self) -> list[VariantKind]:
        """The kinds of variants, which are conversations."""
        return self._config.variants if "conversation" in self._config.scenarios.modes else []

    def list_stages(self) -> Sequence[Stage]:
        config, modes = self._config, self._config.scenarios.modes
        return [
            *self._list_first_stages(),
            ExampleStage(),
            ToolStage(config.building),
            EnvironmentStage(config.building),
            Assessment(config.assessment, config.seed),
            States(config.states.number, config.states.rows),
            Scenarios(config.scenarios, config.seed),
            Verdicts(ScenarioTasks(modes)),
            Gated(ScenarioTasks(modes), config.difficulty),
            Variants(self._variants),
        ]

    def _list_first_stages(self) -> list[Stage]:
        config, discovery, texts = self._config, self._config.discovery, self._texts
        if texts is None:
            return [ChosenDesigns(config.environments, config.building, domains=[{"domain": config.source}])]
        return [
            Screening(texts, discovery.tasks_per_question),
            StatefulFilter(texts),
            Descriptions(discovery.usefulness, discovery.modelability),
            Clusters(discovery.cosine),
            Themes(),
            ChosenDesigns(config.environments, config.building, source=Themes.name),
        ]

    def expected(self) -> dict[str, int]:
        """Questions of each stage, for a dry run, if nothing is refused and nothing repaired."""
        config, texts = self._config, self._texts
        count = 1 if texts is None else config.environments
        states = count * config.states.number
        scenario = 2 + CHECKS + ("conversation" in config.scenarios.modes)
        found: dict[str, int] = {}
        if texts is not None:
            groups = -(-len(texts) // config.discovery.tasks_per_question)
            found = {Screening.name: groups, Descriptions.name: len(texts)}
        return found | {
            "design": 2 * count,
            "examples": count,
            "tools": 2 * count * config.building.operations,
            "assessment": count * (2 * config.assessment.rounds + config.assessment.controls),
            "states": states,
            "scenarios": states * config.scenarios.number * scenario,
            "variants": states * config.scenarios.number * (MISSING_PARAMETER in self._variants),  # at most
        }

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write a pack for each environment that has tasks: in folders of `out`, or `out` itself if there is only one."""
        environments = list_environments(outputs)
        tasks: dict[str, list[Task]] = {key: [] for key in environments}
        for key, rows in group_by_scenario(outputs, "gated", "variants").items():
            tasks[key.split("/")[0]] += [Task.model_validate(row) for row in rows]
        kept = [key for key in environments if tasks[key]]
        source = Path(self._config.source).name if self._texts is not None else self._config.source
        origin = outputs.origin.model_copy(update={"sources": [SourceQuote(name=source)]})
        folders = [out if len(kept) == 1 else out / key for key in kept]
        for key, folder in zip(kept, folders, strict=True):
            built = BuiltEnvironment.model_validate(environments[key])
            write_environment(folder, built, tasks=tasks[key], provenance=origin, user="scripted")
        return folders
