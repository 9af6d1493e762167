"""`simia pack`: validate, show, new, gate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from simia import event_loop
from simia.authoring.findings import Finding
from simia.cli.difficulty import difficulty, upgrade
from simia.cli.options import GRANT_READ, NETWORK, PACK, TASKS, UNSAFE, VARIABLES, collect_grants, make_granted_paths
from simia.cli.terminal_output import make_progress_bar
from simia.envs.worlds.pack_requests import describe_requests
from simia.errors import UserError
from simia.pack import Pack
from simia.report.console import Terminal
from simia.terminal import one_line, say, say_json

app = typer.Typer(help="Packs: validate, show, new, gate, record, difficulty, upgrade.", no_args_is_help=True)
app.command()(difficulty)
app.command()(upgrade)
SHOWN = 30


@app.command()
def validate(pack: PACK, unsafe: UNSAFE = False, grant_read: GRANT_READ = None) -> None:
    """Check files, schemas, lints, agreement of code and description, and tool tests. Exit code 1 for any fault."""
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
    limit: Annotated[int | None, typer.Option(help="Verify only the first N tasks.")] = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Verify every task: the reference scores 1, doing nothing 0, episodes are reproducible. Exit code 1 for a failure."""
    from simia.authoring.verification_gate import TaskVerdict, verify_tasks
    from simia.envs.opening import open_environment

    loaded = Pack.load(pack)
    chosen = [loaded.task(name) for name in tasks] if tasks else loaded.tasks[:limit]
    if not chosen:
        raise UserError(f"pack {loaded.name} has no tasks to verify")

    async def work(show: Progress) -> list[TaskVerdict]:
        grants = collect_grants(unsafe, network, variable, grant_read)
        async with await open_environment(loaded, user="none", **grants) as environment:
            bar = show.add_task("tasks", total=len(chosen))
            return await verify_tasks(environment, chosen, on_verdict=lambda _: show.advance(bar))

    with make_progress_bar() as show:
        verdicts = event_loop.run_command(work(show))
    passed = sum(verdict.passed for verdict in verdicts)
    floor = sum(verdict.floor for verdict in verdicts) / len(verdicts)
    say(f"{passed} of {len(verdicts)} tasks pass; doing nothing earns {floor:.3f} on average")
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    print_findings(findings, f"{loaded.name}: every task passes")


def print_requests(pack: Pack) -> None:
    """Print what the pack requests from this machine, before any of its code runs."""
    if pack.executable is None:
        return
    rows = describe_requests(pack)
    for kind, what in rows:
        say(f"asks for {kind}: {what}")
    if not rows:
        say("asks for nothing of this machine")


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
def show(pack: PACK, task: Annotated[str | None, typer.Argument(help="One task of it.")] = None) -> None:
    """Show a pack's tools, tasks, seeds and requests to this machine; or one task in full."""
    loaded = Pack.load(pack)
    if task is not None:
        say_json(loaded.task(task).model_dump_json(indent=2, exclude_defaults=True))
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
    """Play the scripts of the tasks marked as seeds in the pack's executable world, and rewrite its seed trajectories."""
    from simia.envs.opening import open_environment
    from simia.envs.play.record import record_seeds

    loaded = Pack.load(pack)
    path = loaded.path_of("seeds")
    if path is None:
        raise UserError(f"{loaded.name}: name the file in pack.yaml first, as seeds: seeds.jsonl (it must exist)")

    async def work() -> list[bytes]:
        grants = collect_grants(unsafe, network, variable, grant_read)
        async with await open_environment(loaded, user="scripted", **grants) as environment:
            return await record_seeds(environment)

    rows = event_loop.run_command(work())
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    say(f"{len(rows)} seeds written to {path}")


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
        say(f"next: simia pack validate {folder} && simia pack gate {folder}")
        return
    from simia.importers.any_source import start_pack

    for gap in start_pack(folder, source, dialect=dialect, say=say):
        say(f"missing  {gap}")
    seeds = bool(Pack.load(folder).seeds)
    say(f"next: simia {f'amplify --seeds {folder}' if seeds else f'pack show {folder}'}")
