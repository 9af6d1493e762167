"""`simia export`: write a run's accepted trajectories in the format of a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simia.cli.amplify import RUNS
from simia.errors import UserError
from simia.exporting.facts import ExportReport, Format, Segment, Template
from simia.report.console import Terminal

out = Terminal()
err = Terminal(stderr=True)


def export(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs (id, unique prefix, path, or `last`), files of trajectories, packs; several are joined."
        ),
    ] = None,
    to: Annotated[Format, typer.Option("--to", help="Format of the export.")] = "llamafactory",
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write. Default: export-<to> in the run's folder."),
    ] = None,
    segment: Annotated[
        Segment, typer.Option("--segment", help="One example per trajectory, or per assistant turn (paper §3.1).")
    ] = "whole",
    reasoning: Annotated[bool, typer.Option("--reasoning/--no-reasoning", help="Train on reasoning.")] = False,
    template: Annotated[Template, typer.Option("--template", help="LLaMA-Factory's template of your model.")] = "qwen",
    cutoff: Annotated[
        int, typer.Option("--cutoff", help="Longest example in tokens; longer ones are refused, never cut.")
    ] = 12000,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A model of configs/llamafactory/models.yaml: sets weights and template."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--system", help="System text of the deployment: a file, or YAML with one file per pack."),
    ] = None,
    mix: Annotated[
        list[str] | None, typer.Option("--mix", help="Share of a pack, as retail=0.7; may be repeated.")
    ] = None,
    take: Annotated[int | None, typer.Option("--take", min=1, help="Total number of rows, with --mix.")] = None,
    judged: Annotated[
        bool, typer.Option("--judged", help="Leave out trajectories that `simia judge` failed; keep unjudged ones.")
    ] = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Export also from runs that are unfinished, in progress or inconsistent."),
    ] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Write trajectories as training data, with a data set card and, for LLaMA-Factory, a training YAML."""
    from simia.exporting import export as write
    from simia.exporting.api import find_run_folder, select
    from simia.exporting.llamafactory import ModelEntry
    from simia.exporting.sources import list_unread_rows, parse_shares, set_system

    names = sources or ["last"]
    chosen = ModelEntry.named(model) if model else None
    selection = select(names, runs, parse_shares(mix) if mix else None, take, judged=judged, partial=partial)
    known = [found for name in names if (found := find_run_folder(name, runs)) is not None]
    for note in selection.notes:
        err.print(f"note: {note}", soft_wrap=True)
    target = folder or (known[0] / f"export-{to}" if known else Path(f"export-{to}"))
    report = write(
        set_system(selection.rows, system) if system else selection.rows,
        target,
        to=to,
        segment=segment,
        reasoning=reasoning,
        template=template,
        cutoff=cutoff,
        model=chosen,
        facts=selection.facts,
    )
    for line in list_unread_rows(names):
        out.print(f"not read: {line}", soft_wrap=True)
    if judged:
        out.print(f"{selection.judged_bad.total()} that a judge found a fault in were left out")
    for pack, count in selection.benchmarks.items():
        out.print(f"{count} of {pack} were left out: its tasks are for evaluation only")
    if selection.once.dropped:
        out.print(f"{selection.once.dropped} are duplicates of others and were left out")
    out.print(
        f"{report.rows} rows from {report.exported} of {report.trajectories} trajectories in {target}",
        soft_wrap=True,
    )
    if report.without_system:
        out.print(
            f"{report.without_system} have no system text: the model's chat template may insert its own; "
            "--system FILE sets the text of the deployment",
            soft_wrap=True,
        )
    for issue in report.examples:
        out.print(f"refused {report.refused[issue.code]}: {issue}", soft_wrap=True)
    if to == "llamafactory" and report.rows:
        out.print(
            f"next: simia train llamafactory {target}   (or there: llamafactory-cli train train.yaml)",
            soft_wrap=True,
        )
    if report.rows == 0:
        raise UserError(explain_empty_export(report, known))


def explain_empty_export(report: ExportReport, runs: list[Path]) -> str:
    """Explain why an export has no rows, and what to do."""
    if report.trajectories == 0:
        see = f": see simia report {runs[0].name}" if runs else ""
        return f"no row was written: the sources hold no trajectory that can be exported{see}"
    reason, count = max(report.refused.items(), key=lambda pair: pair[1])
    return (
        f"no row was written: {report.trajectories:,} trajectories were read and none can be expressed, mostly {reason} ({count:,}); "
        f"refused.jsonl has each reason"
    )
