"""`simia runs`: list, show, resume, recheck, diff, gc."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from simia import loop
from simia.cli.amplify import RUNS
from simia.config import scalar
from simia.errors import UserError
from simia.runs import Run, folders, locate

app = typer.Typer(help="Durable jobs: list, show, resume, recheck, diff, gc.", no_args_is_help=True)
out = Console()
err = Console(stderr=True)
RUN = Annotated[str, typer.Argument(help="Run: id, unique beginning of it, path, or `last`.")]


@app.command("list")
def list_runs(
    every: Annotated[bool, typer.Option("--all", help="Those of simia fidelity too (fidelity-…).")] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """All runs of the folder, the latest last."""
    table = Table("run", "accepted", "of", "rejected", "stopped", "model")
    table.columns[0].overflow = "fold"  # a name that is cut names nothing
    found = list(folders(runs))
    listed = [folder for folder in found if every or not folder.name.startswith("fidelity-")]
    for folder in listed:
        run = Run.read_only(runs, str(folder))
        try:
            ledger = run.ledger
            stopped = (ledger.meta("stopped") or {}).get("kind", "no: running or killed")
            facts = ledger.meta("facts") or {}
            n = facts.get("planned") or run.saved_config().get("n", "?")
            table.add_row(
                run.id,
                str(ledger.accepted_count()),
                str(n),
                str(ledger.counts().get("rejected", 0)),
                stopped,
                str(facts.get("model")),
            )
        finally:
            run.close()
    if table.row_count:
        out.print(table)
    elif not found:
        out.print(f"no runs in {runs}; begin with: simia amplify")
    if hidden := len(found) - len(listed):
        out.print(f"not shown: {hidden} of simia fidelity; all of them: simia runs list --all", highlight=False)


@app.command()
def show(
    run: RUN = "last",
    item: Annotated[str | None, typer.Option(help="One item: its reply's fate and its trajectory.")] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """A run's figures, or one of its items."""
    from simia.report.conversation import plain
    from simia.report.facts import gather
    from simia.report.shadow import calls_of, print_differences
    from simia.report.text import print_report, print_trajectory
    from simia.trajectory import Trajectory

    opened = Run.read_only(runs, run)
    try:
        if item is None and opened.is_rollout:
            from simia.report import rollouts, shadow

            rollouts.print_report(rollouts.gather(opened), out)
            if said := shadow.summary(opened):
                out.print(said, markup=False, highlight=False, soft_wrap=True)
            return
        if item is None:
            print_report(gather(opened), out)
            return
        body = opened.ledger.result(item)
        if body is None:
            form = "TASK.0, TASK.1, …" if opened.is_rollout else "i000000, i000001, …"
            raise UserError(f"run {opened.id} has no result for item {item!r} (items are named {form})")
        for issue in body["issues"]:
            out.print(plain(f"{issue['code']} {issue['where']} {issue['detail']}"))
        if body["trajectory"]:
            print_trajectory(Trajectory.from_row(body["trajectory"]), out)
            print_differences(calls_of(opened, item), out)
        else:
            for key in opened.ledger.reply_keys(item):
                reply = opened.ledger.recall(key)
                out.print(plain(reply.text if reply else "(no reply)"))
    finally:
        opened.close()


