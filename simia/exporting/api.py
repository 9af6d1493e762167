"""`simia.export`: what the command `simia export` does, as a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simia.errors import UserError
from simia.exporting.exporter import export as write
from simia.exporting.facts import CardFacts, ExportReport, Format, Segment, Template
from simia.exporting.llamafactory import ModelEntry
from simia.exporting.sources import (
    ExactDuplicateFilter,
    drop_benchmarks,
    drop_judged_bad,
    iterate_trajectories,
    mix_packs,
    refuse_partial_runs,
    set_system,
)
from simia.jobs import Run, find_run
from simia.trajectory import Trajectory, digest


@dataclass(slots=True)
class Selection:
    """The trajectories to export, with what was left out of them while they were read."""

    rows: Iterable[Trajectory]
    facts: CardFacts
    notes: list[str] = field(default_factory=list)
    """A line for each run that is not complete."""
    once: ExactDuplicateFilter = field(default_factory=ExactDuplicateFilter)
    judged_bad: Counter[str] = field(default_factory=Counter)
    benchmarks: Counter[str] = field(default_factory=Counter)


def export(
    source: str | Path | Iterable[str | Path] | Iterable[Trajectory],
    out: str | Path,
    *,
    to: Format = "llamafactory",
    segment: Segment = "whole",
    reasoning: bool = False,
    template: Template = "qwen",
    cutoff: int = 12000,
    model: str | None = None,
    system: str | Path | None = None,
    mix: Mapping[str, float] | None = None,
    take: int | None = None,
    judged: bool = False,
    partial: bool = False,
    runs: str | Path = "runs",
) -> ExportReport:
    """Write trajectories as training data: rows, refused rows with their reasons, a data card, a trainer's configuration.

    Args:
        source: Runs (id, unique beginning of it, folder, or `last`), files of trajectories or packs; several are joined,
            and equal conversations are kept once. Or trajectories.
        out: The folder to write. Files of an earlier export are replaced.
        to: `llamafactory`, `trl`, `openai`, `hermes`, `parquet`, `agentinstruct` or `officebench`.
        segment: `whole`: one row for each trajectory; `turns`: one for each assistant turn, with the messages before it.
        reasoning: Whether reasoning is trained.
        template: LLaMA-Factory's chat template of the model.
        cutoff: Longest row in tokens. A longer one is refused, not cut.
        model: One of configs/llamafactory/models.yaml; it sets the weights and the template.
        system: A file with the system text of the deployment, or YAML that names one for each pack.
        mix: Share of each pack, such as `{"retail": 0.7, "airline": 0.3}`. Needs names of runs or files as source.
        take: Total number of trajectories, with `mix`. None: as many as the scarcest pack allows.
        judged: Leave out those in which `simia judge` found a fault.
        partial: Take what runs hold that are unfinished, in progress or inconsistent.
        runs: The folder of runs.

    Returns:
        Counts of rows and of refusals by reason, and the names of the files.

    Raises:
        UserError: A source does not exist, a run is not complete, or settings do not fit together.

    Example:
        ```python
        report = simia.export("first", "data/first", to="trl", segment="turns")
        print(report.rows, report.refused)
        ```
    """
    names = [source] if isinstance(source, str | Path) else list(source)
    given = [each for each in names if isinstance(each, Trajectory)]
    if given and len(given) < len(names):
        raise UserError("source: give names or trajectories, not both")
    if given:
        if mix or judged:
            raise UserError("mix and judged select from runs and files: give their names as source")
        selection = Selection(given, CardFacts())
        selection.rows = drop_benchmarks(selection.once(given), selection.benchmarks)
    else:
        selection = select([str(name) for name in names], Path(runs), mix, take, judged=judged, partial=partial)
    return write(
        set_system(selection.rows, str(system)) if system else selection.rows,
        Path(out),
        to=to,
        segment=segment,
        reasoning=reasoning,
        template=template,
        cutoff=cutoff,
        model=ModelEntry.named(model) if model else None,
        facts=selection.facts,
    )


def select(
    names: list[str], runs: Path, mix: Mapping[str, float] | None, take: int | None, *, judged: bool, partial: bool
) -> Selection:
    """The trajectories of runs, files and packs. Its counts are complete when its rows have been read. Raises `UserError`."""
    if take is not None and not mix:
        raise UserError("--take says how many of a mix: name the packs' shares with --mix")
    folders = [found for name in names if (found := find_run_folder(name, runs)) is not None]
    notes = refuse_partial_runs(folders, partial=partial)
    selection = Selection((), merge_facts([read_facts(folder) for folder in folders], names), notes)
    rows = mix_packs(names, runs, mix, take) if mix else selection.once(iterate_trajectories(names, runs))
    rows = drop_benchmarks(rows, selection.benchmarks)
    selection.rows = drop_judged_bad(rows, folders, selection.judged_bad) if judged else rows
    return selection


def find_run_folder(name: str, runs: Path) -> Path | None:
    """The folder of a run; None for a file or a pack."""
    if Path(name).is_file() or (Path(name) / "pack.yaml").is_file():
        return None
    return find_run(runs, name)


def read_facts(folder: Path) -> CardFacts:
    """What a run says of its trajectories."""
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


def merge_facts(facts: list[CardFacts], names: list[str]) -> CardFacts:
    """One card for all that is exported together."""
    if len(facts) == 1 and len(names) == 1:
        return facts[0]
    counts: Counter[str] = Counter()
    for each in facts:
        counts.update(each.counts)
    others = [Path(name).name for name in names if Path(name).exists()]
    return CardFacts(
        name=" + ".join(Path(name).name for name in names),
        run=", ".join(each.run for each in facts if each.run) or None,
        config_digest=", ".join(each.config_digest for each in facts if each.config_digest) or None,
        seeds=sorted({seed for each in facts for seed in each.seeds} | set(others)),
        models=sorted({model for each in facts for model in each.models}),
        prompts={name: hashed for each in facts for name, hashed in each.prompts.items()},
        licences=sorted({licence for each in facts for licence in each.licences}) or ["unknown"],
        counts=dict(counts),
    )
