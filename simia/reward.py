"""Reward: a value with its parts and its reason. None means that nothing could be judged, which is not zero."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code


class Reward(BaseModel):
    """The reward of an episode. `value` is None exactly when infrastructure failed (`error` says how): trainers mask it or sample again."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    value: float | None = None
    """The reward, usually from 0 to 1; None: infrastructure failed and nothing was judged."""
    parts: dict[str, float] = Field(default_factory=dict)
    """Name of each part of the task's reward → its value."""
    steps: list[float] = Field(default_factory=list)
    """What each message of the agent adds to `value` in training, in order; empty: the only reward is the one at the end."""
    rationale: str = ""
    """An explanation of the value, for people."""
    error: Code | None = None
    """The reason why `value` is None."""

    @property
    def total(self) -> float | None:
        """The value with the rewards of single turns, which trainers use; None where `value` is."""
        return self.value if self.value is None or not self.steps else round(self.value + math.fsum(self.steps), 9)
