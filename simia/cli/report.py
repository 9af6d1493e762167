"""`simia report`: print a run's tables, and write one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simia.cli.amplify import RUNS
from simia.cli.common import note_incomplete
from simia.errors import UserError
from simia.jobs import Run
from simia.report.console import Terminal


def report(
    run: Annotated[str, typer.Argument(help="Run: id, unique prefix, path, or `last`.")] = "last",
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

    out = Terminal()
    opened = Run.read_only(runs, run)
    try:
        note_incomplete(opened)
        if opened.is_rollout:
            if html is not None:
                raise UserError("--html is not supported for rollouts: omit it")
            print_rollout(opened, out)
            return
        statistics = collect_statistics(opened)
        print_report(statistics, out)
        path = html or opened.folder / "report.html"
        write_html(opened, statistics, path)
        out.print(f"page: {path}", markup=False, highlight=False, soft_wrap=True)
    finally:
        opened.close()
