"""EnvFactory: environments that are based on given sources and missing in a pool of packs, and tasks that use several of their tools.

Stages: `sources`, then in each round `search1`, … (with a search function) and `proposals1`, …; `proposals`, `design`, `examples`, `tools`,
`environments`; then those of `list_task_stages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from simia.errors import UserError
from simia.pack_provenance import PackProvenance, SourceQuote
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.conversations.conversation_stages import (
    ConversationSettings,
    expect_conversation_questions,
    list_conversation_stages,
)
from simia.synthesis.conversations.conversation_tasks import list_kept_compositions, write_conversation_pack
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.recipes.envscaler import ChosenDesigns
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.sources.pool_packs import PoolEntry, make_pool_absolute, read_pool
from simia.synthesis.sources.proposal import ProposalSettings
from simia.synthesis.sources.search_function import SearchSettings, load_search_function, make_function_absolute
from simia.synthesis.sources.source_reading import SourcePlace, find_sources, make_source_absolute
from simia.synthesis.stage import Expectation, Stage, StageOutputs
from simia.synthesis.stages.environments import EnvironmentStage
from simia.synthesis.stages.examples import ExampleStage
from simia.synthesis.stages.graph import GraphStage
from simia.synthesis.stages.proposals import ProposalRound, Proposals
from simia.synthesis.stages.sources import SearchStage, SourceStage
from simia.synthesis.stages.tools import ToolStage


class EnvFactoryConfig(SynthesisConfig):
    """Settings of `simia synth envfactory`. Its `source` describes the wanted environments in words; it may be empty."""

    retired: ClassVar[tuple[str, ...]] = ("conversations.solving.selector",)
    """Settings that no longer exist; the identities of older runs hold them."""

    recipe: str = "envfactory"
    """Name of the recipe."""
    sources: list[str] = Field(default_factory=list)
    """Sources for the environments: text, Markdown, HTML and OpenAPI files, folders of them, packs, and `mcp:COMMAND` for an MCP server."""
    search: SearchSettings = Field(default_factory=SearchSettings)
    """Search for more sources with your own function."""
    pool: list[str] = Field(default_factory=list)
    """Existing packs, or folders of packs. New environments are proposed for what they do not cover."""
    environments: int = Field(default=10, ge=1)
    """Maximum number of environments to design."""
    proposals: ProposalSettings = Field(default_factory=ProposalSettings)
    """How environments are proposed."""
    building: BuildingSettings = Field(default_factory=lambda: BuildingSettings(tests=3, debug_rounds=3))
    """How environments are designed, built and tested."""
    graph: GraphSettings = Field(default_factory=GraphSettings)
    """How the tool graph is built."""
    conversations: ConversationSettings = Field(default_factory=ConversationSettings)
    """Conversations over composed environments, and their tasks. To make only environments, set `conversations.plans.number` to 0."""

    @model_validator(mode="after")
    def check_measuring_agent(self) -> Self:
        """Refuse an agent that has no model."""
        self.require_role("conversations.difficulty.agent", self.conversations.difficulty.agent)
        return self

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
        """Questions of each stage, for a dry run, if nothing is refused and nothing repaired. Sources that fit into one question need fewer."""
        config = self._config
        count = min(config.environments, config.proposals.rounds * config.proposals.number)
        shown = Expectation(config.proposals.questions, prompt=min(config.proposals.characters // 4, 12_000))
        found: dict[str, int | Expectation] = {}
        for number in range(1, config.proposals.rounds + 1):
            found |= {f"search{number}": 1} if config.search.function else {}
            found[f"proposals{number}"] = shown
        found |= {"design": 2 * count, "examples": count, "tools": 2 * count * config.building.operations}
        if config.conversations.plans.number:
            found |= {
                "graph": count * config.graph.refine,
                **expect_conversation_questions(config.conversations, count),
            }
        return found

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write a pack for each composition with tasks, and for each environment that is in none of these: in folders of `out`, or `out` itself
        if there is only one pack."""
        proposals = outputs.of(Proposals.name)
        composed = list_kept_compositions(outputs)
        inside = {key for row in composed.values() for key in row["environments"]}
        alone = [key for key in outputs.of(EnvironmentStage.name) if key not in inside]
        single = len(composed) + len(alone) == 1
        folders = []
        for name, row in composed.items():
            folder = out if single else out / row["built"]["design"]["name"]
            origin = cite_sources(outputs.origin, [proposals[key] for key in row["environments"]])
            write_conversation_pack(outputs, name, folder, origin)
            folders.append(folder)
        for key in alone:
            folder = out if single else out / key
            built = BuiltEnvironment.model_validate(outputs.of(EnvironmentStage.name)[key])
            graph = outputs.of("graph").get(key)
            write_environment(
                folder,
                built,
                graph=ToolGraph.model_validate(graph) if graph else None,
                provenance=cite_sources(outputs.origin, [proposals[key]]),
            )
            folders.append(folder)
        return folders


def cite_sources(origin: PackProvenance, proposals: Sequence[dict[str, Any]]) -> PackProvenance:
    """The provenance of a pack: the sources of its environments' proposals, with quotes and hashes."""
    sources = [SourceQuote.model_validate(each) for proposal in proposals for each in proposal["sources"]]
    return origin.model_copy(update={"sources": sources})


def list_task_stages(config: EnvFactoryConfig) -> list[Stage]:
    """The stages after `environments`: composed environments, queries and their tasks (EnvFactory §3.3, §3.4)."""
    if not config.conversations.plans.number:
        return []
    return [GraphStage(config.graph), *list_conversation_stages(config.conversations, config.seed)]
