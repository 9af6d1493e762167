"""Terminal output that several commands share: figures, notes, progress of a session and the next command."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from simia import event_loop
from simia.cli.open_questions import find_open_questions, print_unreadable_answers
from simia.jobs import Run, folders
from simia.jobs.coordinator import Stop
from simia.jobs.run import CompleteRun
from simia.report.console import Terminal
from simia.terminal import say, say_error, write_count

if TYPE_CHECKING:
    from simia.amplification.session import Amplified
    from simia.jobs.progress import Progress as JobProgress
    from simia.rollouts.job import RolloutProgress
    from simia.rollouts.session import RolloutResult
    from simia.synthesis.session import Synthesized

LINE_SECONDS = 15.0  # between lines of progress where stderr is no terminal
MOST_REASONS = 4  # of rejected items, on the line of a stop
WAITS = 3  # exit code of a session that wrote questions to a batch and waits for their answers


def format_share(value: float | None) -> str:
    """Format a share or another figure; empty if it is undefined."""
    return "" if value is None else f"{value:.3f}"


@contextlib.contextmanager
def report_interrupt() -> Iterator[None]:
    """End a dry run that Ctrl-C stops with one line."""
    try:
        yield
    except KeyboardInterrupt:
        say_error("simia: the dry run was stopped; it has written nothing")
        raise typer.Exit(130) from None


@contextlib.contextmanager
def report_early_end(runs: Path, resumed: str | None = None) -> Iterator[None]:
    """End a session whose run is complete already with one line. End one that Ctrl-C stops before it handles signals itself, as while a
    pack or a model is loaded: say whether there is a run, and how it goes on. `resumed`: the run that the session continues."""
    before = {folder.name for folder in folders(runs)}
    try:
        yield
    except CompleteRun as found:
        say(f"{found}{name_runs(runs)}")
        raise typer.Exit from None
    except KeyboardInterrupt:
        run_id = resumed or next((folder.name for folder in folders(runs) if folder.name not in before), None)
        if run_id is None:
            say_error("simia: stopped while the session was prepared; no run was made, and nothing was asked or played")
        else:
            say_error("simia: stopped while the session was prepared or ended; what was stored is kept")
            say(f"next: simia runs resume {run_id}{name_runs(runs)}")
        raise typer.Exit(130) from None


def note_incomplete(run: Run) -> None:
    """Verify a run that is about to be read; print a note on stderr if it is incomplete."""
    condition = run.verify()
    if not condition.complete:
        say_error(f"note: {condition}")


def watch_amplification(
    session: Callable[..., Coroutine[Any, Any, Amplified]], runs: Path, resumed: str | None = None
) -> None:
    """Run a session with the live panel. Print the report, one trajectory and, as the last line, the next command."""
    from simia.report.collect_statistics import collect_statistics
    from simia.report.conversation import print_trajectory
    from simia.report.live_panel import LivePanel
    from simia.report.terminal_report import print_report
    from simia.trajectory import Trajectory

    with report_early_end(runs, resumed), LivePanel() as live:
        outcome = event_loop.run_command(session(say=say_error, on_progress=live.update, handle_signals=True))
    out = Terminal()
    with contextlib.closing(Run.read_only(runs, str(outcome.folder))) as run:
        if out.is_terminal or outcome.stop.kind == "complete":
            print_report(collect_statistics(run), out)
            shown = next(run.ledger.accepted(), None)
            if shown:
                print_trajectory(Trajectory.from_row(shown["trajectory"]), out)
    print_next_command(outcome.run_id, outcome.stop, runs, describe_accepted(outcome.progress))


def describe_accepted(progress: JobProgress) -> str:
    """Describe how many results were accepted, and why others were rejected, as the beginning of a line."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in progress.rejected.most_common(MOST_REASONS))
    rejected = f"{progress.rejected.total()} rejected ({reasons}), " if reasons else ""
    return f"{progress.accepted} of {progress.n} accepted, {rejected}"


