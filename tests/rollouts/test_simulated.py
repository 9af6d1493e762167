"""A rollout in a simulated world: every role a model, every reply stored, one word away from the executable one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli import build_app
from simia.jobs import Run
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    yield endpoint
    endpoint.stop()


def roll(endpoint: FakeEndpoint, *more: str, name: str = "s") -> Any:
    model = [
        "--set",
        "llm.kind=openai",
        "--set",
        f"llm.base_url={endpoint.url}",
        "--set",
        "llm.model=m",
        "--set",
        "sampling.calls=native",
    ]
    return CliRunner().invoke(build_app(), ["rollout", "todos", "--name", name, *model, *more])


def roles(endpoint: FakeEndpoint) -> Counter[str]:
    starts = {"You are the computer": "tools", "You judge": "judge", "You play a user": "user"}
    systems = [str(request["body"]["messages"][0]["content"]) for request in endpoint.requests]
    return Counter(next((role for start, role in starts.items() if s.startswith(start)), "agent") for s in systems)


def test_one_word_swaps_the_world(stage: FakeEndpoint) -> None:
    done = roll(stage, "--set", "backend=simulated", "--set", "user=llm", "--set", "group=2")
    assert done.exit_code == 0, done.output
    assert "4 episodes of 2 tasks, 4 scored" in done.output
    # A group shares the answer to the same call in the same world; two episodes that are equal to the letter share a verdict.
    assert roles(stage) == {"agent": 8, "tools": 2, "user": 4, "judge": 2}
    run = Run.open(Path("runs"), "s")
    try:
        rows = [run.ledger.result(item.id)["trajectory"] for item in run.ledger.items()]  # type: ignore[index]
    finally:
        run.close()
    assert {row["reward"]["value"] for row in rows} == {1.0}
    assert {row["extra"]["backend"] for row in rows} == {"simulated"}
    real = roll(stage, "--set", "user=none", name="real")
    assert real.exit_code == 0, real.output


def test_a_resume_asks_for_nothing_again(stage: FakeEndpoint) -> None:
    roll(stage, "--set", "backend=simulated", "--set", "user=llm")
    before = len(stage.requests)
    run = Run.open(Path("runs"), "s")
    for item in run.ledger.items():  # as if it had been killed before the episodes were concluded
        item.status = "failed"
        run.ledger.conclude(item, None, None)
    run.ledger.flush()
    run.close()
    done = CliRunner().invoke(build_app(), ["runs", "resume", "s"])
    assert done.exit_code == 0, done.output
    assert len(stage.requests) == before


def test_roles_can_have_models_of_their_own_and_rules_can_judge(stage: FakeEndpoint) -> None:
    other = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        simulator = json.dumps({"kind": "openai", "base_url": other.url, "model": "sim"})
        done = roll(
            stage,
            "--set",
            "backend=simulated",
            "--set",
            f"simulator={simulator}",
            "--set",
            "reward=rules",
            "--limit",
            "1",
        )
        assert done.exit_code == 0, done.output
        assert roles(other) == {"tools": 1}
        assert roles(stage) == {"agent": 2}
        assert "0 scored" in done.output  # there is no state to compare, and a model was not to judge
    finally:
        other.stop()


def test_a_model_can_judge_the_executable_world(stage: FakeEndpoint) -> None:
    done = roll(stage, "--set", "reward=oracle", "--limit", "1")
    assert done.exit_code == 0, done.output
    assert roles(stage)["judge"] == 1


def test_a_judges_outage_and_its_budget_are_made_good_by_a_resume(stage: FakeEndpoint) -> None:
    judge = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        judge.plan(script=["500"] * 40)
        apart = json.dumps({"kind": "openai", "base_url": judge.url, "model": "judge"})
        limits = ("limits.retries=1", "limits.backoff=0.01", "group=2")
        done = roll(stage, *(word for each in (*limits, "reward=oracle", f"judge={apart}") for word in ("--set", each)))
        assert done.exit_code == 1, done.output
        assert "4 aborted, mostly" in done.output
        played = len(stage.requests)
        assert played > 0

        judge.plan()
        run = Run.read_only(Path("runs"), "s")
        one_more = run.ledger.earlier_spending().sent + 1
        run.close()
        again = CliRunner().invoke(build_app(), ["runs", "resume", "s", "--set", f"limits.max_requests={one_more}"])
        assert again.exit_code == 1, again.output
        assert "budget reached: max_requests" in again.output
        run = Run.read_only(Path("runs"), "s")
        found = Counter(item.status for item in run.ledger.items())
        run.close()
        assert found["passed"] > 0
        assert found["rejected"] == 0

        again = CliRunner().invoke(build_app(), ["runs", "resume", "s", "--set", "limits.max_requests=1000"])
        assert again.exit_code == 0, again.output
        assert "4 episodes of 2 tasks, 4 scored" in again.output
        assert len(stage.requests) == played, "the agent was not asked again"
    finally:
        judge.stop()


def test_a_verdict_that_cannot_be_read_stays_one(stage: FakeEndpoint) -> None:
    judge = FakeEndpoint()  # it echoes
    try:
        apart = json.dumps({"kind": "openai", "base_url": judge.url, "model": "judge"})
        done = roll(stage, "--set", "reward=oracle", "--set", f"judge={apart}", "--limit", "1")
        assert done.exit_code == 0, done.output
        assert "0 scored" in done.output
    finally:
        judge.stop()


def test_one_budget_holds_for_all_models_and_over_a_resume(stage: FakeEndpoint) -> None:
    other = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        simulator = json.dumps({"kind": "openai", "base_url": other.url, "model": "sim"})
        mixed = ["--set", "backend=simulated", "--set", f"simulator={simulator}", "--set", "limits.max_requests=3"]
        done = roll(stage, *mixed)
        assert "max_requests is 3" in done.output
        assert len(stage.requests) + len(other.requests) == 3
        assert other.requests
        done = CliRunner().invoke(build_app(), ["runs", "resume", "s"])
        assert "max_requests is 3" in done.output
        assert len(stage.requests) + len(other.requests) == 3, "what an earlier session spent is spent"
        CliRunner().invoke(build_app(), ["runs", "resume", "s", "--set", "limits.max_requests=20"])
        assert 3 < len(stage.requests) + len(other.requests) <= 20
    finally:
        other.stop()


@pytest.mark.parametrize("forced", ["true", "false"])
def test_a_shadow_waits_for_answers_that_wait_in_a_batch(stage: FakeEndpoint, forced: str) -> None:
    words = (
        "backend=shadow",
        f"backend_settings.forced={forced}",
        "agent=reference",
        "user=none",
        "llm.kind=batch",
        "llm.folder=asked",
    )
    given = [
        "--limit",
        "1",
        *(word for each in words for word in ("--set", each)),
        "--set",
        "llm.model=m",
        "--name",
        "w",
    ]
    done, left = CliRunner().invoke(build_app(), ["rollout", "todos", *given]), 2
    while left and (done.exit_code, "to answer by hand" in done.output) == (3, True):
        left -= 1
        assert "nothing is lost" in done.output
        names = {row["custom_id"] for path in Path("asked").glob("requests-*") for row in map(json.loads, path.open())}
        text = json.dumps({"answers": [{"call": 1, "outcome": "result", "content": {"ok": True}}]})
        answers = "".join(json.dumps({"custom_id": name, "text": text}) + "\n" for name in sorted(names))
        Path(f"asked/results/answers-{left}.jsonl").write_text(answers)
        done = CliRunner().invoke(build_app(), ["runs", "resume", "w"])
    assert done.exit_code == 0, done.output
    assert left == (1 if forced == "true" else 0), "a forced shadow asks for all calls of an episode at once"
    assert "shadow: 2 calls, 0 agree, 2 differ, 0 lost" in done.output


def test_a_shadow_is_summed_up_and_its_differences_are_shown(stage: FakeEndpoint) -> None:
    stage.plan(script=["ok", "400"])
    words = ("backend=shadow", "limits.retries=0", "agent=reference", "user=none")
    done = roll(stage, *(word for each in words for word in ("--set", each)), "--limit", "1")
    assert done.exit_code == 0, done.output
    assert "shadow: 2 calls, 0 agree, 1 differ, 1 lost (mostly bad_request: " in done.output
    shown = CliRunner().invoke(build_app(), ["runs", "show", "s"])
    assert "shadow: 2 calls" in shown.output
    item = CliRunner().invoke(build_app(), ["runs", "show", "s", "--item", "todo-1.0"])
    assert item.exit_code == 0, item.output
    assert "  1. " in item.output
    assert ": differs" in item.output
    assert "simulated" in item.output
    assert ": lost" in item.output
