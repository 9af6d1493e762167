"""From two built environments to gated tasks over several turns: stages `compositions` to `gated`, with hand-written replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.llm.types import Reply, Request
from simia.synthesis.conversations.conversation_stages import ConversationSettings, list_conversation_stages
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.graph import GraphStage
from simia.task import Task
from tests.synthesis.conversation_fixtures import load_both, read_replies
from tests.synthesis.scenario_fixtures import ServingBackend, run_stages

KEY = "library+studio"


class BothEnvironments:
    """A stage that hands on the two environments, without a question."""

    name = "environments"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, None) for key in load_both()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return dump(load_both()[given.key])


class SolverBackend(ServingBackend):
    """Puts the id that the conversation shows in place of MADE_UP_ID, as a solver would that reads it."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        reply = await super().complete(request, draw=draw)
        shown = re.findall(r'"booking_id":"(BO-\d{4})"', " ".join(str(m["content"]) for m in request.messages))
        return reply.model_copy(update={"text": reply.text.replace("MADE_UP_ID", shown[0] if shown else "?")})


def list_replies() -> dict[str, str]:
    """Draw → reply of the good conversations."""
    return {
        f"{item}.{label}": text.strip()
        for item, replies in read_replies("good").items()
        for label, text in replies.items()
    }


def list_stages(number: int = 2, **settings: Any) -> list[Any]:
    whole = ConversationSettings.model_validate(
        {
            "plans": {"number": number, "turns": 2, "tools": 1, "sampling": {"shortest": 2, "longest": 6}},
            "solving": {"solvers": 2},
            **settings,
        }
    )
    return [BothEnvironments(), GraphStage(GraphSettings(refine=False)), *list_conversation_stages(whole, seed=0)]


def test_conversations_over_both_environments_become_gated_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SolverBackend(list_replies())
    outputs = run_stages(monkeypatch, tmp_path, backend, list_stages())
    assert not any(outputs.refused.values()), outputs.refused
    for key, row in outputs.of("solved").items():
        print(key, row)
    tasks = [Task.model_validate(row) for row in outputs.of("gated").values()]
    assert [len(task.goals) for task in tasks] == [2, 2]
