"""The progress of a running synthesis: the figures of every job, and those of the present stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from simia.jobs.progress import Progress


@dataclass(slots=True)
class SynthesisProgress(Progress):
    """Counts of the whole run, and of the stage that is worked on. `n`: items that are planned so far."""

    stage: str = ""
    """The present stage."""
    stage_number: int = 0
    """Its place in the recipe, from 1."""
    stages: int = 0
    """How many stages the recipe has."""
    inputs: int = 0
    """Items of the present stage."""
    made: int = 0
    """Those with an output."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those that were refused, by reason."""

    @property
    def open(self) -> int:
        """Items of the present stage that are not decided."""
        return self.inputs - self.made - self.refused.total()

    @property
    def projected_cost(self) -> float | None:
        """None: how many items the later stages have depends on replies."""
        return None

    def eta(self) -> float | None:
        """None: how many items the later stages have depends on replies."""
        return None

    def enter_stage(self, name: str, number: int, inputs: int) -> None:
        """Begin to count another stage."""
        self.stage, self.stage_number, self.inputs, self.made = name, number, inputs, 0
        self.refused = Counter()
        self.n += inputs

    def snapshot(self) -> dict[str, Any]:
        """The figures as JSON."""
        stage = {
            "name": self.stage, "number": self.stage_number, "of": self.stages, "inputs": self.inputs,
            "made": self.made, "refused": dict(self.refused.most_common()), "open": self.open,
        }  # fmt: skip
        return {**Progress.snapshot(self), "stage": stage}
