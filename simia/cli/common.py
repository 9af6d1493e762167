"""Parts shared by several commands: options, the live panel, the output at the end of a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from simia.amplification.session import Amplified
from simia.jobs import Run
from simia.jobs.progress import Progress
from simia.report.console import Terminal

out = Terminal()
err = Terminal(stderr=True)
GRANT_READ = Annotated[
    list[Path] | None,
    typer.Option("--grant-read", help="Let the pack's code read this file or folder of yours; may be repeated."),
]


def make_granted_paths(paths: list[Path] | None) -> list[str]:
    """Make the paths absolute, so that a run resumed from another folder grants the same files."""
    return [str(path.expanduser().absolute()) for path in paths or []]


def note_incomplete(run: Run) -> None:
    """Verify a run that is about to be read; print a note on stderr where it is incomplete."""
    condition = run.verify()
    if not condition.complete:
        err.print(f"note: {condition}", soft_wrap=True)


@contextlib.contextmanager
def open_live_panel(runs: Path) -> Iterator[Callable[[Progress], None]]:
    from simia.report.live_panel import LivePanel

    with LivePanel() as live:
        yield live.update


def finish_amplification(outcome: Amplified, runs: Path) -> None:
    """Print the report, one trajectory and, as the last line, the next command. Exit with 0 only if the run is complete."""
    from simia.report.collect_statistics import collect_statistics
    from simia.report.conversation import print_trajectory
    from simia.report.terminal_report import print_report
    from simia.trajectory import Trajectory

    run = Run.read_only(runs, str(outcome.folder))
    try:
        complete = outcome.stop.kind == "complete"
        if out.is_terminal or complete:
            print_report(collect_statistics(run), out)
            shown = next(run.ledger.accepted(), None)
            if shown:
                print_trajectory(Trajectory.from_row(shown["trajectory"]), out)
    finally:
        run.close()
    at = "" if runs == Path("runs") else f" --runs {runs}"
    if complete:
        out.print(
            f"next: simia export {outcome.run_id} --to llamafactory --out data/{outcome.run_id}{at}",
            markup=False,
            soft_wrap=True,
            highlight=False,
        )
        return
    progress = outcome.progress
    detail = f" ({outcome.stop.detail})" if outcome.stop.detail else ""
    out.print(
        f"stopped: {outcome.stop.kind}{detail}; {progress.accepted} of {progress.n} accepted, nothing is lost",
        markup=False,
        soft_wrap=True,
        highlight=False,
    )
    out.print(f"next: simia runs resume {outcome.run_id}{at}", markup=False, soft_wrap=True, highlight=False)
    raise typer.Exit(130 if outcome.stop.kind == "interrupted" else 1)
