"""Settings: of an environment with its models (a stage), and of a rollout, which is a stage with an agent on it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from simia.config import OPERATIONAL, Config
from simia.envs.environment import EpisodeLimits
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.envs.rewards.judge import OracleSettings
from simia.envs.users import UserSettings
from simia.llm.backends import LLMSettings
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import Limits

Kind = Literal["reference", "nothing", "canned", "echo", "policy", "random", "llm"]


class StageConfig(Config):
    """An environment with its models: what a rollout and every trainer open."""

    pack: str = Field("customer_service", description="Pack by name or path.")
    backend: str | dict[str, str] = Field(
        "executable", description="executable, simulated, shadow, or one of these for each tool (`*`: all others)."
    )
    backend_settings: dict[str, Any] = Field(default_factory=dict, description="Settings of the back end.")
    user: str | None = Field(
        None, description="none, scripted or llm; unset: as the pack says, scripted for the reference."
    )
    split: str | None = Field(None, description="Only tasks of this split.")
    tasks: list[str] = Field(default_factory=list, description="Only these tasks.")
    limit: int | None = Field(None, ge=1, description="Only the first so many tasks.")
    seed: int = Field(0, description="Seed of the worlds; episodes of one task share it.")
    episode: EpisodeLimits = Field(default_factory=EpisodeLimits, description="When an episode is cut.")
    llm: LLMSettings = Field(
        default_factory=EmbeddedSettings, description="The model of every role that names none; a rollout's agent."
    )
    simulator: LLMSettings | None = Field(None, description="The model that plays the tools; unset: `llm`.")
    player: LLMSettings | None = Field(None, description="The model that plays the user; unset: the simulator's.")
    judge: LLMSettings | None = Field(None, description="The model that judges; unset: the simulator's.")
    reward: Literal["auto", "rules", "oracle"] = Field(
        "auto", description="Who judges: the task's rules or a model; auto: a model where the tools are simulated."
    )
    user_settings: UserSettings = Field(
        default_factory=UserSettings, description="How the model that plays the user is asked."
    )
    oracle: OracleSettings = Field(default_factory=OracleSettings, description="How the judge is asked.")
    limits: Limits = Field(
        default_factory=Limits, json_schema_extra=OPERATIONAL, description="Pace of each model, and one budget for all."
    )


class RolloutConfig(StageConfig):
    """`simia rollout`: which pack, which agent, how often."""

    kind: Literal["rollout"] = "rollout"
    """Marks the config of a rollout."""
    agent: Kind = Field("llm", description="Who plays the agent.")
    group: int = Field(1, ge=1, description="Episodes of each task.")
    accept: float = Field(
        1.0, description="Episodes with at least this reward are accepted, for export as training data."
    )
    sampling: LLMAgentSettings = Field(default_factory=LLMAgentSettings, description="How the agent's model is asked.")
    concurrency: int = Field(64, ge=1, json_schema_extra=OPERATIONAL, description="Episodes at once.")
