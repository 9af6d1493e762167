"""What a start of a trainer refuses, warns of, or leaves out, with the line that says what to do; no trainer is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simia.errors import UserError
from simia.trainers.launch import Launch
from simia.trainers.verl.start import launch as launch_verl


@pytest.fixture(autouse=True)
def _nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without trainers or their environments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.delenv("RAGEN_HOME", raising=False)


def verl(name: str = "verl/simia", **changes: Any) -> Launch:
    return launch_verl(Path(name), {key.replace("__", "."): value for key, value in changes.items()}, dry_run=True)


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "opo", "reinforce_plus_plus_baseline", "grpo_passk", "gpg"])
def test_groups_of_one_are_refused_where_episodes_are_compared(estimator: str) -> None:
    line = rf"^actor_rollout_ref\.rollout\.n is 1: {estimator} compares the episodes of a group, 2 or more$"
    with pytest.raises(UserError, match=line):
        verl(algorithm__adv_estimator=estimator, actor_rollout_ref__rollout__n=1)
    assert verl(algorithm__adv_estimator=estimator, actor_rollout_ref__rollout__n=2).plan


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus", "remax"])
def test_groups_of_one_train_where_each_episode_counts_alone(estimator: str) -> None:
    assert verl(algorithm__adv_estimator=estimator, actor_rollout_ref__rollout__n=1).plan
