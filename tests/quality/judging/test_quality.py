"""Quality judges on a run: the sample, the file of verdicts, resumes, figures and the command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from simia.amplification.settings import AmplifyConfig
from simia.cli import build_app
from simia.cli.judge import judge as judge_command
from simia.config import load_config as load_config
from simia.errors import Code, UserError
from simia.exporting.exporter import export
from simia.exporting.selection import select
from simia.jobs import Item, Run
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.replay import RecordedReply, append_recording
from simia.llm.types import LLMFault, Reply, Request
from simia.quality.judging.judge_reply import Verdict
from simia.quality.judging.quality_judge import judge_run, sample_items
from simia.quality.judging.rubric import Rubric
from simia.quality.judging.run_judgement import (
    FILE,
    JudgedItem,
    Judgement,
    VerdictFile,
    load_judgement,
    read_verdict_rows,
)
from simia.quality.judging.session import judge_saved_run
from simia.quality.judging.settings import Judge, QualitySettings
from simia.trajectory import Trajectory
from tests.quality.judging.cases import seed, seeds
from tests.quality.judging.fakes import FakeJudge, said

DIMENSIONS = ("consistency", "grounding", "results", "honesty", "policy", "outcome")
COUNT = 8


def points(**against: bool) -> str:
    return said(**(dict.fromkeys(DIMENSIONS, True) | against))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run that has accepted eight of our seeds."""
    config = load_config(
        AmplifyConfig, "amplify/default", ["llm.kind=replay", f"llm.path={tmp_path / 'replies.jsonl'}"]
    )
    made = Run.create(tmp_path, config, name="r", facts={})
    for ord_, name in enumerate(list(seeds())[:COUNT]):
        item = Item(id=f"i{ord_:06d}", ord=ord_, spec={}, status="passed")
        trajectory = seed(name)
        trajectory.provenance.item, trajectory.provenance.run = item.id, "r"
        made.ledger.plan(item)
        made.ledger.conclude(item, trajectory.id, {"trajectory": trajectory.to_row(), "issues": [], "repairs": []})
        made.ledger.accept(item, trajectory.id)
    made.ledger.flush()
    yield made
    made.close()


def accepted(run: Run) -> list[Trajectory]:
    return [Trajectory.from_row(body["trajectory"]) for body in run.ledger.accepted()]


def number_of(run: Run, request: Request) -> int:
    """Which of the accepted ones is asked about."""
    (found,) = [
        i
        for i, t in enumerate(accepted(run))
        if json.dumps(t.messages[0].text, ensure_ascii=False) in request.messages[1]["content"]
    ]
    return found


def faulty(run: Run, *bad: int, dimension: str = "honesty") -> FakeJudge:
    return FakeJudge(lambda request, _: points(**{dimension: number_of(run, request) not in bad}))


async def test_every_accepted_trajectory_is_judged_once(run: Run) -> None:
    backend = faulty(run, 2, 5)
    engine = Engine(backend, run.ledger)
    judgement = await judge_run(run, QualitySettings(), {"quality": engine})
    assert [row.item for row in judgement.rows] == [f"i{i:06d}" for i in range(COUNT)]
    assert [row.trajectory for row in judgement.rows] == [t.id for t in accepted(run)]
    rate = judgement.rate("quality", "honesty")
    assert (rate.passed, rate.judged, rate.errors) == (6, 8, 0)
    assert judgement.rate("quality", "policy").passed == 8
    assert judgement.rate("quality").passed == 6
    refused = judgement.failed()
    assert list(refused) == ["i000002", "i000005"]
    assert [(issue.code, issue.where) for issue in refused["i000002"]] == [(Code.JUDGED_BAD, "honesty")]
    again = await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    assert (again.rows, len(backend.asked)) == (judgement.rows, COUNT)
    assert load_judgement(run.folder).rows == judgement.rows


async def test_errors_are_no_verdicts_and_are_asked_for_again(run: Run) -> None:
    down = True

    def answer(request: Request, _: str) -> str | LLMFault:
        return LLMFault(Code.CONNECTION, "gone", retry=False) if down and number_of(run, request) == 3 else points()

    engines = {"quality": Engine(FakeJudge(answer))}
    judgement = await judge_run(run, QualitySettings(), engines)
    rate = judgement.rate("quality")
    assert (rate.passed, rate.judged, rate.errors) == (7, 7, 1)
    assert judgement.failed("any") == {}
    down = False
    assert (await judge_run(run, QualitySettings(), engines)).rate("quality").judged == 8


async def test_a_budget_stops_it_and_what_was_said_is_kept(run: Run) -> None:
    backend = faulty(run, 0)
    with pytest.raises(BudgetReached):
        await judge_run(run, QualitySettings(), {"quality": Engine(backend, None, EngineLimits(max_requests=3))})
    assert len(read_verdict_rows(run.folder / FILE)) == 3
    judgement = await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    assert (len(judgement.rows), len(backend.asked)) == (8, 8)


