"""A rollout whose user's model says nothing: no reward of 0, nothing to be done by a resume, and the settings that reach the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simia.config import load_config
from simia.jobs import Run
from simia.rollouts.session import resume_rollout, start_rollout
from simia.rollouts.settings import RolloutConfig
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


@pytest.fixture
def mute() -> Iterator[FakeEndpoint]:
    """A reasoning model that never comes to its words."""
    endpoint = FakeEndpoint()
    endpoint.plan(message={"content": ""}, finish="length")
    yield endpoint
    endpoint.stop()


@pytest.mark.parametrize(("settings", "caps"), [([], [2048, 4096]), (["user_settings.max_tokens=300"], [300, 600])])
async def test_it_is_aborted_and_stays_so(
    mute: FakeEndpoint, tmp_path: Path, settings: list[str], caps: list[int]
) -> None:
    small(tmp_path / "todos")
    words = [
        f"player.base_url={mute.url}",
        "player.kind=openai",
        "player.model=o4-mini",
        "user=llm",
        "agent=nothing",
        *settings,
    ]
    config = load_config(RolloutConfig, "rollout/default", words, pack=str(tmp_path / "todos"), limit=1)
    done = await start_rollout(config, runs=tmp_path, name="r", say=lambda _: None)
    assert done.complete, done.why
    assert (done.scores.episodes, done.scores.scored) == (1, 0)
    run = Run.read_only(tmp_path, "r")
    (item,) = run.ledger.items()
    body = run.ledger.result(item.id)
    run.close()
    assert (item.status, item.reason) == ("rejected", "user_failed")
    assert body is not None
    assert body["trajectory"]["end"]["kind"] == "aborted"
    assert [request["body"]["max_completion_tokens"] for request in mute.requests] == caps
    again = await resume_rollout("r", runs=tmp_path, say=lambda _: None)
    assert again.complete
    assert len(mute.requests) == 2, "nothing is asked again"
