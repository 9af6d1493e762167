"""Export trajectories to a trainer's format: data, the trainer's own configuration, and a card.

One pass with bounded memory. What the trainer would drop, cut or change is refused here with a reason code, counted in
the report and the card and listed in `refused.jsonl`, so that rows in the file are rows that are trained on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from simia import formats
from simia.errors import Code, Issue, UserError
from simia.exporting import llamafactory, parquet, trl
from simia.exporting.atomic_files import AtomicFiles
from simia.exporting.data_card import render_card
from simia.exporting.facts import CardFacts, ExportReport, Format, Segment, Template
from simia.exporting.llamafactory import ExportRow, ModelEntry
from simia.exporting.tokens import CountTokens
from simia.formats.llamafactory import UntrainableError, write_json
from simia.trajectory import Trajectory
from simia.version import __version__

DATA, TABLE = "data.jsonl", "data.parquet"
SUITES = ("agentinstruct", "officebench")
REFUSED = "refused.jsonl"


def export(
    trajectories: Iterable[Trajectory],
    out: Path,
    *,
    to: Format,
    segment: Segment = "whole",
    reasoning: bool = False,
    template: Template = "qwen",
    cutoff: int = 12000,
    facts: CardFacts,
    count: CountTokens | None = None,
    model: ModelEntry | None = None,
) -> ExportReport:
    """Write `out/` (data, refusals, card, and for LLaMA-Factory its configuration). Existing files are replaced.

    `segment="turns"` makes one row of each assistant turn, with the history before it. `reasoning` keeps the agent's
    thinking. `count` counts a text's tokens with the model's own tokenizer; without it lengths are estimated.
    """
    if to not in ("llamafactory", "trl") and segment != "whole":
        raise UserError(f"segment={segment} is for llamafactory and trl; {to} rows hold whole trajectories")
    trainer = llamafactory.LLaMAFactoryWriter(
        segment, reasoning, model.template if model else template, cutoff, count, model
    )
    report = ExportReport(
        to=to, segment=segment, reasoning=reasoning, template=trainer.template, cutoff=cutoff, counted=count is not None
    )
    configuration = dict(trainer.configuration()) if to == "llamafactory" else {}
    with AtomicFiles(out) as draft:
        if to == "parquet":
            table = parquet.TableWriter(draft.file(TABLE), build_metadata(facts))
        else:
            data = draft.file(DATA)
        refused = draft.file(REFUSED)
        for t in trajectories:
            report.trajectories += 1
            before = report.rows
            for item in iterate_export_rows(t, to, segment, reasoning, trainer):
                if isinstance(item, Issue):
                    report.refuse(item)
                    account = {"id": get_id(t), "item": t.provenance.item, **item.model_dump()}
                    refused.write(json.dumps(account).encode() + b"\n")
                else:
                    report.rows += 1
                    report.trained_turns += item.trained
                    report.longest = max(report.longest, item.tokens)
                    if to == "parquet":
                        table.write(t)
                    else:
                        data.write(item.text.encode() + b"\n")
            report.exported += report.rows > before
            report.without_system += report.rows > before and not t.system
        if to == "parquet":
            table.close()
        for name, text in configuration.items():
            draft.text(name, text)
        draft.text("README.md", render_card(facts, report))
        report.files = draft.names
    return report


def iterate_export_rows(
    t: Trajectory, to: Format, segment: Segment, reasoning: bool, trainer: llamafactory.LLaMAFactoryWriter
) -> Iterator[ExportRow | Issue]:
    if to == "llamafactory":
        return trainer.rows(t)
    if to == "parquet":  # whole, in columns
        return iter([ExportRow("", trained=sum(message.role == "assistant" for message in t.messages), tokens=0)])
    return trl.iterate_trl_rows(t, segment, reasoning) if to == "trl" else iterate_dialect_rows(t, to, reasoning)


def build_metadata(facts: CardFacts) -> dict[str, str]:
    """Return the metadata of a table, for readers without its card."""
    return {
        "version": __version__,
        "run": facts.run or "",
        "config": facts.config_digest or "",
        "licences": ", ".join(facts.licences),
        "models": ", ".join(facts.models),
    }


def iterate_dialect_rows(t: Trajectory, to: Format, reasoning: bool) -> Iterator[ExportRow | Issue]:
    """Write one row in a chat dialect, whose trainers bring their own template and mask all assistant turns alike."""
    for i, message in enumerate(t.messages):
        if message.role == "assistant" and message.train is False and to != "agentinstruct":
            detail = f"train: false cannot be said of one turn in {to} rows"
            yield Issue(code=Code.UNEXPRESSIBLE, where=f"messages[{i}]", detail=detail)
            return
    if not reasoning and to not in SUITES:  # there the thought is part of what is said
        t = t.model_copy(update={"messages": [m.model_copy(update={"reasoning": None}) for m in t.messages]})
    for i, j, call in t.calls():
        if call.arguments is None:
            yield Issue(code=Code.UNPARSABLE_ARGUMENTS, where=f"messages[{i}].calls[{j}]")
            return
    try:
        line = write_json(formats.get(to).write(t), "")
    except UntrainableError as unfit:
        yield unfit.issue
        return
    yield ExportRow(line, trained=sum(message.role == "assistant" for message in t.messages), tokens=0)


def get_id(t: Trajectory) -> str | None:
    """Return the trajectory's id; None if its content is not valid Unicode and cannot be hashed."""
    try:
        return t.id
    except UnicodeEncodeError:
        return None
