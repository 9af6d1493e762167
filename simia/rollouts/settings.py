"""Settings of a rollout: an environment and an agent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simia.config import OPERATIONAL
from simia.envs.config import EnvironmentConfig
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.jobs.nodes.settings import ClusterSettings
from simia.quality.teacher_filters import TeacherFilters

AgentKind = Literal["reference", "following", "repeating", "nothing", "canned", "echo", "policy", "random", "llm"]


class RolloutSettings(EnvironmentConfig):
    """Settings that rollouts and evaluations have in common: which packs, which agent, how many episodes."""

    agent: AgentKind = Field(
        "llm",
        description="The agent: a model (llm), the reference solution, the same with the ids that results bring (following) or with repeated calls (repeating), or a baseline.",
    )
    group: int = Field(1, ge=1, description="Episodes of each task.")
    accept: float = Field(
        1.0, description="Episodes with at least this reward are accepted, for export as training data."
    )
    teacher: TeacherFilters | None = Field(
        None,
        json_schema_extra=OPERATIONAL,
        description="The agent is a teacher: `simia export` writes the episodes that these filters keep. Unset: those that `accept` keeps.",
    )
    sampling: LLMAgentSettings = Field(
        default_factory=LLMAgentSettings, description="Prompting and sampling of the agent's model."
    )
    engine: ClusterSettings = Field(
        default_factory=ClusterSettings,
        json_schema_extra=OPERATIONAL,
        description="Where the run works: in this process, or on the nodes of a Ray cluster.",
    )
    concurrency: int = Field(64, ge=1, json_schema_extra=OPERATIONAL, description="Episodes at once.")

    @property
    def agent_kind(self) -> str | None:
        return self.agent


class RolloutConfig(RolloutSettings):
    """`simia rollout`: which pack, which agent, how many episodes."""

    kind: Literal["rollout"] = Field("rollout", description="Marks the config of a rollout.")
    suite: str | None = Field(None, description="The suite that `simia eval` plays here; unset: no evaluation.")
