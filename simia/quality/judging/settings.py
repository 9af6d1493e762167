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
    """Sampling settings of the verdicts. By default, they are as deterministic as the endpoint allows."""

    temperature: float | None = Field(default=0.0, ge=0)
    """Sampling temperature. null: the endpoint's default. With more than one vote, set it above 0."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling (top-p). null: the endpoint's default."""
    max_tokens: int | None = Field(default=8_000, ge=1)
    """Maximum number of tokens of a reply, reasoning tokens included. null: the endpoint's limit."""
    reasoning_effort: str | None = None
    """Effort of a reasoning model: low, medium or high. null: the endpoint's default."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Additional fields of the request body."""


class Judge(Config):
    """One judge: a model and a rubric."""

    llm: LLMSettings | None = None
    """The model that judges. null: the run's own model."""
    sampling: JudgeSampling = Field(default_factory=JudgeSampling)
    """Sampling settings of the verdicts."""
    votes: int = Field(default=1, ge=1)
    """Number of verdicts to sample. The majority decides each dimension. Must be odd."""
    tries: int = Field(default=2, ge=1)
    """Maximum number of requests for one vote, if its reply cannot be parsed."""
    system: str = "judge/system.j2"
    """Prompt file of the system text: task, rubric, tools, policy and form of the reply."""
    request: str = "judge/request.j2"
    """Prompt file of the request, which contains the conversation."""
    rubric: str = "judge/quality.md"
    """Prompt file of the rubric, with one section for each dimension."""
    dimensions: list[str] | None = Field(default=None, min_length=1)
    """Judge only these dimensions (sections of the rubric). null: all."""

    @field_validator("votes")
    @classmethod
    def _odd(cls, votes: int) -> int:
        if votes % 2 == 0:
            raise ValueError("an even number of votes can tie; choose an odd one")
        return votes


class PrefilterSettings(Judge):
    """Filter of the seeds by a model, before they are amplified (paper §2.2)."""

    enabled: bool = False
    """Whether a model judges the seeds that passed the rules."""
    rubric: str = "judge/prefilter.md"
    """Prompt file of the rubric: completeness, logic and format."""


class AcceptanceSettings(Judge):
    """A model that judges each trajectory that passed the checks, before it is accepted."""

    enabled: bool = False
    """Whether a model judges trajectories before they are accepted. A trajectory that fails any dimension is rejected."""


class QualitySettings(Config):
    """Judges of a run's accepted trajectories, and the number of trajectories to judge."""

    judges: dict[str, Judge] = Field(default_factory=lambda: {"quality": Judge()}, min_length=1)
    """Judges by name. They may differ in model, rubric or both."""
    sample: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Number of accepted trajectories to judge, sampled with `seed`. null: all. A larger sample contains the smaller ones."""
    seed: int = 0
    """Random seed of the sample."""
    limits: EngineLimits = Field(default_factory=EngineLimits, json_schema_extra=OPERATIONAL)
    """Concurrency and retries for each model, and its budget in one session."""
