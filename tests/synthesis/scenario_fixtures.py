"""Hand-written replies for scenarios, and a run of the stages from a built environment on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from simia.llm.types import Reply, Request
from simia.synthesis import session
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Stage, StageContext, StageInput, StageOutputs

FIXTURES = Path(__file__).parent / "fixtures"
GOOD: dict[str, dict[str, str]] = yaml.safe_load((FIXTURES / "scenarios" / "good.yaml").read_text())
BAD: dict[str, dict[str, Any]] = yaml.safe_load((FIXTURES / "scenarios" / "bad.yaml").read_text())
BAD_CHECKS: dict[str, dict[str, str]] = yaml.safe_load((FIXTURES / "scenarios" / "bad_checks.yaml").read_text())
LIBRARY: dict[str, Any] = orjson.loads((FIXTURES / "library.json").read_bytes())


def list_good_replies() -> dict[str, str]:
    """Draw → reply of the good scenarios and their state."""
    state = f"```json\n{orjson.dumps(LIBRARY['example']).decode()}\n```"
    found = {f"{item}.{label}": text for item, replies in GOOD.items() for label, text in replies.items()}
    return {"states/library/0.state": state, **found}


class ServingBackend:
    """Serves hand-written replies by draw. `slow`: draws are answered in another order."""

    alias, model, structured = "hand-written", "hand-written", False

    def __init__(self, replies: Mapping[str, str], *, slow: bool = False) -> None:
        self.replies, self.slow = dict(replies), slow
        self.asked: list[str] = []
        self.prompts: dict[str, str] = {}

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(draw)
        self.prompts[draw] = str(request.messages[-1]["content"])
        if self.slow:
            await asyncio.sleep(0.01 * (len(draw) * 7 % 5))
        if draw not in self.replies:
            raise AssertionError(f"no reply for {draw}:\n{request.messages[-1]['content']}")
        return Reply(text=self.replies[draw])


class GivenEnvironments:
    """A stage that hands on the built library, without a question."""

    name = "environments"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput("library", None)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return LIBRARY


class GivenRecipe:
    """A recipe of given stages that writes no pack."""

    name = "given"

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def list_stages(self) -> Sequence[Stage]:
        given = any(stage.name == "environments" for stage in self._stages)
        return [*([] if given else [GivenEnvironments()]), *self._stages]

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        return []


def run_stages(
    monkeypatch: pytest.MonkeyPatch, folder: Path, backend: ServingBackend, stages: Sequence[Stage]
) -> StageOutputs:
    """Run stages after the built library, and return all outputs."""

    class GivenConfig(SynthesisConfig):
        recipe: str = "given"

    monkeypatch.setitem(RECIPES, "given", RecipeKind(GivenConfig, lambda _: GivenRecipe(stages)))
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)

    async def go() -> session.Synthesized:
        return await session.start_synthesis(GivenConfig(), folder / "out", runs=folder / "runs", say=lambda _: None)

    done = asyncio.run(go())
    assert done.stop.kind == "complete", done.stop
    return done.outputs
