"""Stages of a synthesis recipe: inputs → prompts → parse → verify by execution → outputs, or a reason code.

A recipe is a list of stages. The inputs of a stage are made from the outputs of the earlier stages when all of these are decided, so the
same replies make the same outputs at any concurrency. An input may need several replies (a draft, its repairs, the samples of a vote):
`make` asks for them in its own order, and each is stored before it is used. Inputs and outputs are JSON values; stages pass nothing else
to each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from simia.llm.types import Reply, Request
from simia.pack_provenance import PackProvenance

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StageInput:
    """One unit of a stage's work."""

    key: str
    """Unique in the stage; names of one input's parts are joined with `/`: `hotel/book_room`."""
    value: Any
    """The input, a JSON value."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An input that has no output."""

    reason: str
    """A `Reason`."""
    detail: str = ""
    """One line for people."""


@dataclass(slots=True)
class StageOutputs:
    """The results of a run's stages so far."""

    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stage → key → output, in the order of the inputs."""
    refused: dict[str, dict[str, Refusal]] = field(default_factory=dict)
    """Stage → key → why there is no output."""
    notes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Stage → key → figures that `StageContext.note` kept, of outputs and refusals alike."""
    origin: PackProvenance = field(default_factory=PackProvenance)
    """Recipe, model and prompt files of the run, for the provenance of its packs."""

    def of(self, stage: str) -> dict[str, Any]:
        """Return the outputs of a stage by key; empty if it had none."""
        return self.made.get(stage, {})


class StageContext(Protocol):
    """The services for a stage's work on one input: ask models, execute generated code in the sandbox, keep figures for the report."""

    async def ask(
        self,
        prompt: str,
        values: Mapping[str, Any],
        parse: Callable[[str], T],
        *,
        label: str,
        role: str = "writer",
    ) -> T:
        """Render a prompt file, ask for a reply, and return what `parse` reads in it.

        Args:
            prompt: name under `prompts/`, such as `synthesis/plan.j2`.
            values: the values that the prompt names.
            parse: reads the reply's text. If it raises `Unreadable`, the model sees the message and is asked again.
            label: names the question within this input: `draft`, `repair2`, `solution7`. Each label is one sample.
            role: which of the config's models is asked.

        Raises:
            Refused: `unreadable_reply`, after as many tries as the config allows.
        """

    async def embed(self, texts: Sequence[str], *, label: str) -> list[list[float]] | None:
        """Return the vectors of these texts, of length 1, by the model of the role `embeddings`; None if the config names none."""

    async def send(self, request: Request, *, label: str, role: str = "writer") -> Reply:
        """Send one request of an agent that plays an episode, with settings of its own. Each label is one sample."""

    def execution(self) -> contextlib.AbstractAsyncContextManager[Path]:
        """Wait until generated code may be executed, and yield an empty temporary folder, which is removed afterwards."""

    def note(self, **figures: Any) -> None:
        """Keep JSON figures about this input for the report, such as debug rounds. They have no effect on results."""


class Stage(Protocol):
    """One step of a recipe."""

    name: str
    """Unique in the recipe; part of every item's id."""

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        """Make the inputs from the outputs of earlier stages. A pure function: no questions, no execution, no random choices."""

    async def make(self, given: StageInput, context: StageContext) -> Any:
        """Return the output of an input, a JSON value. Raises `Refused` for an input that has none."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The questions that a stage is expected to ask, for the estimate of a dry run."""

    questions: int
    """Replies."""
    prompt: int = 2000
    """Tokens of a prompt."""
    reply: int = 1200
    """Tokens of a reply."""
    role: str = "writer"
    """Which of the config's models is asked."""


class Recipe(Protocol):
    """A method of making packs: its stages, and how their outputs become packs.

    It may also have methods `expected() -> Mapping[str, int | Expectation]`: the expected questions of each stage, for a dry run;
    `list_source_files() -> Mapping[str, Path]`: files of a folder that must not change while a run is worked on;
    `list_faults() -> list[str]`: rows of the source that cannot be used, for a dry run; and `summarize(outputs) -> list[str]`: lines for
    people about the results of a complete run.
    """

    name: str

    def list_stages(self) -> Sequence[Stage]:
        """The stages in order."""

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        """Write the packs to `out`, which does not exist, or to folders in it, and return their folders. Equal outputs make equal bytes."""