async def test_a_budget_is_one_for_all_judges_and_sessions(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = faulty(run)
    monkeypatch.setattr("simia.quality.judging.session.open_backend", lambda *_, **__: backend)
    judges = {name: {"llm": {"kind": "openai", "model": name, "base_url": "http://127.0.0.1:9/v1"}} for name in "ab"}
    for cap, asked in ((3, 3), (3, 3), (5, 5)):
        config = QualitySettings.model_validate({"judges": judges, "limits": {"max_requests": cap}})
        with pytest.raises(BudgetReached):
            await judge_saved_run("r", config, runs=run.folder.parent)
        assert len(backend.asked) == asked
    config = QualitySettings.model_validate({"judges": judges})
    judgement, _ = await judge_saved_run("r", config, runs=run.folder.parent)
    assert (len(judgement.rows), len(backend.asked)) == (2 * COUNT, 2 * COUNT)


async def test_a_torn_line_costs_one_verdict(run: Run) -> None:
    backend = faulty(run)
    await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    path = run.folder / FILE
    path.write_bytes(path.read_bytes()[:-20])
    judgement = await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    assert (len(judgement.rows), len(backend.asked)) == (8, 9)
    assert [row.item for row in read_verdict_rows(path)] == [row.item for row in judgement.rows]
    path.write_text('{"judge": 1}\n')
    with pytest.raises(UserError, match=r"line 1 is not a verdict"):
        load_judgement(run.folder)


async def test_another_way_of_judging_judges_anew(run: Run) -> None:
    backend = faulty(run)
    await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    changed = QualitySettings(judges={"quality": Judge(dimensions=["policy"])}, sample=3)
    judgement = await judge_run(run, changed, {"quality": Engine(backend)})
    assert (len(judgement.rows), len(backend.asked)) == (3, 11)
    assert judgement.dimensions("quality") == ["overall", "policy"]
    assert len(load_judgement(run.folder).rows) == 11, "verdicts of the other way of judging are kept"


async def test_a_later_judge_without_verdicts_loses_none_of_the_earlier(run: Run) -> None:
    await judge_run(run, QualitySettings(), {"quality": Engine(faulty(run, 2, 5))})
    waiting = FakeJudge(lambda *_: LLMFault(Code.PENDING, "waits", retry=False), model="another")
    judgement = await judge_run(run, QualitySettings(sample=3), {"quality": Engine(waiting)})
    assert [row.verdict.error for row in judgement.rows] == [Code.PENDING] * 3
    kept = load_judgement(run.folder)
    assert list(kept.failed()) == ["i000002", "i000005"]
    assert len(kept.judged_items()) == COUNT


async def test_an_error_replaces_no_verdict_of_the_same_judge(run: Run) -> None:
    await judge_run(run, QualitySettings(), {"quality": Engine(faulty(run, 2))})
    book = VerdictFile(run.folder)
    row = next(iter(book.rows.values()))
    book.add(row.model_copy(update={"verdict": Verdict(error=Code.PENDING)}))
    assert row in book.rows.values()
    assert row in load_judgement(run.folder).rows


async def test_a_trajectory_that_a_recheck_changed_is_judged_anew(run: Run) -> None:
    backend = FakeJudge(lambda *_: points())
    await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    item = next(item for item in run.ledger.items() if item.ord == 4)
    body = run.ledger.result(item.id)
    assert body is not None
    body["trajectory"]["messages"][-1]["content"] += " Anything else?"
    run.ledger.conclude(item, "other", body)
    run.ledger.flush()
    judgement = await judge_run(run, QualitySettings(), {"quality": Engine(backend)})
    assert (len(judgement.rows), len(backend.asked)) == (8, 9)


async def test_a_larger_sample_contains_the_smaller(run: Run) -> None:
    items = [f"i{i:06d}" for i in range(200)]
    small, large = list(sample_items(items, 20, 0)), list(sample_items(items, 50, 0))
    assert len(small) == 20
    assert set(small) < set(large)
    assert small == sorted(small)
    assert small != list(sample_items(items, 20, 1))
    assert set(sample_items(items[:100], 20, 0)) & set(small)
    backend = faulty(run)
    await judge_run(run, QualitySettings(sample=3), {"quality": Engine(backend)})
    judgement = await judge_run(run, QualitySettings(sample=5), {"quality": Engine(backend)})
    assert (len(judgement.rows), len(backend.asked)) == (5, 5)


async def test_several_judges_and_where_they_differ(run: Run) -> None:
    settings = QualitySettings(judges={name: Judge() for name in ("a", "b", "c")})
    engines = {
        "a": Engine(faulty(run, 1, 2)),
        "b": Engine(faulty(run, 1)),
        "c": Engine(faulty(run, 1, 3, dimension="policy")),
    }
    judgement = await judge_run(run, settings, engines)
    assert judgement.judges == ["a", "b", "c"]
    found = judgement.agreement("a", "b")
    assert (found.both, found.agreed) == (8, 7)
    assert found.kappa == pytest.approx((7 / 8 - 44 / 64) / (1 - 44 / 64))
    assert ("a", "c", "policy") in judgement.agreements()
    # Overall: 1 is failed by all, 2 by a, 3 by c.
    observed, share = (6 + 2 / 3) / 8, 19 / 24
    chance = share**2 + (1 - share) ** 2
    assert judgement.kappa() == pytest.approx((observed - chance) / (1 - chance))
    assert [item for item, _ in judgement.disagreements()] == ["i000001", "i000002", "i000003"]
    assert list(judgement.failed()) == ["i000001"]
    assert list(judgement.failed("all")) == ["i000001"]
    assert list(judgement.failed("any")) == ["i000001", "i000002", "i000003"]
    assert {issue.where for issue in judgement.failed()["i000001"]} == {"honesty", "policy"}


async def test_judges_of_different_dimensions_are_compared_on_what_they_share(run: Run) -> None:
    settings = QualitySettings(judges={"a": Judge(dimensions=["policy", "honesty"]), "b": Judge(dimensions=["policy"])})
    engine = Engine(faulty(run, 0, dimension="policy"))
    judgement = await judge_run(run, settings, {"a": engine, "b": engine})
    assert {name for _, _, name in judgement.agreements()} == {"overall", "policy"}
    assert judgement.kappa() is None
    with pytest.raises(UserError, match="'b' has no engine"):
        await judge_run(run, settings, {"a": engine})


def test_a_tie_is_no_majority() -> None:
    rows = [
        JudgedItem(
            judge=name, by="x", item="i", trajectory="t", verdict=Verdict(passed=side, dimensions={"policy": side})
        )
        for name, side in (("a", True), ("b", False))
    ]
    judgement = Judgement(rows)
    assert (judgement.failed(), list(judgement.failed("any"))) == ({}, ["i"])


def recorded(run: Run, *bad: int, **change: Any) -> None:
    judge = Judge(**change)
    rubric = Rubric(judge)
    rows = []
    for i, trajectory in enumerate(accepted(run)):
        request, text = rubric.request(trajectory, structured=True), points(honesty=i not in bad)
        rows.append(RecordedReply(request=request, draw="judge.quality.0", model="m", reply=Reply(text=text)))
    append_recording(rows, run.folder.parent / "replies.jsonl")


def command(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(judge_command)
    return CliRunner().invoke(app, list(arguments))


def test_the_command(run: Run) -> None:
    recorded(run, 6)
    runs = str(run.folder.parent)
    done = command("r", "--runs", runs)
    assert done.exit_code == 0, done.output
    assert "honesty" in done.output
    assert "0.875" in done.output
    assert "i000006 honesty: because of honesty" in done.output
    assert run.ledger.answered_count() == 0  # the judges' replies are not the run's
    (run.folder.parent / "replies.jsonl").write_text('{"request": {"messages": []}, "reply": null, "model": "m"}\n')
    (run.folder / FILE).unlink()
    assert command("r", "--runs", runs).exit_code == 0  # all of them from the judges' own ledger


def test_the_command_says_what_it_could_not_judge(run: Run) -> None:
    recorded(run, dimensions=["policy"])
    done = command("r", "--runs", str(run.folder.parent), "-k", "2")
    assert done.exit_code == 1
    assert "no verdict of quality: replay_miss" in done.output


def test_the_command_names_the_next_one_while_a_batch_waits(run: Run, tmp_path: Path) -> None:
    folder, runs = tmp_path / "b", str(run.folder.parent)
    llm = f'judges.quality.llm={{"kind": "batch", "model": "critic", "folder": "{folder}"}}'
    arguments = ["r", "--sample", "3", "--set", llm, "--runs", runs]
    done = command(*arguments)
    assert done.exit_code == 3, done.output
    assert "pending" not in done.output
    assert "dimension" not in done.output, "a table without a verdict"
    assert f"to answer by hand or in a chat window: simia runs questions {folder} b-questions" in done.output
    assert f"stopped: batch (3 questions wait in requests-0001.jsonl in {folder}: " in done.output
    assert done.output.splitlines()[-1] == f"next: simia judge {shlex.join(arguments)}"
    asked = [json.loads(line) for line in (folder / "requests-0001.jsonl").read_text().splitlines()]
    rows = [json.dumps({"custom_id": row["custom_id"], "text": points()}) for row in asked]
    rows[1] = json.dumps({"custom_id": asked[1]["custom_id"], "text": "I think it is fine."})
    (folder / "results" / "a.jsonl").write_text("\n".join(rows) + "\n")
    done = command(*arguments)
    assert done.exit_code == 3, done.output
    assert "the answer to 002 cannot be used: no JSON object; the question is repeated as 004" in done.output
    assert "dimension" in done.output, "two verdicts are there"
    (again,) = [json.loads(line) for line in (folder / "requests-0002.jsonl").read_text().splitlines()]
    row = json.dumps({"custom_id": again["custom_id"], "text": points()})
    (folder / "results" / "b.jsonl").write_text(row + "\n")
    done = command(*arguments)
    assert (done.exit_code, "next:" in done.output) == (0, False), done.output


def test_a_setting_without_the_judges_name_is_refused_with_the_right_one(run: Run) -> None:
    with pytest.raises(UserError) as error:
        CliRunner().invoke(
            build_app(),
            ["judge", "r", "--runs", str(run.folder.parent), "--set", "llm.kind=batch"],
            catch_exceptions=False,
        )
    assert str(error.value).endswith("--set judges.quality.llm.kind=batch")


def test_the_command_shows_a_prompt(run: Run) -> None:
    done = command("r", "--runs", str(run.folder.parent), "--dry-run")
    assert done.exit_code == 0, done.output
    assert "## honesty" in done.output
    assert "ORD-20417" in done.output
    assert not (run.folder / "judging").exists()


async def test_an_export_leaves_out_what_was_judged_bad_and_says_so(run: Run, tmp_path: Path) -> None:
    await judge_run(run, QualitySettings(), {"quality": Engine(faulty(run, 2, 5))})
    arguments = ["export", "r", "--runs", str(tmp_path), "--to", "openai", "--out", str(tmp_path / "out"), "--judged"]
    arguments.append("--partial")  # the fixture still has the run open
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 0, result.output
    assert "2 that a judge found a fault in were left out" in result.output
    assert "0 have no verdict and were kept" in result.output
    assert len((tmp_path / "out" / "data.jsonl").read_text().splitlines()) == COUNT - 2


async def test_an_export_says_how_many_had_no_verdict(run: Run, tmp_path: Path) -> None:
    await judge_run(run, QualitySettings(sample=3), {"quality": Engine(faulty(run))})
    selection = select(["r"], tmp_path, judged=True, partial=True)
    report = export(selection.rows, tmp_path / "out", to="openai", facts=selection.facts, verdicts=selection.verdicts)
    assert (report.exported, report.unjudged) == (COUNT, COUNT - 3)


async def test_a_verdict_on_an_earlier_text_is_none(run: Run, tmp_path: Path) -> None:
    """Items 2 and 4 were judged, and a recheck changed both: the first was failed, the second passed."""
    await judge_run(run, QualitySettings(), {"quality": Engine(faulty(run, 2, 5))})
    for item in run.ledger.items():
        if item.ord in (2, 4) and (body := run.ledger.result(item.id)):
            body["trajectory"]["messages"][-1]["content"] += " Anything else?"
            run.ledger.conclude(item, f"other-{item.ord}", body)
    run.ledger.flush()
    selection = select(["r"], tmp_path, judged=True, partial=True)
    report = export(selection.rows, tmp_path / "out", to="openai", facts=selection.facts, verdicts=selection.verdicts)
    assert [row.item for row in selection.dropped] == ["i000005"]
    assert (report.exported, report.unjudged) == (COUNT - 1, 2)


async def test_the_card_of_an_export_says_what_a_judge_left_out(run: Run, tmp_path: Path) -> None:
    await judge_run(run, QualitySettings(sample=5), {"quality": Engine(faulty(run, 2, 5))})
    chosen = [int(row.item[1:]) for row in load_judgement(run.folder).rows if row.verdict.passed is False]
    out = tmp_path / "out"
    arguments = ["export", "r", "--runs", str(tmp_path), "--to", "openai", "--out", str(out), "--judged", "--partial"]
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 0, result.output
    assert chosen
    card = (out / "README.md").read_text()
    assert f"| trajectories exported | {COUNT - len(chosen)} of {COUNT} |" in card
    assert f"| trajectories without a verdict of a judge, kept | {COUNT - 5} of {COUNT - len(chosen)} |" in card
    assert f"| `judged_bad` | {len(chosen)} | the judging model found a fault |" in card
    refused = [json.loads(line) for line in (out / "refused.jsonl").read_text().splitlines()]
    assert [(row["item"], row["code"], row["where"]) for row in refused] == [
        (f"i{item:06}", "judged_bad", "honesty") for item in chosen
    ]
