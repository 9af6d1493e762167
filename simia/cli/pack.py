"""`simia pack`: validate, show, new, gate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from simia import event_loop
from simia.authoring.findings import Finding
from simia.cli.common import GRANT_READ, make_granted_paths
from simia.envs.worlds.pack_requests import describe_requests
from simia.errors import UserError
from simia.pack import Pack
from simia.report.console import Terminal
from simia.terminal import one_line, say_json

app = typer.Typer(help="Packs: validate, show, new, gate.", no_args_is_help=True)
out = Terminal()
err = Terminal(stderr=True)
PACK = Annotated[str, typer.Argument(help="Name of a bundled pack, or a pack's folder.")]
UNSAFE = Annotated[bool, typer.Option("--unsafe", help="Run without a sandbox; only for code that you trust.")]
NETWORK = Annotated[bool, typer.Option("--network", help="Grant its programs the network (isolation: sandbox).")]
VARIABLES = Annotated[
    list[str] | None, typer.Option("--variable", help="Name of an environment variable that its programs may read.")
]
SHOWN = 30


@app.command()
def validate(pack: PACK, unsafe: UNSAFE = False, grant_read: GRANT_READ = None) -> None:
    """Check files, schemas, lints, agreement of code and description, and tool tests. Exit code 1 for any fault."""
    from simia.authoring.validate import validate_pack as check

    loaded = Pack.load(pack)
    print_requests(loaded)
    findings, facts = event_loop.run_command(check(loaded, unsafe=unsafe, read=make_granted_paths(grant_read)))
    for line in facts:
        out.print(line, markup=False, highlight=False)
    print_findings(findings, f"{loaded.name} is valid")


@app.command()
def gate(
    pack: PACK,
    tasks: Annotated[list[str] | None, typer.Option("--task", help="Only this task; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(help="Verify only the first N tasks.")] = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
    write: Annotated[
        Path | None, typer.Option(help="Copy the pack with the passing tasks only to this new folder.")
    ] = None,
) -> None:
    """Verify every task: the solution scores 1, agents that do not read the task 0, episodes are reproducible. Exit code 1 for a
    failure."""
    from simia.authoring.gate_report import GateReport, write_passing_tasks
    from simia.authoring.verification_gate import verify_tasks as judge
    from simia.envs.opening import open_environment

    loaded = Pack.load(pack)
    chosen = [loaded.task(name) for name in tasks] if tasks else loaded.tasks[:limit]
    if not chosen:
        raise UserError(f"pack {loaded.name} has no tasks to verify")

    async def work(show: Progress) -> GateReport:
        grants = collect_grants(unsafe, network, variable, grant_read)
        async with await open_environment(loaded, user="none", **grants) as environment:
            bar = show.add_task("tasks", total=len(chosen))
            return await judge(environment, chosen, on_task=lambda: show.advance(bar))

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as show:
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
    out.print(f"{passed} of {len(report.verdicts)} tasks pass; {floors}", highlight=False)
    if written:
        print_plain(f"{written} tasks written to {write}")
    print_findings(report.list_findings(), f"{loaded.name}: every task passes")


def collect_grants(unsafe: bool, network: bool, variables: list[str] | None, read: list[Path] | None) -> dict[str, Any]:
    """Return the user's grants as settings of the executable back end."""
    return {"unsafe": unsafe, "network": network, "variables": variables or [], "read": make_granted_paths(read)}


def print_requests(pack: Pack) -> None:
    """Print what the pack requests from this machine, before any of its code runs."""
    if pack.executable is None:
        return
    rows = describe_requests(pack)
    for kind, what in rows:
        out.print(f"asks for {kind}: {what}", markup=False, highlight=False, soft_wrap=True)
    if not rows:
        out.print("asks for nothing of this machine", highlight=False)


