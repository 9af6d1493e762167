"""RAGEN's rollouts leave a run with all their episodes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from simia.jobs import Run
from simia.report.training_statistics import collect_training
from tests.trainers.ragen_standin import config
from tests.trainers.test_ragen_loop import STEP, Texts, by_script, closed, manager, proxy, seeded

__all__ = ["manager", "proxy"]  # fixtures


def test_a_step_and_a_validation_are_kept(
    proxy: Any, lamps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMIA_RUNS", str(tmp_path / "runs"))
    whole = seeded(config(lamps), default_local_dir=str(tmp_path / "checkpoints" / "shop"))
    for _ in range(2):  # the second start begins with the same step, for there is no checkpoint
        step = proxy(whole, Texts(by_script))
        try:
            states = step.rollout(STEP)
            step.rollout(STEP, val=True)
        finally:
            closed(step)
            step._keeper.close()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("shop-")
    with contextlib.closing(Run.read_only(folder.parent, folder.name)) as run:
        training = collect_training(run)
        assert run.verify().complete
    assert training.superseded == 16
    (learnt,), (judged,) = training.steps, training.validations
    assert (learnt.first, learnt.episodes, learnt.scored, learnt.groups) == (1, 8, 8, 2)
    assert learnt.solved == pytest.approx(sum(state["metrics"]["Lamps/success"] for state in states) / 8)
    assert (judged.first, judged.episodes) == (1, 8)
    assert learnt.turns == 4
