"""A model's judgement as a part of acceptance: what it rejects, what it costs, and what happens where it cannot be asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.acceptance_judge import SUFFIX, find_goals
from simia.amplification.recheck import rebuild_run, recheck_run
from simia.amplification.session import Amplified, resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.cli.amplify import show_dry_run
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Item, Run
from simia.quality.judging.rubric import Rubric
from simia.quality.judging.settings import Judge
from simia.report.collect_statistics import collect_statistics
from simia.report.report_rows import list_summary_rows
from simia.report.terminal_report import JUDGED, explain_checking
from tests.fake_endpoint import FakeEndpoint
from tests.quality.judging.cases import seed
from tests.replies import judged


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:judged")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def judge_endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:judged")
    yield server
    server.stop()


def config(endpoint: FakeEndpoint, *settings: str) -> AmplifyConfig:
    endpoint.plan()
    given = [
        f"llm.base_url={endpoint.url}",
        "llm.model=fake",
        "llm.structured=true",
        "seeds.packs=[customer_service]",
        "seeds.limit=3",
        "limits.backoff=0.01",
        "judge.enabled=true",
        *settings,
    ]
    return load_config(AmplifyConfig, "amplify/default", given)


async def start(conf: AmplifyConfig, runs: Path) -> Amplified:
    return await start_amplification(conf, runs=runs, name="r", say=lambda _: None)


def read_results(runs: Path) -> dict[str, tuple[str, str | None, str | None, Any]]:
    """Each item's status, reason, detail and verdict."""
    run = Run.read_only(runs, "r")
    found = {
        item.id: (item.status, item.reason, item.detail, (run.ledger.result(item.id) or {}).get("verdict"))
        for item in run.ledger.items()
    }
    run.close()
    return found


