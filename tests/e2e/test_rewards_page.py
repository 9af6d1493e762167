"""docs/rewards.md to the letter, and a rollout whose reward function is repaired on the way."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from simia.jobs import Run
from tests.command import run_simia

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")


def rewards_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rewards of a rollout's episodes."""
    run = Run.open(folder / "runs", name)
    try:
        rows = [run.ledger.result(item.id) for item in run.ledger.items()]
        return [row["trajectory"]["reward"] for row in rows if row is not None]
    finally:
        run.close()


def test_the_page_of_rewards_shows_commands_that_run(tmp_path: Path) -> None:
    (tmp_path / "my_rewards.py").write_text(
        re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[0], encoding="utf-8"
    )
    lines = re.findall(r"^simia .*$", PAGE, re.M)
    assert len(lines) == 5
    said = []
    for line in lines:
        done = run_simia(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        said.append(done.stdout + done.stderr)
    brief = rewards_of(tmp_path, "brief")
    assert len(brief) > 50
    assert all(reward["parts"]["function"] == reward["value"] for reward in brief)
    assert any(reward["value"] < 1 for reward in brief), "some solutions take more than six turns"
    counted = rewards_of(tmp_path, "counted")
    assert [reward["value"] for reward in counted] == [1.0] * 5
    assert all(reward["parts"]["orders_left"] > 1 for reward in counted)
    # no false pass; the solutions that take more than six turns are the false fails
    found = re.search(r"(\d+) judged \((\d+) solved by the rules\), 0 without a verdict; agreement (\S+) ", said[-1])
    assert found is not None
    late = sum(reward["value"] < 1 for reward in brief)
    assert float(found[3]) == pytest.approx(1 - late / int(found[1]), abs=1e-3)
    assert not (tmp_path / "__pycache__").exists()


def test_a_repaired_function_scores_the_episodes_of_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def mine(episode):\n    return episode.reward.valeu\n", encoding="utf-8")
    play = ["rollout", "customer_service", "--agent", "reference", "--limit", "3", "--name", "mine"]
    done = run_simia(*play, "--set", "reward_function=mine.py:mine", cwd=tmp_path)
    words = "reward_function mine.py:mine: AttributeError: 'Reward' object has no attribute 'valeu' (mine.py, line 2)"
    assert done.returncode == 1
    assert words in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout + done.stderr
    path.write_text("def mine(episode):\n    return episode.reward.value\n", encoding="utf-8")
    done = run_simia("runs", "resume", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [reward["value"] for reward in rewards_of(tmp_path, "mine")] == [1.0] * 3
