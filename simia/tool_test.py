"""A test of one tool: a row of a pack's `tests.jsonl`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.task import Action


class Expectation(StrictModel):
    """What a test of a tool expects: a part of the result, changes of the state, or words of the error message."""

    outcome: Literal["success", "refusal"] = "success"
    """Whether the call succeeds."""
    result: Any = None
    """Part of the returned value. null: not compared."""
    error: str | None = None
    """Words of the error message. null: not compared."""
    changes: dict[str, Any] | None = None
    """Dotted path of the state → its new value. Exempt columns need not be named. null: not compared."""


class ToolTest(StrictModel):
    """One row of `tests.jsonl`: a call in a state, and its expected effect (ScaleEnv §3.2)."""

    name: str
    """Unique in the pack."""
    initial: dict[str, Any] = Field(default_factory=dict)
    """The state, in the form of a task's `initial`."""
    before: list[Action] = Field(default_factory=list)
    """Calls that are made first."""
    call: Action
    """The call under test."""
    expect: Expectation = Field(default_factory=Expectation)
    """The expected effect of the call."""
