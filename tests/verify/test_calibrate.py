"""Calibration of the oracle: figures by hand, a strong model's recorded verdicts, and the command."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simia.cli import build
from simia.errors import Code
from simia.llm.engine import Engine, Limits, MemoryJournal
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.pack import Pack
from simia.reward import Reward
from simia.rewards.oracle import Oracle
from simia.verify.calibrate import calibrate
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small
from tests.verify.labelled import PACK, label, labelled

RECORDING = Path(__file__).parents[1] / "recordings" / "oracle-shop.jsonl"


def test_figures_by_hand() -> None:
    yes, no, none = Reward(value=1.0), Reward(value=0.0), Reward(error=Code.UNPARSABLE)
    rows = (
        [("ref", 1.0, yes)] * 4
        + [("ref", 1.0, no)]
        + [("idle", 0.0, no)] * 3
        + [("idle", 0.0, yes), ("idle", 0.0, none)]
    )
    found = calibrate([*rows, ("ref", None, yes)])
    assert (found.judged, found.errors, found.solved, found.agreed) == (9, 1, 5, 7)
    assert (found.false_passes, found.false_fails) == (Counter(idle=1), Counter(ref=1))
    # Observed 7/9; by chance 5/9 · 5/9 + 4/9 · 4/9 = 41/81.
    assert found.kappa == pytest.approx((7 / 9 - 41 / 81) / (1 - 41 / 81))


async def test_a_strong_judge_agrees_with_the_rules_and_passes_nothing_idle() -> None:
    """61 episodes, judged blind by a strong model: it saw the rendered prompts alone."""
    rows = await labelled()
    assert len(rows) >= 60
    async with Engine(ReplayBackend(ReplaySettings(path=RECORDING)), MemoryJournal(), Limits(retries=0)) as engine:
        oracle = Oracle(engine, Pack.load(PACK))
        found = calibrate([(kind, label(episode), await oracle.score(episode, task)) for kind, task, episode in rows])
    assert found.errors == 0
    assert found.judged == len(rows)
    assert 20 <= found.solved <= 40
    assert found.kappa is not None
    assert found.kappa >= 0.8
    assert not found.false_passes.keys() & {"nothing", "echo", "canned"}


def test_the_command_compares_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    runner, app = CliRunner(), build()
    for agent in ("reference", "nothing"):
        assert runner.invoke(app, ["rollout", "todos", "--agent", agent, "--name", agent]).exit_code == 0
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")  # it passes everything
    try:
        words = [
            "reward",
            "calibrate",
            "reference",
            "nothing",
            "--set",
            f"llm.base_url={endpoint.url}",
            "--set",
            "llm.model=m",
        ]
        done = runner.invoke(app, words)
        assert done.exit_code == 0, (done.output, done.exception)
        assert "4 judged (2 solved by the rules), 0 without a verdict; agreement 0.500" in done.output
        assert "kappa 0.000" in done.output
        asked = len(endpoint.requests)
        assert runner.invoke(app, words).output == done.output
        assert len(endpoint.requests) == asked
    finally:
        endpoint.stop()