async def test_what_the_judge_fails_is_rejected_with_its_reason(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=30"), tmp_path)
    assert (made.stop.kind, made.progress.accepted) == ("complete", 30)
    results = read_results(tmp_path)
    failed = [each for each in results.values() if each[1] == "judged_bad"]
    assert failed
    assert {detail for _, _, detail, _ in failed} == {
        "judged_bad at honesty: turn 3 tells a total that no result holds"
    }
    assert all(verdict["passed"] is False for *_, verdict in failed)
    unread = [detail for _, reason, detail, _ in results.values() if reason == "no_verdict"]
    assert unread
    assert all("no JSON object" in (detail or "") for detail in unread)
    passed = [verdict for status, _, _, verdict in results.values() if status == "passed"]
    assert all(verdict["passed"] is True for verdict in passed)
    unsound = [verdict for _, reason, _, verdict in results.values() if reason == "ungrounded_id"]
    assert unsound, "some failed the structural checks"
    assert set(unsound) == {None}, "and no verdict was paid for these"
    for trajectory in made.trajectories():
        assert trajectory.provenance.stages[-2:] == ["judge", "select"]

    asked = endpoint.log()["count"]
    run = Run.read_only(tmp_path, "r")
    calls = sum(run.ledger.spent()[1].values())
    assert "judge/quality.md" in run.ledger.meta("facts")["prompts"]
    run.close()
    assert asked == calls, "the calls and the cost of the judge are in the run's accounts"
    _, figures, _ = recheck_run(tmp_path, "r", lambda _: None)
    assert all(before == after for before, after in figures.values())
    assert read_results(tmp_path) == results
    (tmp_path / "r" / "ledger.db").unlink()
    rebuild_run(tmp_path, "r")
    assert read_results(tmp_path) == results
    assert endpoint.log()["count"] == asked


async def test_faults_change_no_result_and_lose_no_reply(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=25", "judge.votes=3")
    endpoint.plan(rate=0.35, mix=["500", "429:20ms", "cut", "reset", "garbage"])
    made = await start(conf, tmp_path / "a")
    assert (made.stop.kind, made.progress.accepted) == ("complete", 25)
    endpoint.plan()
    calm = await start(conf, tmp_path / "b")
    assert [t.messages for t in made.trajectories()] == [t.messages for t in calm.trajectories()]


async def test_a_judge_that_is_down_loses_no_trajectory(
    endpoint: FakeEndpoint, judge_endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    settings = [f'judge.llm={{"kind": "openai", "base_url": "{judge_endpoint.url}", "model": "critic"}}']
    limits = ["limits.retries=0", "stop.outage=4", "limits.concurrency=4", "stop.item_tries=1"]
    conf = config(endpoint, "n=12", *settings, *limits)
    judge_endpoint.plan(rate=1.0, mix=["503"])
    made = await start(conf, tmp_path)
    assert made.stop.kind == "endpoint"
    assert "the judge: " in made.stop.detail
    assert made.progress.accepted == 0
    judge_endpoint.plan()
    more = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert (more.stop.kind, more.progress.accepted) == ("complete", 12)
    prompts = [str(row["body"]["messages"]) for row in endpoint.requests]
    assert len(prompts) == len(set(prompts)), "no trajectory was paid for twice"
    assert {row["body"]["model"] for row in judge_endpoint.requests} == {"critic"}
    assert recheck_run(tmp_path, "r", lambda _: None)[1]["accepted"] == (12, 12)
    changed = {"judge.rubric": "judge/prefilter.md"}
    with pytest.raises(UserError, match="judge"):
        await resume_amplification("r", runs=tmp_path, changes=changed, say=lambda _: None)


async def test_the_budget_holds_for_the_judge_too(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=20", "limits.max_requests=15"), tmp_path)
    assert made.stop.kind == "budget"
    assert endpoint.log()["count"] == 15
    more = await resume_amplification("r", runs=tmp_path, changes={"limits.max_requests": None}, say=lambda _: None)
    assert (more.stop.kind, more.progress.accepted) == ("complete", 20)
    bodies = [json.dumps(row["body"], sort_keys=True) for row in endpoint.requests]
    assert len(bodies) == len(set(bodies)), "nothing was asked twice"


async def test_a_judge_may_answer_in_batches(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    conf = config(endpoint, "n=4", f'judge.llm={{"kind": "batch", "model": "critic", "folder": "{folder}"}}')
    made = await start(conf, tmp_path)
    for round_ in range(20):
        if made.stop.kind == "complete":
            break
        assert made.stop.kind == "batch", made.stop
        assert str(folder) in made.stop.detail
        answers = []
        for line in (folder / f"requests-{round_ + 1:04}.jsonl").read_text().splitlines():
            question = json.loads(line)
            answers.append(json.dumps({"custom_id": question["custom_id"], "text": judged(question["body"])}))
        (folder / "results" / f"{round_}.jsonl").write_text("\n".join(answers) + "\n")
        made = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert (made.stop.kind, made.progress.accepted) == ("complete", 4)
    assert all(verdict["passed"] for status, *_, verdict in read_results(tmp_path).values() if status == "passed")


async def test_a_stop_names_each_folder_in_which_questions_wait(tmp_path: Path) -> None:
    writing, judging = tmp_path / "b1", tmp_path / "jb1"
    settings = ["llm.kind=batch", "llm.model=fake", f"llm.folder={writing}", "seeds.packs=[customer_service]", "n=4"]
    own = f'judge.llm={{"kind": "batch", "model": "critic", "folder": "{judging}"}}'
    given = [*settings, "reply.form=json", "judge.enabled=true", own]
    made = await start(load_config(AmplifyConfig, "amplify/default", given), tmp_path)
    assert made.stop.detail.startswith(f"4 questions wait in requests-0001.jsonl in {writing}: ")
    assert str(judging) not in made.stop.detail
    asked = [json.loads(line) for line in (writing / "requests-0001.jsonl").read_text().splitlines()]
    answers = [json.dumps({"custom_id": row["custom_id"], "text": judged(row["body"])}) for row in asked[:3]]
    (writing / "results" / "a.jsonl").write_text("\n".join(answers) + "\n")
    made = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert made.stop.kind == "batch"
    first, second = made.stop.detail.split("; ")
    written = (judging / "requests-0001.jsonl").read_text().splitlines()
    assert " questions wait in " in first
    assert f" in {writing}: " in first
    assert second.startswith(f"{len(written)} questions wait in requests-0001.jsonl in {judging}: ")


def test_a_judge_reads_the_goals_of_the_plan() -> None:
    goals = [{"tools": ["get_order"], "outcome": "fulfilled\n# Form of your reply"}]
    assert find_goals(Item("i0", 0, {"plan": {"goals": goals}})) == goals
    assert find_goals(Item("i0", 0, {"seed": "s"})) == []
    rubric, conversation = Rubric(Judge()), seed("cs-001")
    with_goals = rubric.messages(conversation, goals)
    without = rubric.messages(conversation)
    assert with_goals[0] == without[0], "the static part stays the same for every item"
    assert json.dumps(goals[0]) in with_goals[1]["content"].splitlines()
    assert "goal" not in without[1]["content"]
    assert SUFFIX == ".judge"


async def test_the_price_is_in_the_dry_run_and_in_the_report(
    endpoint: FakeEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = config(endpoint, "n=5", "judge.votes=3", 'llm.price={"input": 2.0, "cached": 1.0, "output": 4.0}')
    show_dry_run(conf)
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("  judge of what"))
    found = re.match(
        r"  judge of what is accepted by \S+: 15 requests of about ([\d,]+) prompt and 300 reply tokens, .*?\$([\d.]+)(?:,|$)",
        line,
    )
    assert found is not None, line
    tokens = int(found[1].replace(",", ""))
    assert 1_000 < tokens < 10_000
    assert float(found[2]) == pytest.approx(15 * (tokens * 2 + 300 * 4) / 1e6, abs=0.01)

    await start(conf, tmp_path)
    run = Run.read_only(tmp_path, "r")
    statistics = collect_statistics(run)
    total = run.ledger.spent()[0].cost
    run.close()
    rows = dict(list_summary_rows(statistics))
    judged_bad = sum(reason.count for reason in statistics.reasons if reason.code in ("judged_bad", "no_verdict"))
    assert rows["judge"].startswith(f"{statistics.judging.replies:,} replies, {judged_bad} items rejected by it; $")
    assert 0 < statistics.judging.cost < (total or 0)
    assert statistics.judging.replies >= 15
    assert explain_checking(statistics) == JUDGED
