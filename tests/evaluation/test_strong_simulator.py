"""A strong model's recorded answers to the frozen sets, measured again by the command."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia.evaluation.scores import read_episodes
from simia.jobs import Run
from tests.command import run_simia

FOLDER = Path(__file__).parents[2] / "eval" / "fidelity"
ANSWERS = FOLDER / "answers.jsonl"
BINS = ("0", "1 to 2", "3 to 6", "7 or more")


def measure(tmp_path: Path, frozen: str, *knowledge: str) -> dict[str, Any]:
    """Ask, put the recorded answers where the command looks for them, and return its figures."""
    words = ["fidelity", "--frozen", str(FOLDER / frozen)]
    words += [word for kind in knowledge for word in ("--knowledge", kind)]
    words += ["--set", "llm.kind=batch", "--set", "llm.model=strong", "--set", "llm.folder=asked"]
    asked = run_simia(*words, cwd=tmp_path)
    assert asked.returncode == 3, asked.stdout + asked.stderr
    shutil.copy(ANSWERS, tmp_path / "asked" / "results")
    found = run_simia(*words, cwd=tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    (path,) = tmp_path.glob("runs/*/fidelity.json")
    return dict(json.loads(path.read_text()))


def test_a_context_answered_at_most_twenty_prompts() -> None:
    rows = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    batches = [row["batch"] for row in rows]
    assert len({row["custom_id"] for row in rows}) == len(rows) == 240
    assert max(map(batches.count, batches)) == 20


@pytest.mark.parametrize(
    ("frozen", "exact"),
    [("calls-120.jsonl", {"code": 120}), ("calls-40.jsonl", {"schema": 11, "reference": 17, "state": 37, "code": 40})],
)
def test_exact_changes_by_knowledge(tmp_path: Path, frozen: str, exact: dict[str, int]) -> None:
    found = measure(tmp_path, frozen, *exact)
    figures = {kind: found[kind]["all"] for kind in exact}
    assert {kind: each["exact"] for kind, each in figures.items()} == exact
    assert all(each["lost"] == 0 for each in figures.values())
    assert figures["code"]["hits"] == figures["code"]["real"] == figures["code"]["simulated"] > 150
    assert set(found["code"]["by"]["|Δ|"]) == set(BINS)
    shown = {"calls-120.jsonl": 5, "calls-40.jsonl": 1}[frozen]  # calls that a seed of customer_service makes too
    assert {kind: found[kind]["shown"] for kind in exact} == dict.fromkeys(exact, shown)


@pytest.mark.parametrize(("agent", "expected"), [("reference", {1.0: 6, 0.8: 3, 0.75: 1}), ("following", {1.0: 10})])
def test_rules_judge_the_state_that_it_left(tmp_path: Path, agent: str, expected: dict[float, int]) -> None:
    """All ten episodes earn 1 in the executable world. In four of them the script names an id that only the code makes, and the agent
    `following` takes the simulator's."""
    words = ["rollout", "hotel_front_desk", "--agent", agent, "--limit", "10", "--name", "held"]
    settings = (
        "backend=simulated",
        "backend_settings.knowledge=code",
        "backend_settings.compute=reads",
        "reward=rules",
    )
    batch = ("user=scripted", "llm.kind=batch", "llm.model=strong", "llm.folder=asked")
    asked = run_simia(*words, *(word for each in (*settings, *batch) for word in ("--set", each)), cwd=tmp_path)
    assert "10 questions wait" in asked.stdout + asked.stderr
    shutil.copy(FOLDER / "episodes.jsonl", tmp_path / "asked" / "results")
    played = run_simia("runs", "resume", "held", cwd=tmp_path)
    assert played.returncode == 0, played.stdout + played.stderr
    run = Run.open(tmp_path / "runs", "held")
    rewards = [each.row["reward"]["value"] for each in read_episodes(run)]
    run.close()
    assert Counter(rewards) == expected