def print_findings(findings: list[Finding], word: str) -> None:
    """Print the findings, faults first. Exits with code 1 for faults."""
    faults = [finding for finding in findings if finding.refuses]
    remarks = [finding for finding in findings if not finding.refuses]
    for finding in faults[:SHOWN]:
        out.print(f"fault   {finding}", markup=False, highlight=False, soft_wrap=True)
    if len(faults) > SHOWN:
        kinds = Counter(str(finding.fault) for finding in faults)
        out.print(f"and {len(faults) - SHOWN} more: " + ", ".join(f"{n} {k}" for k, n in kinds.most_common()))
    for kind, count in Counter(str(finding.fault) for finding in remarks).most_common():
        first = next(finding for finding in remarks if finding.fault == kind)
        more = f" (and {count - 1} more)" if count > 1 else ""
        out.print(f"remark  {first}{more}", markup=False, highlight=False, soft_wrap=True)
    if faults:
        raise typer.Exit(1)
    out.print(word, highlight=False)


@app.command()
def show(pack: PACK, task: Annotated[str | None, typer.Argument(help="One task of it.")] = None) -> None:
    """Show a pack's tools, tasks, seeds and requests to this machine; or one task in full."""
    loaded = Pack.load(pack)
    if task is not None:
        say_json(loaded.task(task).model_dump_json(indent=2, exclude_defaults=True))
        return
    print_requests(loaded)
    print_plain(f"{one_line(loaded.name)}: {one_line(loaded.description)}".rstrip())
    how = loaded.executable
    ways = f"executable ({how.isolation}), simulated" if how else "simulated only"
    splits = Counter(each.split for each in loaded.tasks)
    tasks = ", ".join(f"{count} {split}" for split, count in splits.items()) or "none"
    print_plain(
        f"licence {one_line(loaded.licence)}; worlds: {ways}; tasks: {tasks}; "
        f"tests: {len(loaded.tests)}; seeds: {len(loaded.seeds)}"
    )
    sizes = Counter(len(each.actions) for each in loaded.tasks)
    if sizes:
        out.print(
            "calls of the reference: " + ", ".join(f"{n}: {count}" for n, count in sorted(sizes.items())),
            highlight=False,
        )
    table = Table("tool", "by", "arguments", "what it does")
    for by, specs in (("agent", loaded.tools), ("user", loaded.user_tools)):
        for spec in specs:
            table.add_row(
                spec.name, by, ", ".join(spec.parameters.get("properties", {})), shorten_description(spec.description)
            )
    out.print(table)


def shorten_description(text: str) -> str:
    return " ".join(text.split()).split(". ")[0][:90]


@app.command()
def record(
    pack: PACK,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Play the solutions of the tasks in the pack's executable world: all are written to the file that `references` names, those of
    the tasks marked as seeds also to the file that `seeds` names."""
    from simia.envs.opening import open_environment
    from simia.envs.play.record import RecordedPack, record_pack, write_recorded_pack

    loaded = Pack.load(pack)

    async def work() -> RecordedPack:
        grants = collect_grants(unsafe, network, variable, grant_read)
        limits = {"turns": 200, "errors": 200}
        async with await open_environment(loaded, user="scripted", episode=limits, **grants) as environment:
            return await record_pack(environment)

    recorded = event_loop.run_command(work())
    for path in write_recorded_pack(loaded, recorded):
        rows = recorded.seeds if path == loaded.path_of("seeds") else recorded.references
        kind = "seeds" if rows is recorded.seeds else "references"
        print_plain(f"{len(rows)} {kind} written to {path}")
    for line in recorded.skipped:
        print_plain(f"not recorded: {line}")
    if unsolved := sum(not task.solved for task in loaded.tasks):
        print_plain(f"{unsolved} tasks have no solution")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="A file of tools, of trajectories or of an OpenAPI description; or openapi:URL, mcp:COMMAND."
        ),
    ] = None,
    dialect: Annotated[str | None, typer.Option(help="Dialect of the trajectories. Default: detected.")] = None,
) -> None:
    """Create a small working pack to start from, or a pack from your data, with a list of what is missing."""
    if source is None:
        from simia.authoring.scaffold import scaffold_pack

        scaffold_pack(folder)
        out.print(f"next: simia pack validate {folder} && simia pack gate {folder}", highlight=False, soft_wrap=True)
        return
    from simia.importers.any_source import start_pack

    missing = start_pack(folder, source, dialect=dialect, say=print_plain)
    for gap in missing:
        print_plain(f"missing  {gap}")
    seeds = bool(Pack.load(folder).seeds)
    print_plain(f"next: simia {f'amplify --seeds {folder}' if seeds else f'pack show {folder}'}")


def print_plain(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)
