"""Settings of judging: the judge of the pre-filter, and the quality judges of a finished run.

Model, rubric and the way of asking are part of a verdict's identity: after a change of any, verdicts are requested again.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from simia.config import OPERATIONAL, Config
from simia.llm.backends import LLMSettings
from simia.llm.engine import EngineLimits


class JudgeSampling(Config):
    """How verdicts are sampled: as little chance as the endpoint allows."""

    temperature: float | None = Field(default=0.0, ge=0)
    """Sampling temperature; None leaves it to the endpoint. More than one vote wants more than 0."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling; None leaves it to the endpoint."""
    max_tokens: int | None = Field(default=8_000, ge=1)
    """Longest reply, reasoning tokens included."""
    reasoning_effort: str | None = None
    """For reasoning models that take it: low, medium, high."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request body, as the endpoint knows them."""


class Judge(Config):
    """One judge."""

    llm: LLMSettings | None = None
    """The model that judges; None: the one that the run itself uses."""
    sampling: JudgeSampling = Field(default_factory=JudgeSampling)
    """How verdicts are sampled."""
    votes: int = Field(default=1, ge=1)
    """How many verdicts are drawn; the majority of them decides each dimension. An odd number."""
    tries: int = Field(default=2, ge=1)
    """How often one vote is asked for in all when its reply cannot be read."""
    system: str = "judge/system.j2"
    """Prompt file: the task, the rubric, tools, policy and form of the reply."""
    request: str = "judge/request.j2"
    """Prompt file: the conversation."""
    rubric: str = "judge/quality.md"
    """Prompt file: what is judged, a section a dimension."""
    dimensions: list[str] | None = Field(default=None, min_length=1)
    """Only these sections of the rubric; None: all of them."""

    @field_validator("votes")
    @classmethod
    def _odd(cls, votes: int) -> int:
        if votes % 2 == 0:
            raise ValueError("an even number of votes can tie; choose an odd one")
        return votes


class PrefilterSettings(Judge):
    """The pre-filter of seeds by a model (paper §2.2)."""

    enabled: bool = False
    """Whether seeds are judged by a model, after the rules."""
    rubric: str = "judge/prefilter.md"
    """Prompt file: completeness, logic and format."""


class AcceptanceSettings(Judge):
    """A model's judgement as a part of acceptance: of each trajectory that has passed the structural checks."""

    enabled: bool = False
    """Whether a model judges trajectories before they are accepted. A trajectory that fails a dimension is rejected."""


class QualitySettings(Config):
    """Who judges the accepted trajectories of a run, and how many of them."""

    judges: dict[str, Judge] = Field(default_factory=lambda: {"quality": Judge()}, min_length=1)
    """Judges by name: other models, other rubrics, or both."""
    sample: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Judge so many of the accepted trajectories, drawn by the seed; None: all. A larger sample contains a smaller one."""
    seed: int = 0
    """Number from which the sample derives."""
    limits: EngineLimits = Field(default_factory=EngineLimits, json_schema_extra=OPERATIONAL)
    """How hard each model is pushed, and what may be spent on it in one session."""