@app.command()
def resume(
    run: RUN = "last",
    n: Annotated[int | None, typer.Option("--n", "-n", help="Accept so many in all.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="An operational setting, as limits.max_cost=5.")
    ] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Go on with a run: nothing that was received is asked for again."""
    from simia.amplify.session import resume as go_on
    from simia.cli.common import finish, panel

    changes: dict[str, Any] = {"n": n} if n is not None else {}
    for setting in settings or []:
        name, eq, text = setting.partition("=")
        if not eq:
            raise UserError(f"--set {setting!r}: write it as a.b=value")
        changes[name] = scalar(text)
    if rollout_at(runs, run):
        if n is not None:
            raise UserError("a rollout has its episodes planned: resume takes no --n here")
        go_on_rolling(run, runs, changes)
        return
    with panel(runs) as progress:
        outcome = loop.run(
            go_on(run, runs=runs, changes=changes, say=err.print, on_progress=progress, handle_signals=True)
        )
    finish(outcome, runs)


@app.command()
def recheck(run: RUN = "last", runs: RUNS = Path("runs")) -> None:
    """Derive all results again from the stored replies, after a parser or a check has changed. Asks nothing."""
    from simia.amplify.judged_seeds import kept
    from simia.amplify.recheck import recheck as derive
    from simia.amplify.session import load_seeds, saved

    if rollout_at(runs, run):
        raise UserError("a rollout's results are the episodes as they happened: there is nothing to derive again")
    opened = Run.open(runs, run)
    try:
        config = saved(opened)
        facts = opened.ledger.meta("facts")
        figures = derive(
            opened,
            config,
            kept(opened, load_seeds(config, None)),
            model=facts["model"],
            alias=facts["alias"],
            structured=facts["structured"],
        )
        for name, (before, after) in figures.items():
            out.print(f"{name}: {before} → {after}" if before != after else f"{name}: {after}", highlight=False)
        if figures["accepted"][1] < config.n:
            out.print(f"next: simia runs resume {opened.id}", highlight=False)
    finally:
        opened.close()


def rollout_at(runs: Path, name: str) -> bool:
    run = Run.read_only(runs, name)
    try:
        return run.is_rollout
    finally:
        run.close()


def go_on_rolling(run: str, runs: Path, changes: dict[str, Any]) -> None:
    from simia.cli.rollout import finish, watching
    from simia.rollout import job

    with watching() as watch:
        done = loop.run(
            job.resume(run, runs=runs, changes=changes, say=err.print, on_progress=watch, handle_signals=True)
        )
    finish(done, runs)


@app.command()
def diff(
    left: Annotated[str, typer.Argument(help="Run: id, unique beginning of it, path, or `last`.")],
    right: Annotated[str, typer.Argument(help="The run to compare it with.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Without the figures that need every result read.")] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Two runs side by side: settings, prompts, figures, what they share, items that went another way."""
    from simia.report.compare import diversity, print_difference
    from simia.runs.diff import diff as compare

    one, two = Run.read_only(runs, left), Run.read_only(runs, right)
    try:
        for each in (one, two):
            each.refuse_rollouts("runs diff")
        found = compare(one, two, None if quick else diversity)
    finally:
        one.close()
        two.close()
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        print_difference(found, out)


@app.command()
def gc(
    run: Annotated[str | None, typer.Argument(help="One run; all of the folder when left out.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Do it. Without this, only say what could be freed.")] = False,
    replies: Annotated[
        bool, typer.Option("--replies", help="Also the paid replies of rejected items. They never come back.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before replies are removed.")] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """What runs take on the disk, and what of it can go: derived things alone, unless --replies says otherwise."""
    from simia.report.compare import print_findings
    from simia.runs import gc as collector

    found = list(collector.survey(runs)) if run is None else [collector.look(locate(runs, run))]
    print_findings(found, out, replies=replies)
    able = [each for each in found if each.freeable(replies=replies)]
    if not able:
        return
    if not free:
        out.print("nothing was changed; to free it: simia runs gc --free", highlight=False)
        return
    lost = sum(each.spent_replies for each in able) if replies else 0
    if lost and not yes:
        word = f"remove {lost} replies"
        err.print(f"{lost:,} paid replies would be gone for good: no better parser could ever read them again")
        if typer.prompt(f"to go on, type: {word}", err=True, default="", show_default=False).strip() != word:
            raise UserError("nothing was changed")
    for each in able:
        done = collector.clean(each.folder, replies=replies)
        out.print(
            f"{each.folder.name}: {(done.before - done.after) / 1e6:,.1f} MB freed", markup=False, highlight=False
        )
        for line in done.done:
            out.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
