"""verl's workers keep the episodes of their samples in one run: several threads of a process, each with one episode at a time."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from simia.envs.environment import Environment
from simia.jobs import Run
from simia.report.training_statistics import collect_training
from simia.trainers.kept_episodes import KeptSettings
from simia.trainers.verl.episode_keeping import close_keepers, keep_played
from tests.trainers.test_verl import RIGHT, Script, house, play

__all__ = ["house"]  # a fixture


async def test_samples_that_end_at_once_are_all_kept(house: Environment, tmp_path: Path) -> None:
    played = [await play(house, Script(*RIGHT)), await play(house, Script("No."), response=20)]
    lost = await play(house, Script("x", then=lambda _: RuntimeError("gone")), resample=0)
    settings = KeptSettings(run=str(tmp_path / "runs" / "verl"), tokens=True, start="first")
    checkpoints = tmp_path / "checkpoints"
    try:
        for step in (1, 2):
            await asyncio.gather(
                *(
                    asyncio.to_thread(keep_played, settings, checkpoints, each, step=step, name=f"{row}.{session}")
                    for row in range(4)
                    for session, each in enumerate([*played, lost])
                )
            )
        again = settings.model_copy(update={"start": "second"})
        await asyncio.to_thread(keep_played, again, checkpoints, played[0], step=2, name="0.0")
        await asyncio.to_thread(keep_played, None, checkpoints, played[0], step=3, name="0.0")
    finally:
        close_keepers()
    with contextlib.closing(Run.read_only(tmp_path / "runs", "verl")) as run:
        assert run.verify().complete
        training = collect_training(run)
        body = run.ledger.result("1.0.0")
    assert [(step.first, step.episodes, step.scored) for step in training.steps] == [(1, 12, 8), (2, 1, 1)]
    assert training.superseded == 12
    assert body is not None
    assert body["tokens"]["completion_ids"] == played[0].row.completion_ids
    assert set(body["tokens"]["logprobs"]) == {0.0, -0.5}
    assert training.steps[0].ends == {
        "terminated: user_stop": 4,
        "truncated: max_tokens": 4,
        "aborted: agent_failed": 4,
    }
