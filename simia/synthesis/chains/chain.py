"""A chain of tools as executable code, with the initial state in which it executes, and the task that is made from it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from simia.reward_spec import Match, StrictModel
from simia.synthesis.scenarios.scenario import ScenarioUser
from simia.task import Action, Goal


class Chain(StrictModel):
    """A reference path through the tools that was executed (ScaleEnv §4.2.1)."""

    environment: str
    """Key of the environment."""
    tools: list[str]
    """The sampled tools in order; the code calls each of them at least once."""
    code: str
    """Source of `chain(call)`, where `call(name, **arguments)` is a real tool call that returns the result's data."""
    known: dict[str, Any] = Field(default_factory=dict)
    """What the user knows, by name: the values that the code uses and that no earlier result gives."""
    state: dict[str, Any]
    """The initial state, distractors included."""
    calls: list[Action]
    """The calls as they were executed, with literal arguments."""
    results: list[str] = Field(default_factory=list)
    """What each call returned, shortened."""


class Expansion(StrictModel):
    """A chain in the state that was refined until all tools around it execute (ScaleEnv §4.2.2)."""

    chain: Chain
    """The chain, replayed on the refined state: calls and results are those of the replay."""
    visible: list[str]
    """Tools that the agent sees, those of the subgraph H, in the order of the environment."""
    complexity: float
    """c(H) = (nodes + 0.5 · edges) / 50."""
    chains: int = 1
    """Number of chains whose subgraphs form H."""


class ChainTask(StrictModel):
    """A task that is grounded in an executed chain."""

    chain: Chain
    """The reference path and its state."""
    visible: list[str] | None = None
    """Tools that the agent sees; None: all."""
    task: str = ""
    """The whole task in the user's words: the first message without a conversation. Empty if there are goals."""
    user: ScenarioUser | None = None
    """The user of a conversation."""
    goals: list[Goal] = Field(default_factory=list)
    """The turns of a task over several turns, with their essential calls."""
    policies: dict[str, Match] = Field(default_factory=dict)
    """Dotted path of the state → how its values are compared."""
