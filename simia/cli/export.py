"""`simia export`: a run's accepted trajectories in the form that a trainer reads."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from simia.cli.amplify import RUNS
from simia.runs import Run
from simia.trajectory import Trajectory, digest

out = Console()


class To(StrEnum):
    llamafactory = "llamafactory"
    openai = "openai"
    hermes = "hermes"


class Segment(StrEnum):
    whole = "whole"
    turns = "turns"


class Template(StrEnum):
    qwen = "qwen"
    qwen3 = "qwen3"
    qwen3_nothink = "qwen3_nothink"
    llama3 = "llama3"


def export(
    run: Annotated[str, typer.Argument(help="Run: id, unique beginning of it, path, or `last`.")] = "last",
    to: Annotated[To, typer.Option("--to", help="For whom.")] = To.llamafactory,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; the default is export-<to> in the run's folder."),
    ] = None,
    segment: Annotated[
        Segment, typer.Option("--segment", help="One example a trajectory, or one an assistant turn (paper §3.1).")
    ] = Segment.whole,
    reasoning: Annotated[
        bool, typer.Option("--reasoning/--no-reasoning", help="Whether reasoning is trained.")
    ] = False,
    template: Annotated[
        Template, typer.Option("--template", help="LLaMA-Factory's template of your model.")
    ] = Template.qwen,
    cutoff: Annotated[
        int, typer.Option("--cutoff", help="Longest example in tokens; a longer one is refused, never cut.")
    ] = 12000,
    runs: RUNS = Path("runs"),
) -> None:
    """Write the accepted trajectories as training data, with a data set card and a training YAML."""
    from simia.export import export as write

    opened = Run.read_only(runs, run)
    try:
        target = folder or opened.folder / f"export-{to.value}"
        report = write(
            accepted(opened),
            target,
            to=to.value,
            segment=segment.value,
            reasoning=reasoning,
            template=template.value,
            cutoff=cutoff,
            facts=facts_of(opened),
        )
    finally:
        opened.close()
    out.print(
        f"{report.rows} rows from {report.exported} of {report.trajectories} trajectories in {target}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    for issue in report.examples:
        out.print(f"refused {report.refused[issue.code]}: {issue}", soft_wrap=True, highlight=False, markup=False)
    if to is To.llamafactory and report.rows:
        out.print(
            f"next: cd {target} && llamafactory-cli train train.yaml", soft_wrap=True, highlight=False, markup=False
        )
    if report.trajectories == 0:
        raise typer.Exit(1)


def accepted(run: Run) -> Iterator[Trajectory]:
    for body in run.ledger.accepted():
        yield Trajectory.from_row(body["trajectory"])


def facts_of(run: Run) -> Any:
    from simia.export import CardFacts

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
