"""Counts of perturbations in reports: which happened, and how agents fared with and without them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from simia.report.perturbation_table import list_perturbation_lines, list_perturbation_rows
from simia.report.rollout_report import print_outcome, print_rollout
from simia.rollouts.session import start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.trajectory import Trajectory


def episode(reward: float | None, *events: tuple[str, bool, str | None], missed: Sequence[str] = ()) -> dict[str, Any]:
    rows = [
        {"kind": kind, "message": 2, "happened": happened, "reaction": reaction} for kind, happened, reaction in events
    ]
    extra = {"missed_events": [{"kind": kind, "at": 9} for kind in missed]} if missed else {}
    return {"perturbations": rows, "reward": {"value": reward}, "extra": extra}


def test_each_kind_is_counted_with_the_success_with_and_without_it() -> None:
    rows = [
        episode(1.0, ("rate_limit", True, "repeated"), ("slow_result", True, None)),
        episode(0.0, ("rate_limit", True, None)),
        episode(1.0, ("rate_limit", False, None)),
        episode(0.5, ("injected_instruction", True, "followed")),
        episode(None, ("rate_limit", True, None), missed=["stale_data", "stale_data", "rate_limit"]),
        episode(1.0),
    ]
    found = {each.kind: each for each in count_perturbations(rows)}
    assert list(found) == ["injected_instruction", "rate_limit", "slow_result", "stale_data", "any"]
    assert [each.planned for each in found.values()] == [1, 5, 1, 2, 9]
    assert [each.made for each in found.values()] == [1, 4, 1, 0, 6]
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
    (kind, whole) = count_perturbations([episode(1.0, ("change_of_mind", True, "too_early"))])
    assert (kind.too_early, kind.followed, whole.too_early) == (1, 0, 1)
    assert list_perturbation_rows([kind])[0][:5] == ["change_of_mind", "1", "1/1", "0", "1"]


def test_an_episode_lists_its_events_and_those_that_never_came() -> None:
    row = episode(1.0, ("rate_limit", True, "repeated"), ("off_topic", False, None), missed=["slow_result", "wrong_id"])
    row["perturbations"][0]["tool"] = "get_order"
    row["extra"]["missed_events"][0]["tool"] = "add_note"
    assert list_perturbation_lines(row) == [
        "perturbation: rate_limit of get_order, messages[2], happened, repeated",
        "perturbation: off_topic, messages[2], did not happen",
        "perturbation: slow_result of add_note, planned from call 9 on, never came",
        "perturbation: wrong_id, planned from message of the user 9 on, never came",
    ]
    assert list_perturbation_lines(episode(1.0)) == []


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
        item = next(each.id for each in run.ledger.items())
        body = run.ledger.result(item)
        assert body is not None
        print_outcome(run, item, body["trajectory"], out)
        report = collect_evaluation(run)
        print_evaluation(report, out)
        write_evaluation_page(run, report, tmp_path / "page.html")
        figures = json.loads(write_evaluation_json(report))["perturbations"]
    text = out.export_text()
    assert sum(line.startswith("perturbation: ") for line in text.splitlines()) == 1
    text = "\n".join(line for line in text.splitlines() if not line.startswith("perturbation: "))
    assert text.count("rate_limit") == text.count("injected_instruction") == 2
    assert {each["kind"]: each["happened"] for each in figures}["any"] == made
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h2>Perturbations</h2>" in page
    assert '<p class="dim">reward: 1 (' in page
    assert '<p class="dim">why: state: ' in page
    assert "perturb" in CONDITIONS
