"""The Python entry points of the two methods: what the commands do, as coroutine functions."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import simia
from simia.config import load_config
from simia.errors import UserError
from simia.rollouts.job import RolloutProgress
from simia.rollouts.settings import RolloutConfig
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


def test_entry_points_are_coroutine_functions() -> None:
    assert inspect.iscoroutinefunction(simia.amplify)
    assert inspect.iscoroutinefunction(simia.rollout)
    with pytest.raises(AttributeError, match="no attribute 'amplifly'"):
        simia.amplifly  # type: ignore[attr-defined]  # noqa: B018


async def test_amplify_takes_packs_and_an_endpoint(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        llm = {"kind": "openai", "base_url": endpoint.url, "model": "fake", "structured": True}
        made = await simia.amplify(
            "customer_service", llm=llm, n=4, runs=tmp_path, name="a", settings={"seeds.limit": 3}
        )
    finally:
        endpoint.stop()
    assert (made.stop.kind, made.run_id) == ("complete", "a")
    assert len(list(made.trajectories())) == made.progress.accepted == 4


async def test_rollout_takes_a_mapping_a_config_or_a_name(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    pack, seen = str(tmp_path / "todos"), []

    def note(progress: RolloutProgress) -> None:
        seen.append((progress.done, progress.n, progress.mean))

    one = await simia.rollout(
        {"pack": pack, "agent": "reference", "group": 2}, runs=tmp_path, name="one", on_progress=note
    )
    assert (one.stop.kind, one.run_id, one.scores.episodes) == ("complete", "one", 4)
    assert seen[-1] == (4, 4, 1.0)
    kept = [t.messages for t in one.trajectories()]
    assert len(kept) == one.accepted == 2
    config = load_config(RolloutConfig, "rollout/default", pack=pack, agent="nothing")
    two = await simia.rollout(config, runs=str(tmp_path), settings={"group": 3})
    assert (two.scores.episodes, two.accepted) == (6, 0)
    three = await simia.rollout("rollout/default", runs=tmp_path, settings={"pack": pack, "agent": "reference"})
    assert [t.messages for t in three.trajectories()] == kept
    with pytest.raises(UserError, match="agent"):
        await simia.rollout({"pack": pack, "agent": "refrence"}, runs=tmp_path)
