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
from simia.export import llamafactory
from simia.export.card import card
from simia.export.draft import Draft
from simia.export.facts import CardFacts, ExportReport, Format, Segment, Template
from simia.export.llamafactory import Line
from simia.export.tokens import CountTokens
from simia.formats.llamafactory import Unfit, json_text
from simia.trajectory import Trajectory

DATA = "data.jsonl"
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
) -> ExportReport:
    """Write `out/` (data, refusals, card, and for LLaMA-Factory its configuration). Existing files are replaced.

    `segment="turns"` makes one row of each assistant turn, with the history before it. `reasoning` keeps the agent's
    thinking. `count` counts a text's tokens with the model's own tokenizer; without it lengths are estimated.
    """
    if to != "llamafactory" and segment != "whole":
        raise UserError(f"segment={segment} is for llamafactory; {to} rows hold whole trajectories")
    trainer = llamafactory.Writer(segment, reasoning, template, cutoff, count)
    report = ExportReport(
        to=to, segment=segment, reasoning=reasoning, template=trainer.template, cutoff=cutoff, counted=count is not None
    )
    configuration = dict(trainer.configuration()) if to == "llamafactory" else {}
    with Draft(out) as draft:
        data, refused = draft.file(DATA), draft.file(REFUSED)
        for t in trajectories:
            report.trajectories += 1
            before = report.rows
            for item in trainer.rows(t) if to == "llamafactory" else dialect_rows(t, to, reasoning):
                if isinstance(item, Issue):
                    report.refuse(item)
                    account = {"id": name_of(t), "item": t.provenance.item, **item.model_dump()}
                    refused.write(json.dumps(account).encode() + b"\n")
                else:
                    report.rows += 1
                    report.trained_turns += item.trained
                    report.longest = max(report.longest, item.tokens)
                    data.write(item.text.encode() + b"\n")
            report.exported += report.rows > before
        for name, text in configuration.items():
            draft.text(name, text)
        draft.text("README.md", card(facts, report))
        report.files = draft.names
    return report


def dialect_rows(t: Trajectory, to: Format, reasoning: bool) -> Iterator[Line | Issue]:
    """One row in a chat dialect. Its trainers bring their own template and mask every assistant turn alike or none."""
    for i, message in enumerate(t.messages):
        if message.role == "assistant" and message.train is False:
            detail = f"train: false cannot be said of one turn in {to} rows"
            yield Issue(code=Code.UNEXPRESSIBLE, where=f"messages[{i}]", detail=detail)
            return
    if not reasoning:
        t = t.model_copy(update={"messages": [m.model_copy(update={"reasoning": None}) for m in t.messages]})
    for i, j, call in t.calls():
        if call.arguments is None:
            yield Issue(code=Code.UNPARSABLE_ARGUMENTS, where=f"messages[{i}].calls[{j}]")
            return
    try:
        line = json_text(formats.get(to).write(t), "")
    except Unfit as unfit:
        yield unfit.issue
        return
    yield Line(line, trained=sum(message.role == "assistant" for message in t.messages), tokens=0)


def name_of(t: Trajectory) -> str | None:
    """The trajectory's id, or nothing when its content is no Unicode and cannot be hashed."""
    try:
        return t.id
    except UnicodeEncodeError:
        return None
