"""Reward: a value with its parts and its reason. None means that nothing could be judged, which is not zero."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code


class Reward(BaseModel):
    """`value` is None exactly when infrastructure failed (`error` says how): trainers mask it or sample again."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    value: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    rationale: str = ""
    error: Code | None = None
