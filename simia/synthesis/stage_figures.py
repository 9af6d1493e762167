"""Figures of a synthesis by stage (outputs, refusals, tokens, cost): for `synthesis.json` in each pack, and from a run's ledger."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from simia.jobs.ledger import PASSED, REJECTED
from simia.jobs.run import Run
from simia.jobs.tables import Damaged, build_token_sum
from simia.llm.types import Reply, Request
from simia.pack_files import RECORD
from simia.quality.fast_tokens import estimate_text_tokens
from simia.synthesis.stage import StageOutputs
from simia.trajectory import Usage

NANO = 1_000_000_000  # dollars are summed as integers of this unit, so that the order of replies does not matter


@dataclass(slots=True)
class Spending:
    """Tokens and cost of some replies."""

    questions: int = 0
    prompt: int = 0
    completion: int = 0
    estimated: int = 0
    """Replies whose tokens simia estimated."""
    priced: int = 0
    """Replies whose price is known."""
    nanodollars: int = 0

    def add_reply(self, usage: Usage) -> None:
        """Count one reply."""
        self.questions += 1
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.estimated += usage.estimated
        self.priced += usage.cost is not None
        self.nanodollars += round((usage.cost or 0.0) * NANO)

    def add(self, other: Spending) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def cost(self) -> float | None:
        """Dollars; None if no price is known."""
        return self.nanodollars / NANO if self.priced else None


class TokenCounts(BaseModel):
    """Tokens of a stage's replies."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    prompt: int = 0
    """Tokens of the prompts."""
    completion: int = 0
    """Tokens of the replies, reasoning included."""


class StageFigures(BaseModel):
    """One stage: its items, and their tokens and cost."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str
    """The stage."""
    inputs: int = 0
    """Items."""
    made: int = 0
    """Items with an output."""
    refused: dict[str, int] = Field(default_factory=dict)
    """Reason → items that were refused for it."""
    questions: int = 0
    """Number of replies, including those that could not be read."""
    tokens: TokenCounts = Field(default_factory=TokenCounts)
    """Their tokens."""
    estimated: bool = False
    """Whether simia estimated tokens that no endpoint counted."""
    cost: float | None = None
    """Dollars; None if no price is known."""

    @property
    def open(self) -> int:
        """Items that are not decided."""
        return self.inputs - self.made - sum(self.refused.values())


class RefusedItem(BaseModel):
    """An item without an output."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    stage: str
    """Its stage."""
    key: str
    """Its key in the stage."""
    reason: str
    """A `Reason`."""
    detail: str = ""
    """One line for people."""


class SynthesisFigures(BaseModel):
    """The content of `synthesis.json`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    recipe: str
    """Name of the recipe."""
    model: str
    """The model that wrote."""
    stages: list[StageFigures] = Field(default_factory=list)
    """The stages in order."""
    refusals: list[RefusedItem] = Field(default_factory=list)
    """Items without an output, in the order of the plan."""
    notes: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Stage → key → figures that the stage kept."""


def collect_figures(
    recipe: str, model: str, stages: Sequence[str], outputs: StageOutputs, spent: Mapping[str, Spending]
) -> SynthesisFigures:
    """Collect the figures of a synthesis. `stages`: their names in order; `spent`: tokens and cost of each."""
    found = SynthesisFigures(recipe=recipe, model=model, notes=outputs.notes)
    for name in stages:
        refused = outputs.refused.get(name, {})
        made = len(outputs.of(name))
        reasons = Counter(each.reason for each in refused.values())
        found.stages.append(describe_stage(name, made + len(refused), made, reasons, spent.get(name, Spending())))
        found.refusals += [
            RefusedItem(stage=name, key=key, reason=each.reason, detail=each.detail) for key, each in refused.items()
        ]
    return found


def describe_stage(name: str, inputs: int, made: int, reasons: Mapping[str, int], spent: Spending) -> StageFigures:
    return StageFigures(
        name=name,
        inputs=inputs,
        made=made,
        refused=dict(sorted(reasons.items())),
        questions=spent.questions,
        tokens=TokenCounts(prompt=spent.prompt, completion=spent.completion),
        estimated=spent.estimated > 0,
        cost=None if spent.cost is None else round(spent.cost, 6),
    )


def write_figures(figures: SynthesisFigures, packs: Iterable[Path]) -> None:
    """Write `synthesis.json` into each pack."""
    body = orjson.dumps(
        figures.model_dump(mode="json", exclude={"notes"}) | {"notes": sort_keys(figures.notes)},
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )
    for pack in packs:
        (pack / RECORD).write_bytes(body)


def sort_keys(value: Any) -> Any:
    """Sort the keys of a JSON value, since parallel parts of an item write notes in the order of their replies."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(each) for each in value] if isinstance(value, list) else value


def cost_by_stage(run: Run) -> list[StageFigures]:
    """Return the stages of a run as far as they are planned, with all that was paid for them, including open items."""
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    spent: dict[str, Spending] = {}
    paid = sum_attempts(run)
    for item in run.ledger.items():
        name = str(item.spec.get("stage", ""))
        counts.setdefault(name, Counter())[item.status] += 1
        if item.status == REJECTED:
            reasons.setdefault(name, Counter())[item.reason or ""] += 1
        body = run.ledger.result(item.id) if item.status in (PASSED, REJECTED) else None
        if body is not None:  # with the estimates of tokens that no endpoint counted
            spent.setdefault(name, Spending()).add(Spending(**body["spent"]))
            paid.pop(item.id, None)
    add_estimates(run, paid)
    for id_, each in paid.items():
        spent.setdefault(id_.partition("/")[0], Spending()).add(each)
    return [
        describe_stage(name, each.total(), each[PASSED], reasons.get(name, {}), spent.get(name, Spending()))
        for name, each in counts.items()
    ]


def sum_attempts(run: Run) -> dict[str, Spending]:
    """Sum the answered attempts of a run by item."""
    rows = run.ledger.db.ledger.execute(
        f"SELECT item, COUNT(*), {build_token_sum('prompt')}, {build_token_sum('completion')}, COUNT(cost),"
        " TOTAL(MAX(cost, 0)) FROM attempt WHERE status = 'got' GROUP BY 1"
    )
    return {
        str(item): Spending(count, prompt, completion, 0, priced, round(dollars * NANO))
        for item, count, prompt, completion, priced, dollars in rows
    }


def add_estimates(run: Run, paid: Mapping[str, Spending]) -> None:
    """Add the estimated tokens of replies that no endpoint counted, such as answers of a person, to the spending of these items."""
    rows = run.ledger.db.ledger.execute(
        "SELECT item, reply_key FROM attempt WHERE status = 'got' AND COALESCE(prompt, 0) = 0 AND COALESCE(completion, 0) = 0"
    )
    for item, key in rows.fetchall():
        if (spending := paid.get(str(item))) is None:
            continue
        with contextlib.suppress(Damaged):
            request, reply = run.ledger.recall_request(key), run.ledger.recall(key)
            if request is not None and reply is not None:
                usage = measure_usage(request, reply)
                spending.prompt += usage.prompt
                spending.completion += usage.completion
                spending.estimated += 1


def measure_usage(request: Request, reply: Reply) -> Usage:
    """Return the tokens of a reply; an estimate if the endpoint counted none."""
    usage = reply.usage
    if usage.prompt or usage.completion:
        return usage
    texts = request.input or [str(message["content"]) for message in request.messages]
    written = 0 if request.input else estimate_text_tokens(reply.text)
    counts = {"prompt": sum(map(estimate_text_tokens, texts)), "completion": written, "estimated": True}
    return usage.model_copy(update=counts)
