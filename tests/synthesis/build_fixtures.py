"""The lending library: written by hand as a strong model would, as replies and as the environment that they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from simia.llm.engine import Engine
from simia.llm.types import Reply, Request
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Refused
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import Refusal, Stage, StageOutputs
from simia.synthesis.stages.design import DesignStage
from simia.synthesis.stages.environments import EnvironmentStage
from simia.synthesis.stages.examples import ExampleStage
from simia.synthesis.stages.tools import ToolStage

FIXTURES = Path(__file__).parent / "fixtures"
REPLIES = FIXTURES / "building"
LIBRARY = {"name": "library", "domain": "a small lending library"}
SETTINGS = BuildingSettings(operations=7, kept=6)


def load_library() -> BuiltEnvironment:
    """The library with its seven tools, as stage `environments` hands it on."""
    return BuiltEnvironment.model_validate_json((FIXTURES / "library.json").read_bytes())


def read_reply(name: str) -> str:
    """A reply under fixtures/building: `library/tables`, `wrong/network`."""
    return (REPLIES / f"{name}.md").read_text(encoding="utf-8")


def list_library_replies() -> dict[str, str]:
    """Sample → reply of a model that makes no mistake."""
    replies = {
        "design/library.tables": read_reply("library/tables"),
        "design/library.operations": read_reply("library/operations"),
        "examples/library.state": read_reply("library/example"),
    }
    for tool in load_library().tools:
        replies[f"tools/library/{tool}.method"] = read_reply(f"library/tool-{tool}")
        replies[f"tools/library/{tool}.tests"] = read_reply(f"library/tests-{tool}")
    return replies


class FixtureEngine:
    """Answers each sample with its reply; a sample `again` without a reply of its own gets the first one again."""

    def __init__(self, replies: Mapping[str, str]) -> None:
        self._replies = replies
        self.asked: dict[str, Request] = {}

    async def ask(self, request: Request, *, item: str, draw: str) -> Reply:
        self.asked[draw] = request
        return Reply(text=self._replies.get(draw) or self._replies[draw.partition(".again")[0]])

    def find_asked(self, request: Request, draw: str) -> Request:
        """The request that a reply answers."""
        return request


def list_building_stages(settings: BuildingSettings, domains: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """The stages from a domain to a tested environment."""
    return [DesignStage(settings, domains), ExampleStage(), ToolStage(settings), EnvironmentStage(settings)]


def run_stages(engine: FixtureEngine, stages: Sequence[Stage], outputs: StageOutputs | None = None) -> StageOutputs:
    """Run stages one input at a time, after those whose outputs are given."""
    found = outputs or StageOutputs()

    async def run() -> None:
        for stage in stages:
            for given in stage.list_inputs(found):
                item = f"{stage.name}/{given.key}"
                context = ItemContext(item, {"writer": cast(Engine, engine)}, SamplingSettings(), asyncio.Semaphore(1))
                try:
                    found.made.setdefault(stage.name, {})[given.key] = await stage.make(given, context)
                except Refused as refused:
                    refusal = Refusal(refused.reason, refused.detail)
                    found.refused.setdefault(stage.name, {})[given.key] = refusal
                found.notes.setdefault(stage.name, {})[given.key] = context.notes

    asyncio.run(run())
    return found


def read_files(folder: Path) -> dict[str, bytes]:
    """Path → content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
