"""The report of a training: its figures, its curves, and that it can be read while the training goes on."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest

from simia.report.training_report import MOST_ROWS, thin_out
from simia.report.training_statistics import summarize_episodes
from tests.command import run_simia
from tests.jobs.training_writer import join, make_row


def write_training(folder: Path, steps: int) -> None:
    """Rewards rise, a judge grows generous, and a tenth of the episodes is lost."""
    with contextlib.closing(join(folder)) as run:
        for step in range(1, steps + 1):
            rows = []
            for n in range(10):
                reward = None if n == 9 else float(n < step)
                ruled = {} if reward is None else {"judge": reward, "rules": float(n < step and n < 4)}
                end = {"end": "aborted", "code": "connection"} if reward is None else {"code": "user_stop"}
                group = f"g{n // 5}"
                rows.append(
                    make_row(step, f"0.{n}", "one", reward=reward, group=group, tokens=100 * step, **ruled, **end)
                )
            run.add(rows)
            if step % 5 == 0:
                run.add([make_row(step, f"0.{n}", "one", reward=1.0, validates=True) for n in range(3)])


def test_the_figures_of_a_step() -> None:
    rewards = [1.0, 0.0, None, 0.5]
    rows = [
        make_row(3, str(n), "one", reward=reward, group=str(n // 2), end="terminated" if reward else "truncated", judge=reward, rules=1.0)
        for n, reward in enumerate(rewards)
    ]  # fmt: skip
    found = summarize_episodes([row.figures for row in rows])
    assert (found.episodes, found.scored, found.groups, found.flat) == (4, 3, 2, 1)
    assert (found.reward, found.solved) == (pytest.approx(0.5), pytest.approx(1 / 3))
    assert (found.judged, found.agreed, found.agreement) == (3, 1, pytest.approx(1 / 3))
    assert found.share_ended("truncated") == 0.5
    assert found.tokens is None


def test_solved_counts_the_outcome_and_groups_the_trained_reward() -> None:
    rows = [make_row(1, str(n), "one", reward=reward, outcome=0.5) for n, reward in enumerate([1.0, 0.5])]
    found = summarize_episodes([row.figures for row in rows])
    assert (found.reward, found.solved, found.groups, found.flat) == (0.75, 0, 1, 0)


def test_the_report_of_a_training_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "grpo"
    write_training(folder, 30)
    with contextlib.closing(join(folder)):
        done = run_simia("report", "gr", "--runs", tmp_path / "runs")
        assert done.returncode == 0, done.stderr
        assert "trl, in progress" in done.stdout
        assert "300 in 30 steps (1 to 30), 270 scored" in done.stdout
        assert "aborted: connection 30" in done.stdout
        assert re.search(r"mean reward +\S+ +0\.11 → 1\.00", done.stdout)
        assert re.search(r"judge = rules +\S+ +1\.00 → 0\.44", done.stdout)
        assert f"{MOST_ROWS} of 30 are shown" in done.stdout
        listed = run_simia("runs", "list", "--runs", tmp_path / "runs").stdout
        assert "in progress" in listed
        assert "318 episodes" in listed
        exported = run_simia("export", "grpo", "--runs", tmp_path / "runs")
        assert "the training is in progress" in exported.stderr
        told = json.loads(run_simia("report", "grpo", "--json", "--runs", tmp_path / "runs").stdout)
    assert told["in_progress"] is True
    assert len(told["steps"]) == 30
    assert [row["first"] for row in told["validations"]] == [5, 10, 15, 20, 25, 30]
    page = (folder / "report.html").read_text(encoding="utf-8")
    for title in ("Reward", "Tokens of the policy", "Endings", "Judge and rules agree", "Validations"):
        assert title in page
    assert page.count('<g id="line-') == 2 + 2 + 1 + 2 + 3 + 1, (
        "with the validations' lines of reward, solved and turns"
    )
    assert "<script" not in page


def test_commands_that_cannot_take_a_training(tmp_path: Path) -> None:
    write_training(tmp_path / "grpo", 1)
    for words, said in (
        (("runs", "resume", "grpo"), "start the training again, it goes on from its last checkpoint"),
        (("runs", "recheck", "grpo"), "cannot be derived again from stored replies"),
        (("runs", "diff", "grpo", "grpo"), "is of a training: see simia report grpo"),
        (("judge", "grpo"), "is of a training: see simia report grpo"),
        (("runs", "show", "grpo", "--item", "1.9"), "items are named STEP.NAME, the first 1.0.0"),
    ):
        done = run_simia(*words, "--runs", tmp_path)
        assert done.returncode != 0
        assert said in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_steps_are_thinned_out_evenly_with_both_ends() -> None:
    steps = [summarize_episodes([make_row(step, "0", "one").figures]) for step in range(1, 101)]
    assert [step.first for step in thin_out(steps, 5)] == [1, 26, 51, 75, 100]
    assert thin_out(steps[:3], 5) == steps[:3]


def test_a_training_without_episodes(tmp_path: Path) -> None:
    join(tmp_path / "grpo").close()
    done = run_simia("report", "grpo", "--runs", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "none yet" in done.stdout
