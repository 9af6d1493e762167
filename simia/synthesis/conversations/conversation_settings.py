"""Settings of QueryGen (EnvFactory §3.4)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simia.config import Config
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.synthesis.graph.sampling import ChainSampling

Refinement = Literal["implicit_reference", "action_compression", "ambiguity", "goal_expansion"]
REFINEMENTS: tuple[Refinement, ...] = ("implicit_reference", "action_compression", "ambiguity", "goal_expansion")


class PlanSettings(Config):
    """Conversations of each composition of environments."""

    together: int = Field(default=3, ge=1, le=3)
    """Most environments that are composed into one pack (EnvFactory §3.3.2)."""
    number: int = Field(default=12, ge=0)
    """Conversations of each composition. 0: none."""
    turns: int = Field(default=3, ge=1)
    """Most turns of a conversation; a longer chain is cut."""
    tools: int = Field(default=5, ge=1)
    """Most sampled tools of a turn; the number is random, from 1 on (EnvFactory §3.4)."""
    rows: int = Field(default=5, ge=1)
    """About how many rows the tables of the initial state have."""
    sampling: ChainSampling = Field(default_factory=ChainSampling)
    """How chains of tools are sampled."""
    topology: bool = True
    """Whether chains are sampled by the topology of the graph. False walks at random, to measure what the topology is worth."""


class QuerySettings(Config):
    """What is done to the queries."""

    refinements: list[Refinement] = Field(default_factory=lambda: list(REFINEMENTS))
    """The calibrated refinements, in this order. `implicit_reference`: references replace identifiers, and facts that the agent can look up
    are left out. `action_compression`: several steps become one short request. `ambiguity`: vaguer words, of which only one meaning fits the
    data. `goal_expansion`: a consequence or condition of the goal is implied. Empty: queries stay as first written."""


class SolvingSettings(Config):
    """How the turns are solved."""

    solvers: int = Field(default=4, ge=1)
    """Agents that play each turn."""
    steps: int = Field(default=15, ge=1)
    """Messages of an agent in a turn."""
    agent: LLMAgentSettings = Field(default_factory=lambda: LLMAgentSettings(calls="hermes"))
    """Prompting and sampling of the model of the role `solver`."""
    selector: bool = True
    """Whether a model selects the best solution or none. False: the final state that most solvers reach is taken as right, and calls of
    writing tools as essential; in a turn that changes nothing, all calls are essential."""
