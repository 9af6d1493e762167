"""`simia pack`: validate, show, new, gate."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.progress import Progress
from rich.table import Table

from simia import event_loop
from simia.authoring.findings import Finding
from simia.cli.difficulty import difficulty
from simia.cli.options import (
    GRANT_READ,
    NETWORK,
    NEW_PACK,
    PACK,
    TASKS,
    UNSAFE,
    VARIABLES,
    add_endpoint_kind,
    collect_grants,
    make_granted_paths,
)
from simia.cli.pack_export import export_pack
from simia.cli.pack_graph import pack_graph
from simia.cli.pack_report import pack_report
from simia.cli.pack_score import score_episode
from simia.cli.pack_vary import vary_values
from simia.cli.terminal_output import make_progress_bar
from simia.cli.variants import variants
from simia.envs.worlds.pack_requests import describe_requests
from simia.errors import UserError
from simia.pack import Pack
from simia.report.console import Terminal
from simia.terminal import one_line, say, say_json, write_count

app = typer.Typer(
    help="Packs: validate, show, new, gate, record, difficulty, report, graph, variants, vary, export, score, upgrade.",
    no_args_is_help=True,
)
app.command()(difficulty)
app.command("report")(pack_report)
app.command("graph")(pack_graph)
app.command()(variants)
app.command("vary")(vary_values)
app.command("export")(export_pack)
app.command("score")(score_episode)
SHOWN = 30


@app.command()
def validate(pack: PACK, unsafe: UNSAFE = False, grant_read: GRANT_READ = None) -> None:
    """Check a pack: its files, schemas, lint rules, consistency of code and description, and tool tests. The exit code is 1 if there is a
    fault."""
    from simia.authoring.validate import validate_pack

    loaded = Pack.load(pack)
    print_requests(loaded)
    findings, facts = event_loop.run_command(validate_pack(loaded, unsafe=unsafe, read=make_granted_paths(grant_read)))
    for line in facts:
        say(line)
    print_findings(findings, f"{loaded.name} is valid")


@app.command()
def gate(
    pack: PACK,
    tasks: TASKS = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tasks to verify, from the first one on.")
    ] = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
    write: Annotated[
        Path | None, typer.Option(help="Copy the pack, with only the tasks that pass, to this new folder.")
    ] = None,
) -> None:
    """Verify every task: its solution scores 1, agents that do not read the task score 0, and episodes are reproducible. The exit code is 1 if
    a task fails."""
    from simia.authoring.gate_report import GateReport, write_passing_tasks
    from simia.authoring.verification_gate import verify_tasks
    from simia.envs.opening import open_environment

    loaded = Pack.load(pack)
    chosen = [loaded.task(name) for name in tasks] if tasks else loaded.tasks[:limit]
    if not chosen:
        raise UserError(f"pack {loaded.name} has no tasks to verify")

    async def work(show: Progress) -> GateReport:
        grants = collect_grants(unsafe, network, variable, grant_read)
        async with await open_environment(loaded, user="none", **grants) as environment:
            bar = show.add_task("tasks", total=len(chosen))
            return await verify_tasks(environment, chosen, on_task=lambda: show.advance(bar))

    with make_progress_bar() as show:
        report = event_loop.run_command(work(show))
    written = write_passing_tasks(loaded, report.verdicts, write) if write is not None else 0
    if as_json:
        say_json(orjson.dumps(report.to_json(loaded.name), option=orjson.OPT_INDENT_2).decode())
        raise typer.Exit(0 if report.passed else 1)
    passed = sum(verdict.passed for verdict in report.verdicts)
    idle = sum(verdict.floor for verdict in report.verdicts) / len(report.verdicts)
    floors = f"doing nothing earns {idle:.3f} on average"
    for name, words in (("random", "random calls"), ("all_calls", "all calls")):
        floors += f", {words} {report.floors[name]:.3f}" if name in report.floors else ""
    say(f"{passed} of {write_count(len(report.verdicts), 'task')} passed; {floors}")
    for line in filter(None, (report.explain_random_calls(), report.explain_all_calls())):
        say(line)
    if written:
        say(f"{write_count(written, 'task')} written to {write}")
    print_findings(report.list_findings(), f"{loaded.name}: every task passes")


def print_requests(pack: Pack) -> None:
    """Print what the pack requests from this machine, before any of its code runs."""
    if pack.executable is None:
        return
    rows = describe_requests(pack)
    for kind, what in rows:
        say(f"asks for {kind}: {what}")
    if not rows:
        say("needs no network, no environment variables and no files of this machine")


def print_findings(findings: list[Finding], passed: str) -> None:
    """Print the findings, faults first. Exits with code 1 for faults."""
    faults = [finding for finding in findings if finding.refuses]
    remarks = [finding for finding in findings if not finding.refuses]
    for finding in faults[:SHOWN]:
        say(f"fault   {finding}")
    if len(faults) > SHOWN:
        kinds = Counter(str(finding.fault) for finding in faults)
        say(f"and {len(faults) - SHOWN} more: " + ", ".join(f"{n} {k}" for k, n in kinds.most_common()))
    for kind, count in Counter(str(finding.fault) for finding in remarks).most_common():
        first = next(finding for finding in remarks if finding.fault == kind)
        more = f" (and {count - 1} more)" if count > 1 else ""
        say(f"remark  {first}{more}")
    if faults:
        raise typer.Exit(1)
    say(passed)


@app.command()
def show(pack: PACK, task: Annotated[str | None, typer.Argument(help="Id of a task of the pack.")] = None) -> None:
    """Show a pack's tools, tasks, seeds and requested permissions, or one task in full."""
    loaded = Pack.load(pack)
    if task is not None:
        say_json(loaded.task(task).model_dump_json(indent=2, exclude_unset=True))
        return
    print_requests(loaded)
    say(f"{one_line(loaded.name)}: {one_line(loaded.description)}".rstrip())
    how = loaded.executable
    ways = f"executable ({how.isolation}), simulated" if how else "simulated only"
    splits = Counter(each.split for each in loaded.tasks)
    tasks = ", ".join(f"{count} {split}" for split, count in splits.items()) or "none"
    counts = f"tasks: {tasks}; tests: {len(loaded.tests)}; seeds: {len(loaded.seeds)}"
    say(f"licence {one_line(loaded.licence)}; worlds: {ways}; {counts}")
    sizes = Counter(len(each.actions) for each in loaded.tasks)
    if sizes:
        say("calls of the reference: " + ", ".join(f"{n}: {count}" for n, count in sorted(sizes.items())))
    table = Table("tool", "by", "arguments", "what it does")
    table.columns[0].overflow = "fold"  # a name must not be cut
    for by, specs in (("agent", loaded.tools), ("user", loaded.user_tools)):
        for spec in specs:
            first_sentence = " ".join(spec.description.split()).split(". ")[0][:90]
            table.add_row(spec.name, by, ", ".join(spec.parameters.get("properties", {})), first_sentence)
    Terminal().print(table)


