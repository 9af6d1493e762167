"""Settings of QueryGen (EnvFactory §3.4)."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from pydantic import Field, model_validator

from simia.config import Config
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.synthesis.graph.sampling import ChainSampling

Refinement = Literal["implicit_reference", "action_compression", "ambiguity", "goal_expansion"]
REFINEMENTS: tuple[Refinement, ...] = ("implicit_reference", "action_compression", "ambiguity", "goal_expansion")


class PlanSettings(Config):
    """Plans of the conversations of each composition of environments."""

    together: int = Field(default=3, ge=1, le=3)
    """Maximum number of environments that are composed into one pack (EnvFactory §3.3.2)."""
    number: int = Field(default=12, ge=0)
    """Number of conversations of each composition. 0: none."""
    turns: int = Field(default=3, ge=1)
    """Maximum number of turns of a conversation. A longer chain is cut."""
    tools: int = Field(default=5, ge=1)
    """Maximum number of sampled tools of a turn. The number is random, from 1 to this (EnvFactory §3.4)."""
    rows: int = Field(default=5, ge=1)
    """Approximate number of rows of a table in the initial state."""
    sampling: ChainSampling = Field(default_factory=ChainSampling)
    """How chains of tools are sampled."""
    topology: bool = True
    """Whether chains follow the topology of the graph. false: random walks, to measure the effect of the topology."""


class QuerySettings(Config):
    """Refinements of the user's queries."""

    refinements: list[Refinement] = Field(default_factory=lambda: list(REFINEMENTS))
    """Refinements to apply, in this order. `implicit_reference`: replace identifiers by descriptions, and leave out facts that the agent can
    look up. `action_compression`: turn several steps into one short request. `ambiguity`: use vaguer words that still fit only one object of
    the data. `goal_expansion`: only imply a consequence or condition of the goal. Empty: queries stay as first written."""


class SolvingSettings(Config):
    """How the turns are solved."""

    solvers: int = Field(default=4, ge=1)
    """Number of agents that play each turn."""
    steps: int = Field(default=15, ge=1)
    """Maximum number of messages of an agent in a turn."""
    agent: LLMAgentSettings = Field(default_factory=lambda: LLMAgentSettings(calls="hermes"))
    """Prompt and sampling settings of the model of the role `solver`."""

    @model_validator(mode="before")
    @classmethod
    def drop_selector(cls, data: Any) -> Any:
        """Drop the retired setting `selector`, with a warning for `false`: a model always selected the solution."""
        if not isinstance(data, dict) or "selector" not in data:
            return data
        if not data["selector"]:
            warnings.warn("solving.selector had no effect and is ignored; remove it", FutureWarning, 2)
        return {name: value for name, value in data.items() if name != "selector"}
