"""Settings of a rollout: an environment and an agent."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from simia.config import OPERATIONAL
from simia.envs.config import EnvironmentConfig
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.jobs.nodes.settings import ClusterSettings
from simia.quality.teacher_filters import TeacherFilters

AgentKind = Literal[
    "reference", "following", "repeating", "nothing", "canned", "echo", "policy", "random", "llm", "function"
]


class RolloutSettings(EnvironmentConfig):
    """Settings of rollouts and evaluations: packs, agent and number of episodes."""

    agent: AgentKind = Field(
        "llm",
        description="The agent. llm: the model of `llm`. reference: the reference solution. following: the reference solution with "
        "the ids that the results contain. repeating: the reference solution with repeated calls. function: that of `agent_function`. Others: baselines.",
    )
    agent_function: str | None = Field(
        None,
        description="With `agent: function`: your own function that returns the agent's next message, as FILE.py:FUNCTION or "
        "MODULE:FUNCTION. It runs in simia's process.",
    )
    group: int = Field(1, ge=1, description="Number of episodes of each task.")
    accept: float = Field(1.0, description="Minimum reward of an episode that is accepted for export as training data.")
    teacher: TeacherFilters | None = Field(
        None,
        json_schema_extra=OPERATIONAL,
        description="Filters for the episodes of a teacher model: `simia export` writes only those that pass. null: only `accept` applies.",
    )
    sampling: LLMAgentSettings = Field(
        default_factory=LLMAgentSettings, description="Prompt and sampling settings of the agent's model."
    )
    engine: ClusterSettings = Field(
        default_factory=ClusterSettings,
        json_schema_extra=OPERATIONAL,
        description="Where the run executes: in this process, or on the nodes of a Ray cluster.",
    )
    concurrency: int = Field(
        64,
        ge=1,
        json_schema_extra=OPERATIONAL,
        description="Maximum number of concurrent episodes. With a local model, at most as many as its `slots` hold.",
    )

    @model_validator(mode="after")
    def require_agent_function(self) -> Self:
        """Refuse `agent: function` without a function, and a function without `agent: function`."""
        if (self.agent == "function") != (self.agent_function is not None):
            raise ValueError("set agent: function and agent_function: FILE.py:FUNCTION together, or neither")
        return self

    @property
    def agent_name(self) -> str:
        """The agent's kind, or the name of its function."""
        return self.agent_function or self.agent

    @property
    def agent_kind(self) -> str | None:
        return self.agent


class RolloutConfig(RolloutSettings):
    """Settings of `simia rollout`: packs, agent and number of episodes."""

    kind: Literal["rollout"] = Field("rollout", description="Marks the config as that of a rollout.")
    suite: str | None = Field(None, description="Name of the suite that `simia eval` plays. null: not an evaluation.")
