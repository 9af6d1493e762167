"""Settings of perturbations, and the schedule of an episode that follows from them."""

from __future__ import annotations

import random
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from simia.config import Config

ToolEvent = Literal[
    "transient_error",
    "rate_limit",
    "slow_result",
    "partial_result",
    "renamed_field",
    "missing_field",
    "stale_data",
    "changed_policy",
    "ambiguous_match",
    "injected_instruction",
]
UserEvent = Literal["change_of_mind", "wrong_id", "impatience", "off_topic"]
EventKind = Literal[ToolEvent, UserEvent]
TOOL_EVENTS: tuple[EventKind, ...] = get_args(ToolEvent)
USER_EVENTS: tuple[EventKind, ...] = get_args(UserEvent)
READ_ONLY = ("partial_result", "stale_data", "ambiguous_match")  # events of look-ups
ON_SCREENS = (
    "stale_data",
    "injected_instruction",
)  # those that a screen of text can show: it has no errors and no fields
SAMPLING = ("kinds", "events", "within", "share")  # settings that an explicit schedule replaces


class PlannedEvent(Config):
    """One planned event. It happens at the first call, or message of the user, with number `at` or later to which it applies."""

    kind: EventKind = Field(description="Kind of the event. docs/perturb.md describes all kinds.")
    at: int = Field(1, ge=1, description="Number of the agent's call, or of the user's message, counted from 1.")
    tool: str | None = Field(
        None, description="Only calls of this tool. null: calls of any tool. Not for events of the user."
    )

    @model_validator(mode="after")
    def check_tool(self) -> Self:
        """Refuse a tool in an event of the user, since these are messages."""
        if self.tool is not None and self.kind in USER_EVENTS:
            raise ValueError(f"{self.kind} disturbs a message of the user, not a call of {self.tool}: leave out tool")
        return self


class PerturbSettings(Config):
    """Events that disturb an episode: errors, wrong and late results of tools, and unexpected messages of the user."""

    kinds: list[EventKind] = Field(
        default_factory=lambda: list(TOOL_EVENTS),
        min_length=1,
        description="Kinds to sample from. A kind that is listed twice is twice as likely. Not set: all kinds that disturb tools.",
    )
    events: int = Field(1, ge=1, le=20, description="Number of events planned for an episode.")
    within: int = Field(
        3, ge=1, description="Plan events only for the first calls, or messages of the user, up to this number."
    )
    share: float = Field(1.0, ge=0, le=1, description="Share of the tasks whose episodes are disturbed (0 to 1).")
    seed: int = Field(0, description="Random seed of the schedule, together with the task and the environment's seed.")
    schedule: list[PlannedEvent] | None = Field(
        None,
        description="The events of every episode, in place of `kinds`, `events`, `within` and `share`. Empty: no events. null: events "
        "are sampled.",
    )

    @model_validator(mode="after")
    def check_schedule(self) -> Self:
        """Refuse settings of sampled events beside a schedule, which would ignore them."""
        if self.schedule is not None:
            fields = type(self).model_fields
            beside = [
                name for name in SAMPLING if getattr(self, name) != fields[name].get_default(call_default_factory=True)
            ]
            if beside:
                raise ValueError(
                    f"schedule lists all events, so {' and '.join(beside)} would have no effect: leave out one of them"
                )
        return self


def plan_events(settings: PerturbSettings, task_id: str, seed: int) -> list[PlannedEvent]:
    """Return the schedule of an episode. It depends only on the settings, the task and the environment's seed.

    Kinds are sampled without repetition until all were used.
    """
    if settings.schedule is not None:
        return list(settings.schedule)
    source = random.Random(f"{settings.seed}/{task_id}/{seed}")
    if source.random() >= settings.share:
        return []
    found: list[PlannedEvent] = []
    left: list[EventKind] = []
    for _ in range(settings.events):
        left = left or source.sample(settings.kinds, len(settings.kinds))
        found.append(PlannedEvent(kind=left.pop(), at=source.randint(1, settings.within)))
    return found
