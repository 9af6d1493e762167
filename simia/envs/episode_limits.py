"""Limits at which an episode is truncated, or its calls are refused: the environment's, the pack's and the task's."""

from __future__ import annotations

from pydantic import Field

from simia.config import Config
from simia.task import CallLimits

NO_LIMITS = CallLimits()


class EpisodeLimits(Config):
    """Limits at which an episode is truncated. A truncated episode is still scored."""

    turns: int = Field(30, ge=1, description="Maximum number of messages of the agent.")
    errors: int = Field(8, ge=1, description="Maximum number of consecutive failed calls of the agent.")
    calls: int | None = Field(None, ge=1, description="Maximum number of calls of the agent. null: no limit.")
    calls_per_turn: int | None = Field(
        None,
        ge=1,
        description="Maximum number of calls of the agent between two messages of the user. Further calls are refused. null: no limit.",
    )
    calls_per_message: int | None = Field(
        None,
        ge=1,
        description="Maximum number of calls in one message of the agent. Further calls are refused. null: no limit. CodeGym uses 1 (B.4).",
    )


def combine_limits(limits: EpisodeLimits, *others: CallLimits) -> EpisodeLimits:
    """The lowest of the environment's limits and of those of a pack and a task."""
    if all(other == NO_LIMITS for other in others):
        return limits
    names = ("turns", "calls", "calls_per_turn", "calls_per_message")
    lowest = {
        name: min((value for source in (limits, *others) if (value := getattr(source, name)) is not None), default=None)
        for name in names
    }
    return limits.model_copy(update=lowest)
