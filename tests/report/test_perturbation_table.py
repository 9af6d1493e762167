"""Counts of perturbations in reports: which happened, and how agents fared with and without them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.console import Console

from simia.config import load_config
from simia.evaluation.perturbations import count_perturbations
from simia.evaluation.scores import CONDITIONS
from simia.jobs import Run
from simia.report.evaluation_report import (
    collect_evaluation,
    print_evaluation,
    write_evaluation_json,
    write_evaluation_page,
)
from simia.report.rollout_report import print_rollout
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.trajectory import Trajectory


def episode(reward: float | None, *events: tuple[str, bool, str | None]) -> dict[str, object]:
    rows = [
        {"kind": kind, "message": 2, "happened": happened, "reaction": reaction} for kind, happened, reaction in events
    ]
    return {"perturbations": rows, "reward": {"value": reward}}


def test_each_kind_is_counted_with_the_success_with_and_without_it() -> None:
    rows = [
        episode(1.0, ("rate_limit", True, "repeated"), ("slow_result", True, None)),
        episode(0.0, ("rate_limit", True, None)),
        episode(1.0, ("rate_limit", False, None)),
        episode(0.5, ("injected_instruction", True, "followed")),
        episode(None, ("rate_limit", True, None)),
        episode(1.0),
    ]
    found = {each.kind: each for each in count_perturbations(rows)}
    assert list(found) == ["injected_instruction", "rate_limit", "slow_result", "any"]
    limit = found["rate_limit"]
    assert (limit.made, limit.happened, limit.repeated, limit.followed) == (4, 3, 1, 0)
    assert (limit.episodes, limit.solved, limit.other_episodes, limit.other_solved) == (2, 1, 3, 2)
    assert limit.success is not None
    assert limit.success.low < limit.success.value == 0.5 < limit.success.high
    assert found["injected_instruction"].followed == 1
    whole = found["any"]
    assert (whole.made, whole.happened, whole.episodes, whole.solved) == (6, 5, 3, 1)
    assert (whole.other_episodes, whole.other_solved) == (2, 2)
    assert count_perturbations([episode(1.0)]) == []


async def test_the_reports_of_a_rollout_show_them(tmp_path: Path) -> None:
    settings = ["perturb.kinds=[rate_limit, injected_instruction]", "perturb.within=1", "limit=8", "user=scripted"]
    config = load_config(RolloutConfig, "rollout/default", settings, pack="customer_service", agent="repeating")
    done = await start_rollout(config, runs=tmp_path, name="r", say=lambda _: None)
    assert done.complete
    with contextlib.closing(Run.read_only(tmp_path, "r")) as run, Console(record=True, width=100) as out:
        stored = [Trajectory.from_row(body["trajectory"]) for body in run.ledger.accepted()]
        made = sum(len(each.perturbations) for each in stored)
        assert made >= 8
        print_rollout(run, out)
        report = collect_evaluation(run)
        print_evaluation(report, out)
        write_evaluation_page(run, report, tmp_path / "page.html")
        figures = json.loads(write_evaluation_json(report))["perturbations"]
    text = out.export_text()
    assert text.count("rate_limit") == text.count("injected_instruction") == 2
    assert {each["kind"]: each["happened"] for each in figures}["any"] == made
    assert "<h2>Perturbations</h2>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "perturb" in CONDITIONS
