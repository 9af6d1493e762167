"""Settings of an environment with its models, for rollouts, trainers and `open_environment`."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from simia.config import OPERATIONAL, Config
from simia.envs.episode_limits import EpisodeLimits
from simia.envs.pack_patterns import expand_pack_patterns
from simia.envs.perturbation.settings import PerturbSettings
from simia.envs.rewards.judge import RewardJudgeSettings
from simia.envs.rewards.step_rewards import StepRewardSettings
from simia.envs.rewards.trace_and_state import TraceStateSettings
from simia.envs.users import UserSettings
from simia.llm.backends import LLMSettings
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import EngineLimits


class PackShare(Config):
    """One pack of several."""

    pack: str = Field(description="Pack by name or path, or the address of one on a server.")
    name: str | None = Field(
        None,
        pattern=r"^[\w.-]+$",
        description="Name in task ids and tables, so that one pack can be there twice; unset: the pack's.",
    )
    weight: float | None = Field(
        None, gt=0, description="Share of the tasks, relative to the other packs' weights; unset for all: every task."
    )
    split: str | None = Field(None, description="Only tasks of this split; unset: the environment's.")
    tags: list[str] | None = Field(None, description="Only tasks with all of these tags.")
    tasks: list[str] = Field(default_factory=list, description="Only these tasks.")
    limit: int | None = Field(None, ge=1, description="Only the first so many tasks.")


class DifficultyFilter(Config):
    """Keeps the tasks that one agent solves neither too often nor too rarely, as `simia pack difficulty` measured it."""

    agent: str = Field(description="Agent or model under whose name it was measured.")
    low: float = Field(0.0, ge=0, le=1, description="Smallest share of solved episodes.")
    high: float = Field(1.0, ge=0, le=1, description="Largest share of solved episodes.")


class EnvironmentConfig(Config):
    """A pack, the back end that opens it, and the models that play its tools and its user and judge its episodes."""

    pack: str = Field(
        "customer_service",
        description="Pack by name or path, or the address of an environment on a server, `https://HOST/PACK`.",
    )
    token_env: str | None = Field(
        None,
        json_schema_extra=OPERATIONAL,
        description="Where packs are addresses: the environment variable that holds the servers' token.",
    )
    packs: list[PackShare] | None = Field(
        None,
        description="Several packs, each by name, by a pattern such as `gyms/*`, or with a weight, in place of `pack`.",
    )
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
    difficulty: DifficultyFilter | None = Field(None, description="Only tasks of this measured difficulty.")
    seed: int = Field(0, description="Seed of the worlds; episodes of one task share it.")
    episode: EpisodeLimits = Field(default_factory=EpisodeLimits, description="When an episode is cut.")
    perturb: PerturbSettings | None = Field(
        None, description="Events that disturb the tools and the user of an episode; unset: none."
    )
    llm: LLMSettings = Field(
        default_factory=EmbeddedSettings, description="The model of every role that names none; a rollout's agent."
    )
    simulator: LLMSettings | None = Field(None, description="The model that plays the tools; unset: `llm`.")
    player: LLMSettings | None = Field(None, description="The model that plays the user; unset: the simulator's.")
    judge: LLMSettings | None = Field(None, description="The model that judges; unset: the simulator's.")
    reward: Literal["auto", "rules", "oracle", "both", "trace_state", "function"] = Field(
        "auto",
        description="rules: the task's rules; oracle: a model judges; auto: a model where the tools are simulated; "
        "both: the rules, with the model's verdict as a part; trace_state: EnvFactory's reward, by calls and state; function: `reward_function` alone.",
    )
    trace_state: TraceStateSettings = Field(
        default_factory=TraceStateSettings, description="Weights of the reward `trace_state`."
    )
    reward_function: str | None = Field(
        None, description="Your own Python function, `FILE.py:NAME` or `MODULE:NAME`, that makes the final reward."
    )
    step_rewards: StepRewardSettings | None = Field(
        None, description="Rewards of single turns, added in training; unset: the reward comes with the end."
    )
    user_settings: UserSettings = Field(
        default_factory=UserSettings, description="Prompting and sampling of the model that plays the user."
    )
    oracle: RewardJudgeSettings = Field(
        default_factory=RewardJudgeSettings, description="Prompting and sampling of the model that judges."
    )
    limits: EngineLimits = Field(
        default_factory=EngineLimits,
        json_schema_extra=OPERATIONAL,
        description="Pace of each model, and one budget for all.",
    )

    @model_validator(mode="before")
    @classmethod
    def read_pack_names(cls, data: Any) -> Any:
        """Read a name in `packs` as a pack without a weight, and a pattern such as `gyms/*` as all packs that match."""
        if isinstance(data, dict) and isinstance(data.get("packs"), list):
            data = {**data, "packs": expand_pack_patterns(data["packs"])}
        return data

    def with_split(self, split: str | None) -> Self:
        """Return the config limited to one split in every pack; with None, the config itself."""
        if split is None:
            return self
        packs = self.packs and [share.model_copy(update={"split": None}) for share in self.packs]
        return self.model_copy(update={"split": split, "packs": packs})

    @property
    def agent_kind(self) -> str | None:
        """The kind of the agent; None where the caller brings its own."""
        return None
