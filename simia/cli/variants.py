"""`simia pack variants`: tasks with a missing parameter or a missing function, made of a pack's tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simia import event_loop
from simia.cli.options import GRANT_READ, NETWORK, PACK, TASKS, UNSAFE, VARIABLES, collect_grants
from simia.cli.terminal_output import make_progress_bar
from simia.pack import Pack
from simia.terminal import one_line, say, write_count


def variants(
    pack: PACK,
    out: Annotated[Path, typer.Option("--out", help="Folder of the new pack. It must not exist.")],
    tasks: TASKS = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Write a new pack with variants of a pack's tasks: the user tells a value only when asked, or a tool becomes visible later. Each variant
    passes the gate, and an agent that does not ask, or does not wait, scores less than 1."""
    from simia.authoring.task_variants import VARIANT_KINDS
    from simia.authoring.variant_pack import VariantReport, describe_faults, write_variants

    loaded = Pack.load(pack)
    chosen = [loaded.task(name) for name in tasks] if tasks else None
    grants = collect_grants(unsafe, network, variable, grant_read)

    with make_progress_bar() as show:
        bar = show.add_task("tasks", total=len(chosen or loaded.tasks))

        async def work() -> VariantReport:
            return await write_variants(loaded, out, tasks=chosen, grants=grants, on_task=lambda: show.advance(bar))

        report = event_loop.run_command(work())
    for tag in VARIANT_KINDS:
        say(
            f"{tag}: {report.count(tag)} of {write_count(report.tasks, 'task')} ({report.count(tag, gated=False)} before the gate)"
        )
    for title, rewards in (
        ("guessed the withheld value", [value for each in report.varied for value in each.guessed]),
        ("did not wait for the tool", [value for each in report.varied for value in each.hasty]),
    ):
        if rewards:
            full = sum(value >= 1 for value in rewards)
            say(
                f"agents that {title}: {full} of {write_count(len(rewards), 'episode')} scored 1; such variants are refused"
            )
    say(f"tried without success: {describe_faults(report) or 'none'}")
    if tasks:
        for name, refused in report.list_refusals():
            say(f"{one_line(name)}: {refused.fault}: {one_line(refused.detail)}")
    say(f"{write_count(len(report.passed), 'task')} written to {out}")
