"""`simia runs`: list, show, resume, questions, answers, recheck, rebuild, diff, gc."""

from __future__ import annotations

import contextlib
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from simia.cli.options import RUN, RUNS, parse_settings
from simia.cli.run_questions import answers, questions
from simia.cli.terminal_output import name_runs, note_incomplete, watch_amplification, watch_rollout, watch_synthesis
from simia.config import read_command_line_value
from simia.errors import UserError
from simia.jobs import Run, find_run, folders
from simia.jobs.integrity import SYNTHESIS, TRAINING
from simia.jobs.run import CompleteRun, saved_config
from simia.jobs.tables import READ_ERRORS
from simia.report.console import Terminal
from simia.terminal import say, say_error, say_json, write_count

if TYPE_CHECKING:
    from simia.rollouts.recheck import Rescored
    from simia.synthesis.recheck import Rechecked

app = typer.Typer(
    help="Manage runs: list, show, resume, questions, answers, recheck, rebuild, diff, gc.", no_args_is_help=True
)


@app.command("list")
def list_runs(
    every: Annotated[bool, typer.Option("--all", help="Also list the runs of simia fidelity (fidelity-…).")] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """List the runs of a folder, the latest last."""
    table = Table("run", "accepted", "of", "rejected", "stopped", "model")
    table.columns[0].overflow = "fold"  # a name must not be cut
    found = list(folders(runs))
    listed = [folder for folder in found if every or not folder.name.startswith("fidelity-")]
    unreadable: list[str] = []
    for folder in listed:
        try:
            table.add_row(*make_run_row(folder))
        except (*READ_ERRORS, UserError) as error:
            unreadable.append(str(error))
            table.add_row(folder.name, "?", "?", "?", "cannot be read", "?")
    if unreadable and len(unreadable) == len(listed):
        raise UserError(unreadable[0])
    if table.row_count:
        Terminal().print(table)
    elif not found:
        say(f"no runs in {runs}; begin with: simia amplify")
    for line in unreadable:
        say_error(line)
    if hidden := len(found) - len(listed):
        say(f"not shown: {hidden} of simia fidelity; to list all: simia runs list --all")


def make_run_row(folder: Path) -> list[str]:
    with contextlib.closing(Run.read_only(folder.parent, str(folder))) as run:
        ledger, condition = run.ledger, run.condition()
        facts = ledger.meta("facts") or {}
        if condition.training:
            state = "in progress" if condition.working else "not running"
            return [run.id, "", write_count(condition.wanted, "episode"), "", state, str(facts.get("model"))]
        n = facts.get("planned") or run.saved_config().get("n", "?")
        n = condition.wanted if run.is_synthesis else n
        ended = "in progress" if condition.working else condition.stop or "no: killed"
        if ended == "complete" and not condition.complete:
            ended = "inconsistent"
        counts = ledger.counts()
        accepted = counts.get("passed", 0) if run.is_rollout else ledger.accepted_count()  # of episodes also equal ones
        return [run.id, str(accepted), str(n), str(counts.get("rejected", 0)), ended, str(facts.get("model"))]


@app.command()
def show(
    run: RUN = "last",
    item: Annotated[
        str | None, typer.Option(help="Id of one item to show, with its findings and its trajectory.")
    ] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Show the figures of a run, or one of its items."""
    from simia.report.change_report import print_shadow_changes
    from simia.report.collect_statistics import collect_statistics
    from simia.report.rollout_report import print_rollout, summarize_shadow
    from simia.report.synthesis_report import print_stage_item, print_synthesis
    from simia.report.terminal_report import print_report
    from simia.report.training_report import print_training
    from simia.report.training_statistics import collect_training

    out = Terminal()
    with contextlib.closing(Run.read_only(runs, run)) as opened:
        if item is not None:
            print_stage_item(opened, item) if opened.is_synthesis else print_item(opened, item, out)
            return
        if opened.is_training:
            print_training(collect_training(opened), out)
            return
        note_incomplete(opened)
        if opened.is_synthesis:
            print_synthesis(opened, out)
            return
        if not opened.is_rollout:
            print_report(collect_statistics(opened), out)
            return
        print_rollout(opened, out)
        if line := summarize_shadow(opened):
            say(line)
            print_shadow_changes(opened, out)


def print_item(run: Run, item: str, out: Terminal) -> None:
    """Print the findings of an item, the outcome of an episode, and the trajectory, or the replies that hold none."""
    from simia.report.conversation import print_trajectory
    from simia.report.rollout_report import (
        list_compared_calls,
        print_differences,
        print_named_changes,
        print_outcome,
        refuse_unknown_item,
    )
    from simia.trajectory import Trajectory

    body = run.ledger.result(item)
    if body is None:
        refuse_unknown_item(run, item)
    for issue in body["issues"]:
        say(f"{issue['code']} {issue['where']} {issue['detail']}")
    if body["trajectory"]:
        if run.is_rollout or run.is_training:
            print_outcome(run, item, body["trajectory"], out)
        print_trajectory(Trajectory.from_row(body["trajectory"]), out)
        print_differences(list_compared_calls(run, item), out)
        print_named_changes(body["trajectory"], out)
        return
    for key in run.ledger.reply_keys(item):
        reply = run.ledger.recall(key)
        say(reply.text if reply else "(no reply)")


@app.command()
def resume(
    run: RUN = "last",
    n: Annotated[int | None, typer.Option("--n", "-n", help="Total number of trajectories to accept.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="An operational setting, for example limits.max_cost=5; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="For a synthesis: another folder for the packs.")] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Continue a run. Stored replies are reused, not requested again."""
    changes = {**({} if n is None else {"n": n}), **parse_settings(settings, read_command_line_value)}
    folder = find_run(runs, run)
    refuse_training(folder, "resumed here: start the training again, it goes on from its last checkpoint")
    if not settings and out is None and has_nothing_left(folder, n):
        say(f"{CompleteRun(folder.name)}{name_runs(runs)}")
        return
    if run == "last":
        say_error(f"resuming {folder.name}, the latest run in {folder.parent}")
    if out is not None and not is_synthesis_run(folder):
        raise UserError(f"--out is only for a synthesis, and run {folder.name} is not one: omit it")
    if is_synthesis_run(folder):
        if n is not None:
            raise UserError(
                "--n is not supported for a synthesis, whose stages decide how many items there are: omit it"
            )
        from simia.synthesis.session import resume_synthesis

        watch_synthesis(partial(resume_synthesis, str(folder), out, runs=runs, changes=changes), runs, folder.name)
    elif is_rollout_run(folder):
        if n is not None:
            raise UserError("--n is not supported for rollouts, whose episodes are planned: omit it")
        from simia.rollouts.session import resume_rollout

        watch_rollout(partial(resume_rollout, str(folder), runs=runs, changes=changes), runs, folder.name)
    else:
        from simia.amplification.session import resume_amplification

        watch_amplification(partial(resume_amplification, str(folder), runs=runs, changes=changes), runs, folder.name)


def has_nothing_left(folder: Path, n: int | None) -> bool:
    """Check whether an amplification or a rollout is complete, with `n` trajectories where it is given: no model need be started then."""
    with contextlib.closing(Run.read_only(folder.parent, str(folder))) as run:
        if run.is_synthesis or (run.is_rollout and n is not None) or run.ledger.meta("identity") is None:
            return False  # a rebuilt run has no identity: its next session completes it
        found = run.verify()
        return found.complete and (n is None or n <= found.wanted)


app.command()(questions)
app.command()(answers)


@app.command()
def recheck(run: RUN = "last", runs: RUNS = Path("runs")) -> None:
    """Compute all results again from the stored replies, after a parser or a check has changed. Sends no request.

    The episodes of a rollout are not played again. They are scored again with the current rules and tasks.
    """
    from simia.amplification.recheck import recheck_run

    refuse_training(find_run(runs, run), "derived again from stored replies")
    if is_synthesis_run(find_run(runs, run)):
        from simia.synthesis.recheck import recheck_synthesis

        print_recheck(recheck_synthesis(runs, run, say_error), name_runs(runs))
        return
    if is_rollout_run(find_run(runs, run)):
        from simia.rollouts.recheck import recheck_rollout

        print_rescored(recheck_rollout(runs, run, say_error), name_runs(runs))
        return
    id_, figures, wanted = recheck_run(runs, run, say_error)
    print_changes(figures)
    if figures["accepted"][1] < wanted:
        say(f"next: simia runs resume {id_}{name_runs(runs)}")


def print_recheck(found: Rechecked, at: str) -> None:
    """Print what a recheck of a synthesis changed, the questions without a reply, and the next command. `at`: the option that names the
    folder of runs."""
    for line in found.notes:
        say_error(f"note: {line}")
    print_changes(found.figures)
    for question in found.missing[:10]:
        say(f"no stored reply: {question}")
    if len(found.missing) > 10:
        say(f"and {len(found.missing) - 10} more without a stored reply")
    say(f"next: simia runs resume {found.run}{at}" + (" (writes the packs again)" if found.complete else ""))


def print_rescored(found: Rescored, at: str) -> None:
    """Print what a recheck of a rollout changed, and the next command. `at`: the option that names the folder of runs."""
    print_changes(found.figures)
    for why, count in found.kept.most_common():
        say(f"{count} keep their reward: {why}")
    more = f", and {len(found.changed) - 10} more" if len(found.changed) > 10 else ""
    say(
        f"episodes with another reward than before: {len(found.changed)}"
        + (f" ({', '.join(found.changed[:10])}{more})" if found.changed else "")
    )
    say(f"next: simia report {found.run}{at}")


def print_changes(figures: dict[str, tuple[int, int]]) -> None:
    for name, (before, after) in figures.items():
        say(f"{name}: {before} → {after}" if before != after else f"{name}: {after}")


@app.command()
def rebuild(run: RUN = "last", runs: RUNS = Path("runs")) -> None:
    """Rebuild a damaged or lost ledger from the stored replies. Sends no request; the old files are kept."""
    from simia.amplification.recheck import rebuild_run
    from simia.jobs.rebuild import salvage

    folder = find_run(runs, run)
    if is_synthesis_run(folder):
        from simia.synthesis.recheck import rebuild_synthesis

        found, again = rebuild_synthesis(runs, str(folder))
        figures = again.figures
    elif is_rollout_run(folder) or saved_config(folder).get("kind") == TRAINING:
        found, figures = salvage(runs, str(folder)), {}
    else:
        found, figures = rebuild_run(runs, str(folder))
    for line in found.lines():
        say(line)
    print_changes(figures)
    with contextlib.closing(Run.read_only(runs, str(folder))) as opened:
        condition = opened.verify()
    say(f"backup of the old files: {found.backup}")
    say(condition)
    if not condition.complete:
        raise typer.Exit(1)


def refuse_training(folder: Path, why: str) -> None:
    if saved_config(folder).get("kind") == TRAINING:
        raise UserError(f"run {folder.name} holds the episodes of a training, which cannot be {why}")


def is_synthesis_run(folder: Path) -> bool:
    return saved_config(folder).get("kind") == SYNTHESIS


def is_rollout_run(folder: Path) -> bool:
    return saved_config(folder).get("kind") == "rollout"


@app.command()
def diff(
    left: RUN,
    right: Annotated[str, typer.Argument(help="The run to compare it with.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Skip the figures for which all results must be read.")
    ] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Compare two amplifications or two syntheses: settings, prompts, figures, common trajectories, and items with different verdicts.

    To compare rollouts and evaluations, use `simia eval compare`.
    """
    from simia.jobs.diff import compare_runs
    from simia.report.run_comparison import list_diversity_figures, print_difference

    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(contextlib.closing(Run.read_only(runs, name))) for name in (left, right))
        both = one.is_synthesis and two.is_synthesis
        for each in (one, two):
            if not both:
                each.refuse_rollouts("runs diff")
            note_incomplete(each)
        found = compare_runs(one, two, None if quick or both else list_diversity_figures)
    if as_json:
        say_json(found.model_dump_json(indent=2))
    else:
        print_difference(found, Terminal())


@app.command()
def gc(
    run: Annotated[
        str | None, typer.Argument(help="Run: id, unique prefix, path, or `last`. Default: all runs of the folder.")
    ] = None,
    free: Annotated[
        bool, typer.Option("--free", help="Free the space. Without this, only print what can be freed.")
    ] = False,
    replies: Annotated[
        bool,
        typer.Option("--replies", help="Also remove the stored replies of rejected items. They cannot be restored."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before replies are removed.")] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Show how much disk space runs use, and with --free remove data that can be computed again; with --replies also replies of rejected items."""
    from simia.jobs import cleanup
    from simia.report.run_comparison import print_cleanup

    found = list(cleanup.survey(runs)) if run is None else [cleanup.look(find_run(runs, run))]
    print_cleanup(found, Terminal(), replies=replies)
    able = [each for each in found if each.freeable(replies=replies)]
    problems = [each.problem for each in found if each.problem]
    if free and problems and not able:
        raise UserError(problems[0])
    if not able:
        return
    if not free:
        given = "".join([f" {shlex.quote(run)}" if run else "", " --free", " --replies" if replies else ""])
        say(f"nothing was changed; to free it: simia runs gc{given}{name_runs(runs)}")
        return
    lost = sum(each.spent_replies for each in able) if replies else 0
    if lost and not yes:
        word = f"remove {write_count(lost, 'reply')}"
        say_error(
            f"{write_count(lost, 'paid reply')} would be removed permanently; a better parser could not use them later"
        )
        if typer.prompt(f"to continue, type: {word}", err=True, default="", show_default=False).strip() != word:
            raise UserError("nothing was changed")
    refused: list[UserError] = []
    for each in able:
        try:
            done = cleanup.clean(each.folder, replies=replies)
        except UserError as error:  # the others can still be cleaned
            refused.append(error)
            continue
        say(f"{each.folder.name}: {(done.before - done.after) / 1e6:,.1f} MB freed")
        for line in done.done:
            say(f"  {line}")
    if refused:
        raise refused[0]
