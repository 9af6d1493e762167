"""Formats and options of an export, its rows and its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from simia.errors import Issue

Format = Literal["llamafactory", "trl", "openai", "hermes", "codegym", "parquet", "hf", "agentinstruct", "officebench"]
Target = Literal[Format, "simulator"]
"""What `simia export` writes: trajectories in a format, or the rows of a simulator."""
TABLES = ("parquet", "hf")
"""Formats whose rows are whole records."""
Segment = Literal["whole", "turns"]
Template = Literal["qwen", "qwen3", "qwen3_nothink", "llama3"]


@dataclass(frozen=True)
class ExportRow:
    """A row as JSON, the number of assistant turns that it trains, and its length in tokens (0: not counted)."""

    text: str
    trained: int
    tokens: int = 0


class ExportReport(BaseModel):
    """Counts of rows and refusals. `refused` counts rows: one per trajectory, or with `turns` one per assistant turn."""

    to: Format = Field(description="Format of the export.")
    segment: Segment = Field(description="`whole` trajectories or assistant `turns`.")
    reasoning: bool | None = Field(
        description="Whether reasoning is trained on. None: only where the suite's prompt requires it, and in `parquet` and `hf`."
    )
    template: Template = Field(description="LLaMA-Factory's chat template.")
    cutoff: int = Field(description="Maximum number of tokens of a row.")
    pairs: bool = Field(default=False, description="Whether the rows are preference pairs.")
    counted: bool = Field(description="Whether lengths were counted by the caller's tokenizer, or estimated.")
    trajectories: int = Field(default=0, description="Number of trajectories that were read.")
    exported: int = Field(default=0, description="Number of trajectories with at least one row.")
    rows: int = Field(default=0, description="Number of rows that were written.")
    without_system: int = Field(default=0, description="Number of exported trajectories without a system text.")
    left_out: dict[str, int] = Field(
        default_factory=dict,
        description="Number of trajectories that the selection left out, by reason: duplicates, tasks for evaluation only.",
    )
    unjudged: int | None = Field(
        default=None,
        description="Number of exported trajectories without a verdict of a judge. None: verdicts were not asked for.",
    )
    disturbed: int = Field(
        default=0, description="Number of exported trajectories in which a planned perturbation happened."
    )
    trained_turns: int = Field(default=0, description="Number of assistant turns that are trained on.")
    longest: int = Field(default=0, description="Number of tokens of the longest row.")
    languages: dict[str, int] = Field(
        default_factory=dict,
        description="Number of exported trajectories by language (ISO 639-1). Only counted for `hf` and `llamafactory`.",
    )
    refused: dict[str, int] = Field(default_factory=dict, description="Number of refused rows by reason.")
    examples: list[Issue] = Field(default_factory=list, description="The first refused row for each reason.")
    files: list[str] = Field(default_factory=list, description="Names of the written files.")
    notes: list[str] = Field(default_factory=list, description="Notes on files of an earlier export, a line each.")

    def refuse(self, issue: Issue) -> None:
        if issue.code not in self.refused:
            self.examples.append(issue)
        self.refused[issue.code] = self.refused.get(issue.code, 0) + 1


def choose_reasoning(to: str, given: bool | None) -> bool | None:
    """Return whether reasoning is written: as `given`, else always in tables. None: only where the suite's prompt requires it."""
    return True if given is None and to in TABLES else given
