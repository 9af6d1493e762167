"""The plain records of an export: what its card is told (`CardFacts`) and what it reports (`ExportReport`)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Issue

Format = Literal["llamafactory", "trl", "openai", "hermes", "parquet", "agentinstruct", "officebench"]
Segment = Literal["whole", "turns"]
Template = Literal["qwen", "qwen3", "qwen3_nothink", "llama3"]


class CardFacts(BaseModel):
    """Facts that are not in the trajectories; the caller of the exporter sets those that it knows."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str = Field(default="simia", description="Title of the data set.")
    description: str = ""
    """What the data set is."""
    run: str | None = Field(default=None, description="Id of the run that made the trajectories.")
    config_digest: str | None = Field(default=None, description="Hash of the run's resolved config.")
    seeds: list[str] = Field(default_factory=list, description="Packs or files of the seeds, or the seeds' ids.")
    models: list[str] = Field(default_factory=list, description="Models that wrote the trajectories.")
    prompts: dict[str, str] = Field(default_factory=dict, description="Prompt file to its hash.")
    licences: list[str] = Field(default_factory=list, description="Licences of seeds and packs.")
    counts: dict[str, int] = Field(
        default_factory=dict, description="Of the run: reason code (or `accepted`) to items."
    )


class ExportReport(BaseModel):
    """What was written and what was refused. `refused` counts rows: a trajectory, or with `turns` one of its turns."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    to: Format
    """The format."""
    segment: Segment
    """`whole` trajectories or assistant `turns`."""
    reasoning: bool
    """Whether reasoning is trained."""
    template: Template
    """LLaMA-Factory's chat template."""
    cutoff: int
    """Longest row in tokens."""
    counted: bool = Field(description="Whether lengths were counted by the caller's tokenizer, or estimated.")
    trajectories: int = 0
    """Trajectories read."""
    exported: int = Field(default=0, description="Trajectories with at least one row.")
    rows: int = 0
    """Rows written."""
    without_system: int = Field(default=0, description="Exported trajectories that have no system text.")
    trained_turns: int = 0
    """Assistant turns that are trained."""
    longest: int = Field(default=0, description="Tokens of the longest row.")
    refused: dict[str, int] = Field(default_factory=dict)
    """Reason → refused rows."""
    examples: list[Issue] = Field(default_factory=list, description="The first of each reason.")
    files: list[str] = Field(default_factory=list)
    """Names of the files written."""

    def refuse(self, issue: Issue) -> None:
        if issue.code not in self.refused:
            self.examples.append(issue)
        self.refused[issue.code] = self.refused.get(issue.code, 0) + 1
