"""Scenarios of an environment: a task in an initial state, a checklist with a check for each item, a solution, and the user."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.task import Action, WithheldFact

Mode = Literal["conversation", "non_conversation"]


class ScenarioState(StrictModel):
    """An initial state of an environment (EnvScaler §3.3)."""

    environment: str
    """Key of the environment."""
    state: dict[str, Any]
    """The state, which the environment's schema allows."""


class ChecklistItem(StrictModel):
    """One verifiable condition of a task, with its check."""

    item: str
    """The condition in words."""
    code: str
    """Source of `check(final, initial) -> bool`."""


class DroppedItem(StrictModel):
    """A condition whose check was not kept."""

    item: str
    """The condition in words."""
    reason: str
    """A `Reason`."""
    detail: str = ""
    """One line for people."""


class Question(WithheldFact):
    """A fact that the user discloses only when asked, with a question that asks for it."""

    question: str
    """The agent's question in the reference conversation."""


class ScenarioUser(StrictModel):
    """The user of a conversation."""

    profile: str
    """Who the user is and how they write."""
    opening: str
    """The user's first message."""
    instruction: str
    """What the user wants, for the user simulator."""
    knows: list[str] = Field(default_factory=list)
    """Facts that the user may disclose at any time."""
    withheld: list[Question] = Field(default_factory=list)
    """Facts that the user discloses only when asked."""


class Scenario(StrictModel):
    """A task in an initial state (EnvScaler §3.3)."""

    environment: str
    """Key of the environment."""
    state: str
    """Key of the initial state."""
    task: str
    """The whole task in the user's words: the first message without a conversation."""
    checklist: list[ChecklistItem]
    """Conditions with checks that are false at the start and true after the solution."""
    guard: str | None = None
    """Source of a check that no more rows change than in the solution; None: the solution was not executed."""
    dropped: list[DroppedItem] = Field(default_factory=list)
    """Conditions whose checks were not kept."""
    solution: list[Action]
    """The reference solution."""
    user: ScenarioUser | None = None
    """The user of a conversation; None: there is no conversation."""
