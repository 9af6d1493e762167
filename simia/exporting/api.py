"""The public function `simia.export`."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from simia.errors import UserError, require_type
from simia.exporting.episode_groups import BestOfGroups
from simia.exporting.export_records import ExportReport, Format, Segment, Template, choose_reasoning
from simia.exporting.exporter import export as write
from simia.exporting.llamafactory_rows import LLaMAFactoryWriter, ModelEntry
from simia.exporting.preference_pairs import check_pair_format, export_pairs, select_pairs
from simia.exporting.row_identity import hash_row
from simia.exporting.selection import Selection, filter_rows, select, set_system
from simia.trajectory import Trajectory


def export(
    source: str | Path | Iterable[str | Path] | Iterable[Trajectory],
    out: str | Path,
    *,
    to: Format = "llamafactory",
    segment: Segment = "whole",
    reasoning: bool | None = None,
    step_reasons: bool = False,
    template: Template = "qwen",
    cutoff: int = 12000,
    model: str | None = None,
    system: str | Path | None = None,
    mix: Mapping[str, float] | None = None,
    take: int | None = None,
    judged: bool = False,
    partial: bool = False,
    least_reward: float = 1.0,
    pairs: float | None = None,
    runs: str | Path = "runs",
) -> ExportReport:
    """Write trajectories as training data: rows, refused rows with their reasons, a data card, a trainer's configuration.

    Args:
        source: One or several of: runs (an id, a unique beginning of an id, a folder, or `last`), files or data sets of trajectories, packs.
            Or `Trajectory` objects. Trajectories that would be written as equal rows are kept once.
        out: The folder to write. Files of an earlier export are replaced, except that an edited train.yaml is kept. A folder with an export
            of another format is refused.
        to: `llamafactory`, `trl`, `openai`, `hermes`, `codegym`, `parquet`, `hf`, `agentinstruct` or `officebench`.
        segment: `whole`: one row for each trajectory; `turns`: one for each assistant turn, with the messages before it.
        reasoning: Whether reasoning is trained. None: only in trajectories of suites whose prompts require reasoning before each call (os,
            webshop, mind2web, officebench), and in all of `parquet` and `hf`.
        step_reasons: For `codegym`: add a short reason, derived from the calls and results, before each call without text.
        template: LLaMA-Factory's chat template of the model.
        cutoff: Longest row in tokens. A longer one is refused, not cut. Not for `parquet` and `hf`, whose rows are whole records.
        model: One of configs/llamafactory/models.yaml; it sets the weights and the template.
        system: A file with the system text of the deployment, or YAML that names one for each pack.
        mix: Share of each pack, such as `{"retail": 0.7, "airline": 0.3}`. Needs names of runs or files as source.
        take: Total number of trajectories, with `mix`. None: as many as the scarcest pack allows.
        judged: Leave out trajectories in which `simia judge` found a fault.
        partial: Export what a run holds even if it is unfinished, in progress or inconsistent.
        least_reward: For runs of a training: the best episode of each group is exported if its reward is at least this.
        pairs: Write preference pairs: a better and a worse episode of one group whose rewards differ by at least this number. For runs of
            trainings and rollouts, with `to` `llamafactory` or `trl`.
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
    require_type("source", source, str, Path, Iterable)
    require_type("out", out, str, Path)
    require_type("cutoff", cutoff, int)
    for option, value, kinds in (("to", to, Format), ("segment", segment, Segment), ("template", template, Template)):
        if value not in (known := get_args(kinds)):
            near = difflib.get_close_matches(str(value), known, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{option}: expected {', '.join(map(repr, known))}, got {value!r:.60}{hint}")
    if cutoff < 1:
        raise UserError(f"cutoff: expected a number of at least 1, got {cutoff}")
    names = [source] if isinstance(source, str | Path) else list(source)
    if not names:
        raise UserError("source is empty: give a run, a file, a pack or trajectories")
    given = [each for each in names if isinstance(each, Trajectory)]
    if given and len(given) < len(names):
        raise UserError("source: give names or trajectories, not both")
    if given and (mix or judged):
        raise UserError("mix and judged select from runs and files: give their names as source")
    text = str(system) if system else None
    if pairs is not None:
        if given or mix or system or judged or segment != "whole":
            raise UserError(
                "pairs are made of runs and cannot be combined with mix, system, judged or segment: leave these out"
            )
        entry = ModelEntry.named(model) if model else None
        writer = LLaMAFactoryWriter("whole", reasoning, entry.template if entry else template, cutoff, model=entry)
        chosen = select_pairs([str(name) for name in names], Path(runs), pairs, partial=partial)
        return export_pairs(chosen.groups, Path(out), to=check_pair_format(to), trainer=writer, facts=chosen.facts)
    reasoned = choose_reasoning(to, reasoning)
    if given:
        selection = Selection(given)
        identify = functools.partial(hash_row, system=text is None, reasoning=reasoned)
        rows = filter_rows(given, selection.left_out, identify)
        selection.rows = set_system(rows, text) if text else rows
    else:
        options: dict[str, Any] = {"mix": mix, "take": take, "system": text, "judged": judged, "partial": partial}
        options |= {"best": BestOfGroups(least_reward), "reasoning": reasoned}
        selection = select([str(name) for name in names], Path(runs), **options)
    return write(
        selection.rows,
        Path(out),
        to=to,
        segment=segment,
        reasoning=reasoning,
        step_reasons=step_reasons,
        template=template,
        cutoff=cutoff,
        model=ModelEntry.named(model) if model else None,
        facts=selection.facts,
        dropped=selection.dropped,
        left_out=selection.left_out,
        verdicts=selection.verdicts,
    )
