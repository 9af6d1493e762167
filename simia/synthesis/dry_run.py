"""Preview a synthesis without sending anything: its first question, and a projection of its price."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from simia.llm.backends import find_price
from simia.llm.prices import FREE, Price, look_up_price
from simia.llm.types import Reply, Request
from simia.prompts import load_template
from simia.quality.fast_tokens import estimate_text_tokens
from simia.synthesis.context import FOLDER
from simia.synthesis.job import list_stage_inputs
from simia.synthesis.reasons import Refused
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Expectation, Recipe, Refusal, StageInput, StageOutputs
from simia.synthesis.stage_errors import describe_failure, find_cause
from simia.terminal import write_count
from simia.trajectory import Usage

T = TypeVar("T")
COMPARED = "gpt-5-mini"
"""Model whose price is shown for comparison if the config's model has no known price."""

MOST_FAULTS = 12  # rows that are named


class FirstQuestion(Exception):  # noqa: N818 - a finding
    """A stage would ask now."""

    def __init__(self, prompt: str) -> None:
        super().__init__("a dry run asks nothing")
        self.prompt = prompt


class DryContext:
    """Implements `StageContext`: the first question ends the item."""

    async def ask(
        self, prompt: str, values: Mapping[str, Any], parse: Callable[[str], T], *, label: str, role: str = "writer"
    ) -> T:
        raise FirstQuestion(load_template(prompt)[0].render(values))

    async def embed(self, texts: Sequence[str], *, label: str) -> list[list[float]] | None:
        return None

    async def send(self, request: Request, *, label: str, role: str = "writer") -> Reply:
        raise FirstQuestion(str(request.messages[-1]["content"]))

    @asynccontextmanager
    async def execution(self) -> AsyncIterator[Path]:
        with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
            yield Path(folder)

    def note(self, **figures: Any) -> None: ...


@dataclass(slots=True)
class DryRun:
    """The first prompt, and the items that are known before any reply."""

    stages: list[str]
    """Names of the recipe's stages."""
    known: dict[str, int] = field(default_factory=dict)
    """Stage → items."""
    prompt: str | None = None
    """The first prompt; None if no stage asks anything."""
    item: str = ""
    """The item that asks it."""
    faults: list[str] = field(default_factory=list)
    """Rows of the source that cannot be used, each in one line, if the recipe names them."""
    expected: dict[str, Expectation] = field(default_factory=dict)
    """Stage → the questions that it is expected to ask, if the recipe states them."""


def preview_synthesis(recipe: Recipe) -> DryRun:
    """Work on the stages until one asks a question. Raises `UserError` as a run would."""
    return asyncio.run(find_first_question(recipe))


async def find_first_question(recipe: Recipe) -> DryRun:
    stages, outputs = recipe.list_stages(), StageOutputs()
    list_faults: Callable[[], list[str]] = getattr(recipe, "list_faults", list)
    found = DryRun([stage.name for stage in stages], faults=list_faults(), expected=read_expectations(recipe))
    for stage in stages:
        inputs = list_stage_inputs(stage, outputs)
        found.known |= {stage.name: len(inputs)} if inputs else {}
        for given in inputs:
            try:
                made = await stage.make(StageInput(given.key, given.value), DryContext())
                outputs.made.setdefault(stage.name, {})[given.key] = made
            except Exception as error:
                cause = find_cause(error)
                if isinstance(cause, FirstQuestion):
                    found.prompt, found.item = cause.prompt, f"{stage.name}/{given.key}"
                    return found
                reason = cause.reason if isinstance(cause, Refused) else "internal"
                detail = cause.detail if isinstance(cause, Refused) else describe_failure(cause)
                outputs.refused.setdefault(stage.name, {})[given.key] = Refusal(reason, detail)
    return found


def read_expectations(recipe: Recipe) -> dict[str, Expectation]:
    """Return the result of the recipe's method `expected`; empty if it has none."""
    expected: Callable[[], Mapping[str, int | Expectation]] | None = getattr(recipe, "expected", None)
    given = expected() if expected is not None else {}
    return {name: Expectation(each) if isinstance(each, int) else each for name, each in given.items()}


def describe_dry_run(found: DryRun, config: SynthesisConfig) -> list[str]:
    """Write items, expected questions and the projected price, for people."""
    known = ", ".join(f"{name} {count:,}" for name, count in found.known.items()) or "none"
    lines = [f"stages: {', '.join(found.stages)}", f"items known before any reply: {known}"]
    lines += [f"cannot be used: {fault}" for fault in found.faults[:MOST_FAULTS]]
    if len(found.faults) > MOST_FAULTS:
        lines.append(f"and {write_count(len(found.faults) - MOST_FAULTS, 'further row')} cannot be used")
    if found.prompt is None:
        return [*lines, "no stage that is known so far asks a question"]
    lines.append(f"first question: {found.item}, about {estimate_text_tokens(found.prompt):,} prompt tokens")
    if not found.expected:
        return [*lines, "price: unknown, because the recipe does not say how many questions it expects"]
    costs = Costs()
    for name, each in found.expected.items():
        spent = Usage(prompt=each.questions * each.prompt, completion=each.questions * each.reply)
        cost = costs.add(spent, find_price(config.roles.get(each.role, config.llm)))
        lines.append(
            f"  {name}: {write_count(each.questions, 'question')}, {spent.prompt:,} prompt and {spent.completion:,} reply tokens{cost}"
        )
    count = sum(each.questions for each in found.expected.values())
    return [
        *lines,
        f"price: {costs.describe()} for {write_count(count, 'question')}: an estimate, reasoning tokens and repeated questions not counted",
    ]


@dataclass(slots=True)
class Costs:
    """The projected price of the stages."""

    known: float = 0.0
    """Dollars for the questions to models with a price."""
    unknown: Usage = field(default_factory=Usage)
    """Tokens of models without a known price."""
    free: Usage = field(default_factory=Usage)
    """Tokens of models that cost nothing, such as those that run on this machine."""

    def add(self, spent: Usage, price: Price | None) -> str:
        """Count a stage, and return its price in words, to follow its tokens."""
        if price is None:
            self.unknown += spent
            return ", at an unknown price" if spent.prompt else ""
        if price == FREE:
            self.free += spent
            return ", free of charge" if spent.prompt else ""
        self.known += price.of(spent)
        return f", ${price.of(spent):,.2f}"

    def describe(self) -> str:
        """Write the price of all stages in words. If a model has no known price, add that of `COMPARED` for comparison."""
        other = look_up_price(COMPARED)
        parts = [f"about ${self.known:,.2f}"] if self.known else []
        for spent, words in (
            (self.unknown, "unknown (set llm.price)"),
            (self.free, "none, for a model on this machine"),
        ):
            if spent.prompt:
                compared = f"; about ${other.of(spent):,.2f} if {COMPARED} answered" if other is not None else ""
                parts.append(f"{words}{compared}")
        return " and ".join(parts) or "about $0.00"
