"""`simia judge`: let models judge the accepted trajectories of a run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from simia.cli.open_questions import print_unreadable_answers
from simia.cli.options import RUN, RUNS
from simia.cli.terminal_output import WAITS, format_share
from simia.errors import Code, UserError
from simia.report.console import Terminal
from simia.terminal import say, say_error, write_count

if TYPE_CHECKING:
    from simia.quality.judging.run_judgement import Judgement
    from simia.quality.judging.settings import QualitySettings

SHOWN = 5


def judge(
    run: RUN = "last",
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Config with judges, by name or path. Default: a single judge.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", "-k", help="Number of trajectories to judge. Default: all.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, for example judges.quality.llm.model=gpt-5-mini; may be repeated."),
    ] = None,
    runs: RUNS = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print one prompt, without sending a request.")] = False,
) -> None:
    """Judge the accepted trajectories of a run.

    Each judge is a model with a rubric: judges.NAME.llm, judges.NAME.rubric. A judge without a model uses the run's model. Verdicts are
    stored in the run's folder and reused. With a batch, the command ends with exit code 3 while questions wait.
    """
    from simia import event_loop
    from simia.config import load_config
    from simia.llm.engine import BudgetReached
    from simia.llm.question_files import list_open_questions
    from simia.quality.judging.session import judge_saved_run
    from simia.quality.judging.settings import QualitySettings

    refuse_settings_without_judge(settings or [])
    resolved = load_config(QualitySettings, config, settings or [], sample=sample)
    if dry_run:
        print_judge_prompt(run, resolved, runs)
        return
    with Terminal(stderr=True).status("judging") as status:
        verdicts: list[object] = []

        def count(verdict: object) -> None:
            verdicts.append(verdict)
            status.update(f"judging: {write_count(len(verdicts), 'verdict')}")

        judging = judge_saved_run(run, resolved, runs=runs, say=say_error, on_verdict=count)
        try:
            judgement, usage = event_loop.run_command(judging)
        except BudgetReached as reached:
            raise UserError(f"{reached} (limits.{reached.cap}); {write_count(len(verdicts), 'verdict')} kept") from None
    print_judgement(judgement)
    cost = "" if usage.cost is None else f", ${usage.cost:,.2f}"
    say(f"judging this run took {usage.prompt + usage.completion:,} tokens{cost}")
    waiting = bool(judgement.waiting)
    if waiting:
        folders = list_judge_batches(run, resolved, runs)
        print_unreadable_answers(list_open_questions(folders))
        given = [run, *(["--config", config] if config else []), *(["--sample", str(sample)] if sample else [])]
        given += [word for setting in settings or [] for word in ("--set", setting)]
        given += [] if runs == Path("runs") else ["--runs", str(runs)]
        say(f"stopped: batch ({judgement.waiting}); nothing is lost")
        for folder in folders:
            words = shlex.join([str(folder), f"{folder.name}-questions"])
            say(f"to answer by hand or in a chat window: simia runs questions {words}")
        say(f"next: simia judge {shlex.join(given)}")
    if any(row.verdict.error not in (None, Code.PENDING) for row in judgement.rows):
        raise typer.Exit(1)
    if waiting:
        raise typer.Exit(WAITS)


def list_judge_batches(run_id: str, config: QualitySettings, runs: Path) -> list[Path]:
    """List the batch folders of the judges; a judge without a model uses the run's."""
    from simia.jobs import find_run
    from simia.jobs.run import saved_config
    from simia.llm.question_files import find_batch_folders

    own = saved_config(find_run(runs, run_id)).get("llm")
    judges = config.model_dump(mode="json")["judges"].values()
    return find_batch_folders([judge["llm"] or own for judge in judges])


def refuse_settings_without_judge(settings: Iterable[str]) -> None:
    """Raise `UserError` for a setting of a judge that names no judge."""
    from simia.quality.judging.settings import Judge, QualitySettings

    for setting in settings:
        key = setting.partition("=")[0]
        if (first := key.partition(".")[0]) in Judge.model_fields and first not in QualitySettings.model_fields:
            raise UserError(f"--set {key}: a judge's settings stand below its name: --set judges.quality.{setting}")


def print_judgement(judgement: Judgement) -> None:
    errors: dict[str, set[Code | None]] = {}
    for row in judgement.rows:
        errors.setdefault(row.judge, set()).add(row.verdict.error)
    table = Table("judge", "dimension", "passed", "of", "rate", "95 %", "no verdict")
    for name in judgement.judges:
        for dimension in judgement.dimensions(name):
            rate = judgement.rate(name, dimension)
            if not rate.judged and errors.get(name) == {Code.PENDING}:
                continue  # all wait in a batch
            low, high = rate.interval
            counts = name, dimension, str(rate.passed), str(rate.judged), format_share(rate.value)
            table.add_row(*counts, f"{low:.3f}–{high:.3f}" if rate.judged else "", str(rate.errors or ""))
    if table.row_count:
        Terminal().print(table)
    if table.row_count and len(judgement.judges) > 1:
        print_agreement(judgement)
    for item, issues in list(judgement.failed("any").items())[:SHOWN]:
        for issue in issues[:SHOWN]:
            say(f"{item} {issue.where}: {issue.detail}")
    for row in [row for row in judgement.rows if row.verdict.error not in (None, Code.PENDING)][:SHOWN]:
        code = row.verdict.error
        say(f"{row.item} no verdict of {row.judge}: {code}: {row.verdict.detail or (code.meaning if code else '')}")


def print_agreement(judgement: Judgement) -> None:
    table = Table("judges", "dimension", "both judged", "agree", "kappa")
    for (first, second, dimension), found in judgement.agreements().items():
        shares = format_share(found.share), format_share(found.kappa)
        table.add_row(f"{first}, {second}", dimension, str(found.both), *shares)
    for dimension in judgement.dimensions(*judgement.judges) if len(judgement.judges) > 2 else []:
        table.add_row("all (Fleiss)", dimension, "", "", format_share(judgement.kappa(dimension)))
    Terminal().print(table)
    disputed = judgement.disagreements()
    if disputed:
        named = ", ".join(f"{item} ({share:.0%})" for item, share in disputed[:SHOWN])
        say(f"most disputed of {len(disputed)}: {named}")


def print_judge_prompt(run_id: str, config: QualitySettings, runs: Path) -> None:
    from simia.jobs import Run
    from simia.quality.judging.rubric import Rubric
    from simia.trajectory import Trajectory

    with contextlib.closing(Run.read_only(runs, run_id)) as run:
        body = next(run.ledger.accepted(), None)
    if body is None:
        raise UserError(f"run {run_id} has no accepted trajectory to judge")
    for name, judge in config.judges.items():
        for message in Rubric(judge).messages(Trajectory.from_row(body["trajectory"])):
            say(f"--- {name}: {message['role']} ---\n{message['content']}\n")
