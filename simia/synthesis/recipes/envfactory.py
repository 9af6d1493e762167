"""EnvFactory: environments grounded in given sources, which a pool of packs lacks, and tasks over several of their tools.

Stages: `sources`, then in each round `search1`, … (with a search function) and `proposals1`, …; `proposals`, `design`, `examples`, `tools`,
`environments`; then those of `list_task_stages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from simia.errors import UserError
from simia.pack_provenance import PackProvenance, SourceQuote
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.recipes.envscaler import ChosenDesigns
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.sources.pool_packs import PoolEntry, make_pool_absolute, read_pool
from simia.synthesis.sources.proposal import ProposalSettings
from simia.synthesis.sources.search_function import SearchSettings, load_search_function, make_function_absolute
from simia.synthesis.sources.source_reading import SourcePlace, find_sources, make_source_absolute
from simia.synthesis.stage import Expectation, Stage, StageOutputs
from simia.synthesis.stages.environments import EnvironmentStage
from simia.synthesis.stages.examples import ExampleStage
from simia.synthesis.stages.proposals import ProposalRound, Proposals
from simia.synthesis.stages.sources import SearchStage, SourceStage
from simia.synthesis.stages.tools import ToolStage
from simia.task import Task


class EnvFactoryConfig(SynthesisConfig):
    """Settings of `simia synth envfactory`. `source` says in words what is wanted; it may be empty."""

    recipe: str = "envfactory"
    """Name of the recipe."""
    sources: list[str] = Field(default_factory=list)
    """What environments are grounded in: text, Markdown, HTML and OpenAPI files, folders of them, packs, and `mcp:COMMAND` for a server of the
    Model Context Protocol."""
    search: SearchSettings = Field(default_factory=SearchSettings)
    """Search for more sources by a function of your own."""
    pool: list[str] = Field(default_factory=list)
    """Packs, or folders of packs, that exist already: proposals name what they lack."""
    environments: int = Field(default=10, ge=1)
    """Most environments that are designed."""
    proposals: ProposalSettings = Field(default_factory=ProposalSettings)
    """How environments are proposed."""
    building: BuildingSettings = Field(default_factory=lambda: BuildingSettings(tests=3, debug_rounds=3))
    """How environments are designed, built and tested."""

    @field_validator("sources")
    @classmethod
    def name_sources_fully(cls, sources: list[str]) -> list[str]:
        """Name files by their whole paths, for a resume from another folder."""
        return [make_source_absolute(each) for each in sources]

    @field_validator("pool")
    @classmethod
    def name_pool_fully(cls, pool: list[str]) -> list[str]:
        """Name folders by their whole paths."""
        return [make_pool_absolute(each) for each in pool]

    @field_validator("search")
    @classmethod
    def name_function_fully(cls, search: SearchSettings) -> SearchSettings:
        """Name the file of the search function by its whole path."""
        name = search.function
        return search.model_copy(update={"function": make_function_absolute(name)}) if name else search


class EnvFactoryRecipe:
    """EnvFactory's EnvGen, and QueryGen, as stages."""

    name = "envfactory"

    def __init__(self, config: EnvFactoryConfig) -> None:
        self._config = config

    @cached_property
    def _pool(self) -> list[PoolEntry]:
        return read_pool(self._config.pool)

    def find_places(self) -> Sequence[SourcePlace]:
        """The given sources. Raises `UserError` if there is none, and no search."""
        places = find_sources(self._config.sources)
        if self._config.search.function:
            load_search_function(self._config.search.function)
        elif not places:
            raise UserError(
                "no sources are given: add --sources FILE or FOLDER, or name a search function (search.function)"
            )
        return places

    def list_stages(self) -> Sequence[Stage]:
        config = self._config
        rounds: list[Stage] = []
        for number in range(1, config.proposals.rounds + 1):
            if config.search.function:
                rounds.append(SearchStage(number, config.search, config.source, lambda: self._pool))
            tools = config.building.operations
            rounds.append(ProposalRound(number, config.proposals, config.source, lambda: self._pool, tools))
        return [
            SourceStage(self.find_places),
            *rounds,
            Proposals(config.proposals.rounds, lambda: self._pool),
            ChosenDesigns(config.environments, config.building, source=Proposals.name),
            ExampleStage(),
            ToolStage(config.building),
            EnvironmentStage(config.building),
            *list_task_stages(config),
        ]

    def expected(self) -> dict[str, int | Expectation]:
        """Questions of each stage, for a dry run, if nothing is refused and nothing repaired."""
        config = self._config
        count = min(config.environments, config.proposals.rounds * config.proposals.number)
        shown = Expectation(1, prompt=min(config.proposals.characters // 4, 12_000))
        found: dict[str, int | Expectation] = {}
        for number in range(1, config.proposals.rounds + 1):
            found |= {f"search{number}": 1} if config.search.function else {}
            found[f"proposals{number}"] = shown
        return found | {"design": 2 * count, "examples": count, "tools": 2 * count * config.building.operations}

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write a pack for each environment: below `out`, or at `out` where there is one."""
        environments = outputs.of(EnvironmentStage.name)
        tasks = collect_tasks(outputs)
        folders = [out if len(environments) == 1 else out / key for key in environments]
        for (key, row), folder in zip(environments.items(), folders, strict=True):
            built = BuiltEnvironment.model_validate(row)
            origin = cite_sources(outputs.origin, outputs.of(Proposals.name)[key])
            write_environment(folder, built, tasks=tasks.get(key, []), provenance=origin)
        return folders


def cite_sources(origin: PackProvenance, proposal: dict[str, Any]) -> PackProvenance:
    """The provenance of an environment's pack: the sources of its proposal, with quotes and hashes."""
    sources = [SourceQuote.model_validate(each) for each in proposal["sources"]]
    return origin.model_copy(update={"sources": sources})


def list_task_stages(config: EnvFactoryConfig) -> list[Stage]:
    """The stages after `environments`: composed environments, queries and their tasks (EnvFactory §3.3, §3.4)."""
    return []


def collect_tasks(outputs: StageOutputs) -> dict[str, list[Task]]:
    """The tasks of each environment, by its key."""
    return {}
