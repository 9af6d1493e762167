"""`simia export`: a run's accepted trajectories in the form that a trainer reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from simia.cli.amplify import RUNS
from simia.errors import UserError
from simia.exporting.facts import CardFacts, ExportReport, Format, Segment, Template
from simia.jobs import Run, locate
from simia.report.console import Terminal
from simia.trajectory import digest

out = Terminal()
err = Terminal(stderr=True)


def export(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs (id, unique beginning of it, path, or `last`), files of trajectories, packs; several are joined."
        ),
    ] = None,
    to: Annotated[Format, typer.Option("--to", help="For whom.")] = "llamafactory",
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; the default is export-<to> in the run's folder."),
    ] = None,
    segment: Annotated[
        Segment, typer.Option("--segment", help="One example a trajectory, or one an assistant turn (paper §3.1).")
    ] = "whole",
    reasoning: Annotated[
        bool, typer.Option("--reasoning/--no-reasoning", help="Whether reasoning is trained.")
    ] = False,
    template: Annotated[Template, typer.Option("--template", help="LLaMA-Factory's template of your model.")] = "qwen",
    cutoff: Annotated[
        int, typer.Option("--cutoff", help="Longest example in tokens; a longer one is refused, never cut.")
    ] = 12000,
    model: Annotated[
        str | None,
        typer.Option("--model", help="One of configs/llamafactory/models.yaml: fills in weights and template."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--system", help="System text of the deployment: a file, or YAML that names one for each pack."),
    ] = None,
    mix: Annotated[
        list[str] | None, typer.Option("--mix", help="Share of a pack, as retail=0.7; may be repeated.")
    ] = None,
    take: Annotated[int | None, typer.Option("--take", min=1, help="So many in all, with --mix.")] = None,
    judged: Annotated[
        bool, typer.Option("--judged", help="Leave out what `simia judge` found a fault in; what was not judged stays.")
    ] = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Take what is there of runs that are unfinished, in progress or inconsistent."),
    ] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Write trajectories as training data, with a data set card and, for LLaMA-Factory, a training YAML."""
    from simia.exporting import export as write
    from simia.exporting.llamafactory import Model
    from simia.exporting.sources import (
        Once,
        for_training,
        mixed,
        not_judged_bad,
        refuse_partial_runs,
        shares_of,
        trajectories,
        unread,
        with_system,
    )

    names = sources or ["last"]
    chosen = Model.named(model) if model else None
    if take is not None and not mix:
        raise UserError("--take says how many of a mix: name the packs' shares with --mix")
    known = [found for name in names if (found := folder_of(name, runs)) is not None]
    for note in refuse_partial_runs(known, partial=partial):
        err.print(f"note: {note}", soft_wrap=True)
    target = folder or (known[0] / f"export-{to}" if known else Path(f"export-{to}"))
    once = Once()
    bad: Counter[str] = Counter()
    rows = mixed(names, runs, shares_of(mix), take) if mix else once(trajectories(names, runs))
    benchmarks: Counter[str] = Counter()
    rows = for_training(rows, benchmarks)
    if judged:
        rows = not_judged_bad(rows, known, bad)
    report = write(
        with_system(rows, system) if system else rows,
        target,
        to=to,
        segment=segment,
        reasoning=reasoning,
        template=template,
        cutoff=cutoff,
        model=chosen,
        facts=joined([facts_of(found) for found in known], names),
    )
    for line in unread(names):
        out.print(f"not read: {line}", soft_wrap=True)
    if judged:
        out.print(f"{bad.total()} that a judge found a fault in were left out")
    for pack, count in benchmarks.items():
        out.print(f"{count} of {pack} were left out: its tasks are for evaluation only")
    if once.dropped:
        out.print(f"{once.dropped} said what another one says, and were left out")
    out.print(
        f"{report.rows} rows from {report.exported} of {report.trajectories} trajectories in {target}",
        soft_wrap=True,
    )
    if report.without_system:
        out.print(
            f"{report.without_system} have no system text: the model's chat template writes its own where it has one; "
            "--system FILE gives them the text of the deployment",
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
        raise UserError(nothing_written(report, known))


def nothing_written(report: ExportReport, runs: list[Path]) -> str:
    """Why an export has no row, and what to do."""
    if report.trajectories == 0:
        see = f": see simia report {runs[0].name}" if runs else ""
        return f"no row was written: the sources hold no trajectory that can be exported{see}"
    reason, count = max(report.refused.items(), key=lambda pair: pair[1])
    return (
        f"no row was written: {report.trajectories:,} trajectories were read and none can be expressed, mostly {reason} ({count:,}); "
        f"each reason stands in refused.jsonl"
    )


def folder_of(name: str, runs: Path) -> Path | None:
    """The folder of a run; None for a file or a pack."""
    if Path(name).is_file() or (Path(name) / "pack.yaml").is_file():
        return None
    return locate(runs, name)


def facts_of(folder: Path) -> CardFacts:
    run = Run.read_only(folder.parent, str(folder))
    try:
        facts, seeds = run.ledger.meta("facts") or {}, run.ledger.meta("seeds") or {"used": []}
        return CardFacts(
            name=run.id,
            run=run.id,
            config_digest=digest(run.saved_config()),
            seeds=sorted({str(seed["pack"]) for seed in seeds["used"]}),
            models=[str(facts.get("model"))],
            prompts=facts.get("prompts", {}),
            licences=sorted({str(seed.get("licence") or "unknown") for seed in seeds["used"]}),
            counts={"accepted": run.ledger.accepted_count(), **run.ledger.reasons()},
        )
    finally:
        run.close()


def joined(facts: list[CardFacts], names: list[str]) -> CardFacts:
    """One card for all that is exported together."""
    if len(facts) == 1 and len(names) == 1:
        return facts[0]
    counts: Counter[str] = Counter()
    for each in facts:
        counts.update(each.counts)
    others = [Path(name).name for name in names if Path(name).exists()]
    return CardFacts(
        name=" + ".join(Path(name).name for name in names),
        run=", ".join(each.run or "unknown" for each in facts) or None,
        config_digest=", ".join(each.config_digest or "unknown" for each in facts) or None,
        seeds=sorted({seed for each in facts for seed in each.seeds} | set(others)),
        models=sorted({model for each in facts for model in each.models}),
        prompts={name: hashed for each in facts for name, hashed in each.prompts.items()},
        licences=sorted({licence for each in facts for licence in each.licences}) or ["unknown"],
        counts=dict(counts),
    )
