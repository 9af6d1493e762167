"""`simia pack vary`: a pack with other names, identifiers and prices."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simia import event_loop
from simia.cli.options import GRANT_READ, NETWORK, PACK, UNSAFE, VARIABLES, collect_grants
from simia.cli.terminal_output import make_progress_bar
from simia.errors import UserError
from simia.pack import Pack
from simia.terminal import one_line, say, write_count

if TYPE_CHECKING:
    from simia.authoring.varied_pack import VariedPackReport

SHOWN = 20


def describe_columns(report: VariedPackReport) -> str:
    """Name the columns of the state whose numbers were scaled, and those whose numbers were not; empty if there are no numbers."""
    scaled, unscaled = (
        one_line(", ".join(names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        for names in (report.scaled, report.unscaled)
    )
    if not unscaled:
        return f"columns with prices: {scaled}" if scaled else ""
    return f"columns with prices: {scaled or 'none'}; other columns with numbers, left as they are: {unscaled}"


def vary_values(
    pack: PACK,
    out: Annotated[Path, typer.Option("--out", help="Folder of the new pack. It must not exist.")],
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same values.")] = 0,
    keep: Annotated[
        list[str] | None, typer.Option(help="Kind of values to keep unchanged: names, ids or prices; may be repeated.")
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            help="Also replace this text, as OLD=NEW, such as a shop's name or a rule of the policy; may be repeated."
        ),
    ] = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Write a copy of a pack with other names, identifiers and prices in its state, tasks, solutions, tests and texts. Every task of the copy
    passes the gate. For harder or easier tasks, which a model writes, use `simia synth vary`."""
    from simia.authoring.varied_pack import KINDS, vary_pack

    loaded = Pack.load(pack)
    kept = [kind for kind in KINDS if kind in (keep or [])]
    if unknown := sorted(set(keep or []) - set(KINDS)):
        raise UserError(f"--keep {unknown[0]}: expected one of {', '.join(KINDS)}")
    texts = {}
    for each in replace or []:
        old, sign, new = each.partition("=")
        if not sign or not old:
            raise UserError(f"--replace {each!r}: write it as OLD=NEW")
        texts[old] = new
    grants = collect_grants(unsafe, network, variable, grant_read)
    with make_progress_bar() as show:
        bar = show.add_task("tasks", total=len(loaded.tasks))

        async def work() -> VariedPackReport:
            done = lambda: show.advance(bar)  # noqa: E731
            return await vary_pack(loaded, out, seed=seed, keep=kept, replace=texts, grants=grants, on_task=done)

        report = event_loop.run_command(work())
    counts = ", ".join(f"{count} {kind}" for kind, count in report.replaced.items())
    factor = "prices as they were" if report.factor is None else f"prices times {report.factor:g}"
    say(f"replaced: {counts or 'no texts'}; {factor}")
    if line := describe_columns(report):
        say(line)
    for why, count in Counter(report.kept.values()).most_common():
        values = [value for value, reason in report.kept.items() if reason == why]
        more = f" and {count - SHOWN} more" if count > SHOWN else ""
        say(f"left alone, since {why}: {one_line(', '.join(values[:SHOWN]))}{more}")
    for task, why in list(report.left_out.items())[:SHOWN]:
        say(f"left out: task {one_line(task)}: {one_line(why)}")
    if len(report.left_out) > SHOWN:
        say(f"and {write_count(len(report.left_out) - SHOWN, 'more task')}")
    if report.tests_left_out:
        tests = write_count(report.tests_left_out, "tool test")
        say(f"left out, since not true of the new values: {tests}")
    floors = report.gate.floors if report.gate else {}
    say(
        f"{report.tasks - len(report.left_out)} of {write_count(report.tasks, 'task')} passed the gate; doing nothing earns {floors.get('nothing', 0.0):.3f}"
    )
    say(f"written to {out}; next: simia pack validate {shlex.quote(str(out))}")
