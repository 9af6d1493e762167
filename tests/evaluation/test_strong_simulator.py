"""A strong model's recorded answers to the frozen sets, measured again by the command."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eval.fidelity import answer_tables
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
    [
        ("calls-120.jsonl", {"code": 120}),
        pytest.param("calls-40.jsonl", {"schema": 11, "reference": 17, "state": 37, "code": 40}, marks=pytest.mark.all),
    ],
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


async def test_the_page_has_the_tables_of_the_recorded_answers() -> None:
    found = await answer_tables.compare_answers()
    page = answer_tables.PAGE.read_text(encoding="utf-8")
    assert page == answer_tables.write_page(page, answer_tables.render(found)), "run eval/fidelity/answer_tables.py"
    code, envsimbench = found["code", 120], [row for row in found["code", 120] if 2 < row["paths"] < 7]
    assert (len(envsimbench), sum(row["paths"] > 6 for row in code), sum(row["paths"] < 3 for row in code)) == (
        36,
        2,
        82,
    )
    assert all(row["transition"]["exact"] for row in envsimbench)


@pytest.mark.parametrize(
    ("pack", "solved"),
    [
        ("customer_service", 10),
        ("hotel_front_desk", 10),
        ("job_seeking", 10),
    ],
)
def test_rules_judge_the_state_that_it_left(tmp_path: Path, pack: str, solved: int) -> None:
    """All ten episodes of a pack earn 1 in the executable world too, and the judge accepts them. The agent `following` takes the ids that the
    simulator generates."""
    assert Counter(play_recorded(tmp_path, pack, "following", "both")) == {(1.0, 1.0): solved}


@pytest.mark.parametrize(
    ("pack", "solved", "accepted"),
    [
        ("customer_service", 10, 9),
        ("hotel_front_desk", 6, 6),
        ("job_seeking", 9, 9),
    ],
)
def test_the_judge_and_the_rules_agree(tmp_path: Path, pack: str, solved: int, accepted: int) -> None:
    """In five of the 30 episodes the script names an id that only the code generates: rules and judge find the failure. In one more the
    script tells the user such an id, which only the judge sees."""
    found = play_recorded(tmp_path, pack, "reference", "both")
    assert len(found) == 10
    assert sum(value == 1.0 for value, _ in found) == solved
    assert sum(verdict == 1.0 for _, verdict in found) == accepted
    assert sum((value == 1.0) == (verdict == 1.0) for value, verdict in found) == 10 - (solved - accepted)


def play_recorded(tmp_path: Path, pack: str, agent: str, reward: str) -> list[tuple[float, float | None]]:
    """Play ten tasks in the world that the recorded answers simulate. Returns each reward, and the judge's verdict."""
    words = ["rollout", pack, "--agent", agent, "--limit", "10", "--name", "held"]
    settings = (
        "backend=simulated",
        "backend_settings.knowledge=code",
        "backend_settings.compute=reads",
        f"reward={reward}",
    )
    batch = ("user=scripted", "llm.kind=batch", "llm.model=strong", "llm.folder=asked")
    asked = run_simia(*words, *(word for each in (*settings, *batch) for word in ("--set", each)), cwd=tmp_path)
    assert "questions wait" in asked.stdout + asked.stderr
    shutil.copy(FOLDER / "episodes.jsonl", tmp_path / "asked" / "results")
    played = run_simia("runs", "resume", "held", cwd=tmp_path)
    assert played.returncode == 0, played.stdout + played.stderr
    run = Run.open(tmp_path / "runs", "held")
    rewards = [each.row["reward"] for each in read_episodes(run)]
    run.close()
    return [(each["value"], each["parts"].get("oracle")) for each in rewards]
