"""`simia report`: print a run's tables, and write one self-contained HTML page."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from simia.cli.options import RUN, RUNS
from simia.cli.terminal_output import name_runs, note_incomplete
from simia.errors import UserError
from simia.jobs import Run
from simia.report.console import Terminal
from simia.terminal import say, say_json


def report(
    run: RUN = "last",
    html: Annotated[
        Path | None, typer.Option("--html", help="Path of the HTML page. Default: report.html in the run's folder.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For a training or a rollout: print everything as one JSON object.")
    ] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Report on a run. Amplification: acceptance, rejections, coverage of the tools, overlap with the seeds. Rollout: rewards and errors.
    Training: curves, also while it runs."""
    from simia.report.collect_statistics import collect_statistics
    from simia.report.html_page import write_html
    from simia.report.synthesis_report import print_synthesis
    from simia.report.terminal_report import print_report

    with contextlib.closing(Run.read_only(runs, run)) as opened:
        if opened.is_training:
            report_training(opened, html, as_json=as_json)
            return
        if as_json and not opened.is_rollout:
            raise UserError(f"--json is for trainings and rollouts, and {opened.id} is neither: omit it")
        note_incomplete(opened)
        if opened.is_rollout:
            report_rollout(opened, html, as_json=as_json, at=name_runs(runs))
            return
        if opened.is_synthesis:
            if html is not None:
                raise UserError("--html is not supported for a synthesis run: write a page of its pack, or omit it")
            print_synthesis(opened, Terminal())
            return
        facts = collect_statistics(opened)
        print_report(facts, Terminal())
        path = html or opened.folder / "report.html"
        write_html(opened, facts, path)
        say(f"page: {path}")


def report_training(run: Run, html: Path | None, *, as_json: bool) -> None:
    """Print the curves of a training and write its page, or print JSON alone. Its rows are not verified: it may be in progress."""
    from simia.report.training_report import print_training, write_training_page
    from simia.report.training_statistics import collect_training

    training = collect_training(run)
    if as_json:
        say_json(training.model_dump_json(indent=2))
        return
    print_training(training, Terminal())
    path = html or run.folder / "report.html"
    write_training_page(training, path)
    say(f"page: {path}")


def report_rollout(run: Run, html: Path | None, *, as_json: bool, at: str) -> None:
    """Print the report of a rollout or an evaluation, or JSON alone, and write its page where one is asked for. `at`: the option that names
    the folder of runs."""
    from simia.report.evaluation_report import (
        collect_evaluation,
        print_evaluation,
        write_evaluation_json,
        write_evaluation_page,
    )
    from simia.report.rollout_report import print_rollout

    evaluation = run.saved_config().get("suite") is not None
    if as_json:
        say_json(write_evaluation_json(collect_evaluation(run)))
        return
    if evaluation:
        print_evaluation(collect_evaluation(run), Terminal(), at)
    else:
        print_rollout(run, Terminal())
    if html is not None:
        write_evaluation_page(run, collect_evaluation(run), html)
        say(f"page: {html}")