def watch_rollout(
    session: Callable[..., Coroutine[Any, Any, RolloutResult]], runs: Path, resumed: str | None = None
) -> None:
    """Run a session with a progress bar. Print the scores, by pack too if there are several, or an evaluation's report; then the next command."""
    from simia.report.evaluation_report import collect_evaluation, print_evaluation
    from simia.report.pack_scores import print_pack_scores
    from simia.report.rollout_report import print_scores, summarize_shadow, summarize_truncated

    with report_early_end(runs, resumed), show_episodes() as update:
        done = event_loop.run_command(session(say=say_error, on_progress=update, handle_signals=True))
    with contextlib.closing(Run.read_only(runs, str(done.folder))) as run:
        evaluation = run.saved_config().get("suite") is not None
        accepts = run.ledger.accepted_count() > 0
        if evaluation:
            print_evaluation(collect_evaluation(run), Terminal(), name_runs(runs))
        else:
            print_scores(done.scores, run, Terminal())
            print_pack_scores(run, Terminal())
            if truncated := summarize_truncated(run):
                say(truncated)
        if line := summarize_shadow(run):
            say(line)
    if done.stop.kind != "complete" or not evaluation:
        print_next_command(done.run_id, done.stop, runs, exports=accepts)
    if evaluation:
        say(f"next: simia report {done.run_id} --html {done.run_id}.html{name_runs(runs)}")


def watch_synthesis(
    session: Callable[..., Coroutine[Any, Any, Synthesized]], runs: Path, resumed: str | None = None
) -> None:
    """Run a session with the live panel. Print the stages and, as the last line, where the packs are or the next command."""
    from simia.report.live_panel import LivePanel
    from simia.report.synthesis_report import print_comparisons, print_refused_rows, print_stages
    from simia.synthesis.stage_figures import cost_by_stage

    with report_early_end(runs, resumed), LivePanel() as live:
        done = event_loop.run_command(session(say=say_error, on_progress=live.update, handle_signals=True))
    with contextlib.closing(Run.read_only(runs, str(done.folder))) as run:
        print_stages(cost_by_stage(run), Terminal())
        print_refused_rows(run, Terminal())
        print_comparisons(run, Terminal())
    for line in done.summary:
        say(line)
    if done.stop.kind == "batch":
        print_unreadable_answers(find_open_questions(runs, str(done.folder)))
    if done.stop.kind != "complete":
        print_next_command(done.run_id, done.stop, runs)
    elif done.packs:
        say(f"packs: {', '.join(map(str, done.packs))}")
    else:
        say(f"no pack: no item passed every stage; to see why: simia runs show {done.run_id}{name_runs(runs)}")
        raise typer.Exit(1)


@contextlib.contextmanager
def show_episodes() -> Iterator[Callable[[RolloutProgress], None]]:
    """Show a live line of progress on stderr, or where that is no terminal, such as a log file, a plain line now and then."""
    with make_progress_bar(TextColumn("{task.fields[mean]}")) as bar:
        task = bar.add_task("episodes", total=None, mean="")
        due = time.monotonic() + LINE_SECONDS

        def update(progress: RolloutProgress) -> None:
            nonlocal due
            mean = "" if progress.mean is None else f"mean reward {progress.mean:.3f}"
            bar.update(task, completed=progress.done, total=progress.n, mean=mean)
            if bar.disable and time.monotonic() >= due:
                due = time.monotonic() + LINE_SECONDS
                replies = write_count(progress.replies, "reply") if progress.replies else ""
                counts = [f"{progress.done:,} of {write_count(progress.n, 'episode')}", replies, mean]
                say_error(f"{progress.run}: {', '.join(filter(None, counts))}")

        yield update


def make_progress_bar(*columns: ProgressColumn) -> Progress:
    """Make a bar on stderr with description, counts and these columns; only a terminal shows it."""
    err = Terminal(stderr=True)
    known = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*known, *columns, console=err, transient=True, disable=not err.is_terminal)


def print_next_command(run_id: str, stop: Stop, runs: Path, done: str = "", *, exports: bool = True) -> None:
    """Print the next command. `exports`: whether the run has anything to export. Exits with an error code unless the run is complete: `WAITS` where answers to a batch are awaited, 130
    after Ctrl-C, else 1."""
    at = name_runs(runs)
    if stop.kind == "complete":
        export = f"simia export {run_id} --to llamafactory --out data/{run_id}{at}"
        say(f"next: {export if exports else f'simia report {run_id}{at}'}")
        return
    detail = f" ({stop.detail})" if stop.detail else ""
    say(f"stopped: {stop.kind}{detail}; {done}nothing is lost")
    if stop.kind == "batch":
        say(f"to answer by hand or in a chat window: simia runs questions {run_id} {run_id}-questions{at}")
    say(f"next: simia runs resume {run_id}{at}")
    raise typer.Exit({"interrupted": 130, "batch": WAITS}.get(stop.kind, 1))


def name_runs(runs: Path) -> str:
    """Return the option that names a folder of runs; empty for the default, which SIMIA_RUNS may set."""
    return "" if runs == Path(os.environ.get("SIMIA_RUNS") or "runs") else f" --runs {shlex.quote(str(runs))}"
