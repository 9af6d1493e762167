"""A strong model as the agent of our own pack, recorded turn by turn by one that saw the rendered conversations alone.

It follows no script of ours: that it scores shows that tasks can be solved another way than the reference's. The one that it
does not solve (cs-057) is the scripted user's fault, who does not answer the question that the policy makes it ask.
"""

from __future__ import annotations

import json
from pathlib import Path

from simia.config import load_config
from simia.jobs import Run
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig

RECORDINGS = Path(__file__).parents[1] / "recordings"


async def test_a_strong_models_episodes_earn_what_they_earned(tmp_path: Path) -> None:
    expected = json.loads((RECORDINGS / "rollout-shop.rewards.json").read_text())
    settings = [
        "llm.kind=replay",
        f"llm.path={RECORDINGS / 'rollout-shop.jsonl'}",
        "sampling.bare=false",
        "sampling.temperature=1.0",
    ]
    config = load_config(RolloutConfig, "rollout/default", settings, tasks=list(expected))
    done = await start_rollout(config, runs=tmp_path, name="r", say=lambda _: None)
    assert done.complete, done.why
    run = Run.read_only(tmp_path, "r")
    got = {}
    for item in run.ledger.items():
        body = run.ledger.result(item.id)
        assert body is not None
        got[item.spec["task"]] = body["trajectory"]["reward"]["value"]
    run.close()
    assert got == expected
    assert sum(expected.values()) >= 9
