"""`simia report`: print a run's tables, and write one self-contained HTML page."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from simia.cli.options import RUN, RUNS
from simia.cli.terminal_output import note_incomplete
from simia.errors import UserError
from simia.jobs import Run
from simia.report.console import Terminal
from simia.terminal import say


def report(
    run: RUN = "last",
    html: Annotated[
        Path | None, typer.Option("--html", help="Path of the page. Default: report.html in the run's folder.")
    ] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Report on a run: acceptance, rejections, coverage per tool, overlap with the seeds; a rollout's rewards and errors."""
    from simia.report.collect_statistics import collect_statistics
    from simia.report.html_page import write_html
    from simia.report.rollout_report import print_rollout
    from simia.report.terminal_report import print_report

    with contextlib.closing(Run.read_only(runs, run)) as opened:
        note_incomplete(opened)
        if opened.is_rollout:
            if html is not None:
                raise UserError("--html is not supported for rollouts: omit it")
            print_rollout(opened, Terminal())
            return
        facts = collect_statistics(opened)
        print_report(facts, Terminal())
        path = html or opened.folder / "report.html"
        write_html(opened, facts, path)
        say(f"page: {path}")
