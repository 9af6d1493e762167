"""The distribution of planned requests: the config section `plan:` of an amplification."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from simia.config import Config

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
MOST_CALLS = 12


class PlanSettings(Config):
    """Distribution of the requested conversations. Only used if `prompt.scenarios` is true. Weights need not sum to 1. Shares (0 to 1) are of
    all conversations.

    The planner tries other tools until a plan has the sampled properties. If no plan has them, it uses the closest one. Refusals need a policy.
    Parallel look-ups need a seed that has them, and a policy that does not forbid them. `calls` and `difficulty` take precedence over `goals`,
    unless `goals` differs from its default. The report compares the requested distribution with that of the planned and of the accepted
    conversations.
    """

    goals: dict[int, float] = Field(default_factory=lambda: {1: 0.6, 2: 0.3, 3: 0.1})
    """Weights of the number of goals that the user has in a conversation, 1 to 3."""
    seed_goals: float = Field(default=0, ge=0, le=1)
    """Share of the conversations with several goals that copy goals, calls and order from a seed with the same number of changes. 0: no goals
    are copied."""
    calls: dict[int, float] = Field(default_factory=dict)
    """Weights of the number of planned calls, 1 to 12, such as `{1: 1, 3: 2, 5: 1}`. Empty: the distribution of the seeds."""
    errors: float = Field(default=0.15, ge=0, le=1)
    """Share of conversations with a tool error from which the assistant recovers."""
    refusals: float = Field(default=0.1, ge=0, le=1)
    """Share of conversations in which the policy forbids a change that the user wants."""
    missing: float = Field(default=0.15, ge=0, le=1)
    """Share of conversations in which the user leaves out a detail and the assistant asks for it."""
    withdrawals: float = Field(default=0.05, ge=0, le=1)
    """Share of conversations in which the user withdraws a request before the change is made."""
    parallel: float = Field(default=0.2, ge=0, le=1)
    """Share of conversations with two look-ups in one turn."""
    difficulty: dict[Difficulty, float] = Field(default_factory=dict)
    """Weights of easy, medium and hard conversations. The difficulty follows from calls, goals and complications, so this setting changes their
    numbers too. Empty: no target."""

    @field_validator("goals", "calls", "difficulty")
    @classmethod
    def check_weights(cls, weights: dict[int, float]) -> dict[int, float]:
        if any(weight < 0 for weight in weights.values()) or (weights and not sum(weights.values())):
            raise ValueError("weights must be 0 or more, and at least one must be more than 0")
        return weights

    @field_validator("goals")
    @classmethod
    def check_goals(cls, weights: dict[int, float]) -> dict[int, float]:
        if not weights or not weights.keys() <= {1, 2, 3}:
            raise ValueError("give weights for 1, 2 or 3 goals, such as {1: 0.6, 2: 0.4}")
        return weights

    @field_validator("calls")
    @classmethod
    def check_calls(cls, weights: dict[int, float]) -> dict[int, float]:
        if not weights.keys() <= set(range(1, MOST_CALLS + 1)):
            raise ValueError(f"give weights for 1 to {MOST_CALLS} calls, such as {{1: 1, 3: 2}}")
        return weights
