"""How far a strong model's simulation of customer_service is from the real one: 28 calls of seven test tasks, four ways.

The model saw the rendered prompts alone; each way was answered by another session of it. Read again in every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.environment import open_environment
from simia.llm.engine import Engine, Limits, MemoryJournal
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.rollout.play import play
from simia.rollout.scripted import ReferenceAgent
from simia.users import ScriptedUser
from simia.verify.fidelity import figures

RECORDINGS = Path(__file__).parents[1] / "recordings"


@pytest.mark.parametrize(
    ("knowledge", "ledger", "agreement", "value_f1"),
    [
        ("schema", True, 26 / 28, 0.592),
        ("schema", False, 26 / 28, 0.599),
        ("reference", True, 1.0, 0.687),
        ("reference", False, 1.0, 0.687),
    ],
)
async def test_what_a_strong_model_simulates(knowledge: str, ledger: bool, agreement: float, value_f1: float) -> None:
    recording = RECORDINGS / f"fidelity-{knowledge}-{'ledger' if ledger else 'plain'}.jsonl"
    rows = []
    async with Engine(ReplayBackend(ReplaySettings(path=recording)), MemoryJournal(), Limits(retries=0)) as engine:
        settings = {"engine": engine, "knowledge": knowledge, "ledger": ledger, "again": 0}
        environment = await open_environment("customer_service", backend="shadow", user=ScriptedUser, **settings)
        async with environment:
            specs = {tool.name: tool for tool in environment.pack.tools}
            for task in [task for task in environment.tasks if task.split == "test" and len(task.actions) >= 3][:7]:
                trajectory = await play(await environment.reset(task), ReferenceAgent(task))
                assert trajectory.reward is not None
                assert trajectory.reward.value == 1.0  # the shadow changes nothing
                rows += (trajectory.evidence or {})["differences"]
    total = figures(rows, specs).total
    assert (total.calls, total.lost, total.contradicting) == (28, 0, 0)
    assert total.schema_validity == 1.0
    assert total.agreement == pytest.approx(agreement)
    assert total.value_f1 == pytest.approx(value_f1, abs=0.001)