@app.command()
def record(
    pack: PACK,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Play the tasks' solutions with the pack's code and record them. All are written to the file that `references` in pack.yaml names. Those
    of tasks marked as seeds are also written to the file that `seeds` names."""
    from simia.envs.opening import open_environment
    from simia.envs.play.record import RecordedPack, record_pack, write_recorded_pack
    from simia.envs.play.solution_lengths import make_solution_limits

    loaded = Pack.load(pack)

    async def work() -> RecordedPack:
        grants = collect_grants(unsafe, network, variable, grant_read)
        limits = make_solution_limits(loaded.tasks)
        async with await open_environment(loaded, user="scripted", episode=limits, **grants) as environment:
            return await record_pack(environment)

    recorded = event_loop.run_command(work())
    for path in write_recorded_pack(loaded, recorded):
        rows = recorded.seeds if path == loaded.path_of("seeds") else recorded.references
        kind = "seeds" if rows is recorded.seeds else "references"
        say(f"{len(rows)} {kind} written to {path}")
    for line in recorded.skipped:
        say(f"not recorded: {line}")
    if unsolved := sum(not task.solved for task in loaded.tasks):
        say(f"{write_count(unsolved, 'task')} without a solution")


@app.command()
def upgrade(pack: Annotated[str, typer.Argument(help="Folder of a pack. Its pack.yaml is rewritten.")]) -> None:
    """Rewrite a pack of format 1 as format 2, with a schema inferred from its state."""
    from simia.authoring.upgrade import upgrade_pack

    loaded = Pack.load(pack)
    done = upgrade_pack(loaded)
    for line in done:
        say(line)
    say(f"next: simia pack validate {shlex.quote(pack)}" if done else "already format 2")


@app.command()
def new(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of the new pack. With --from trajectories: the seeds, as a file, a pack or hf:…."),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Source of the pack. `trajectories`: make a task from each seed. Or a file of tools, a file of trajectories, an "
            "OpenAPI description, openapi:URL, or mcp:COMMAND.",
        ),
    ] = None,
    out: NEW_PACK = None,
    dialect: Annotated[str | None, typer.Option(help="Dialect of the trajectories. Default: detected.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="With --from trajectories: any setting of the model that writes the users' goals, for example llm.model=NAME; may "
            "be repeated.",
        ),
    ] = None,
) -> None:
    """Create a small working pack to start from, or a pack from your data. Prints what is still missing."""
    if source == "trajectories":
        new_from_trajectories(str(folder), out, dialect, settings)
        return
    if out is not None or settings:
        raise UserError(
            "--out and --set are only for --from trajectories: omit them, and give the folder as the argument"
        )
    if source is None:
        from simia.authoring.scaffold import scaffold_pack

        scaffold_pack(folder)
        say(f"next: simia pack validate {shlex.quote(str(folder))} && simia pack gate {shlex.quote(str(folder))}")
        return
    from simia.importers.any_source import start_pack

    for gap in start_pack(folder, source, dialect=dialect, say=say):
        say(f"missing  {gap}")
    seeds = bool(Pack.load(folder).seeds)
    say(f"next: simia {'amplify --seeds' if seeds else 'pack show'} {shlex.quote(str(folder))}")


def new_from_trajectories(seeds: str, out: Path | None, dialect: str | None, settings: list[str] | None) -> None:
    """Make the packs of `simia pack new --from trajectories`."""
    from simia.authoring.goal_rewriting import GoalSettings
    from simia.config import load_config
    from simia.importers.trajectories import import_trajectories

    if out is None:
        raise UserError("--out is missing: simia pack new --from trajectories SEEDS --out FOLDER")
    given = add_endpoint_kind(settings)
    folders = import_trajectories(seeds, out, dialect=dialect, settings=load_config(GoalSettings, None, given), say=say)
    packs = f"stage.pack={folders[0]}" if len(folders) == 1 else f"stage.packs=[{', '.join(map(str, folders))}]"
    without = "--set evaluate=null --set grpo.eval_strategy=no"  # the config evaluates on another pack's tasks
    say(f"next: simia train trl trl/seeds --set {shlex.quote(packs)} {without} --dry-run")
