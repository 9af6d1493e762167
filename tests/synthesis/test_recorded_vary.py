"""`vary` with the replies of a strong model that saw each prompt alone, as the author of the variants and as the agent that is measured."""

from __future__ import annotations

import asyncio
from pathlib import Path

from simia.config import load_config
from simia.pack import Pack
from simia.synthesis.recipes.vary import VaryConfig
from simia.synthesis.session import start_synthesis
from tests.synthesis.test_recorded_envscaler import RECORDINGS

SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDINGS / 'vary-shop.jsonl'}", "llm.match=draw", "tasks=[cs-010,cs-024,cs-055]", "agent.tries=2",
    "agent.name=strong", "agent.sampling.calls=hermes",
)  # fmt: skip


def test_an_agent_that_solves_all_tasks_also_solves_their_harder_variants(tmp_path: Path) -> None:
    config = load_config(VaryConfig, "synth/vary", SETTINGS, source="customer_service")
    done = asyncio.run(start_synthesis(config, tmp_path / "pack", runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert done.stop.kind == "complete", done.stop
    assert done.summary == [
        "strong: 3 tasks measured, 3 of them outside of 25% to 75%",
        "harder: 3 variants held, 3 passed the gate together and were measured, 0 moved into 25% to 75%; mean pass rate 100% before, 100% after",
    ]
    pack = Pack.load(tmp_path / "pack")
    variants = [task for task in pack.tasks if "varied" in task.tags]
    assert [task.extra["variant_of"] for task in variants] == ["cs-010", "cs-024", "cs-055"]
    assert [(each.n, each.solved) for task in variants for each in task.measured.values()] == [(2, 2)] * 3
    assert len(pack.tasks) == 78 + 3
