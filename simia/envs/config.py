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
    """One of several packs."""

    pack: str = Field(description="Pack by name or path, or the URL of an environment on a server.")
    name: str | None = Field(
        None,
        pattern=r"^[\w.-]+$",
        description="Name of the pack in task ids and tables, so that the same pack can occur twice. null: the pack's own name.",
    )
    weight: float | None = Field(
        None,
        gt=0,
        description="Share of the tasks, relative to the weights of the other packs. null for all packs: every task.",
    )
    split: str | None = Field(None, description="Only tasks of this split. null: the `split` of the environment.")
    tags: list[str] | None = Field(None, description="Only tasks with all of these tags. null: all tasks.")
    tasks: list[str] = Field(default_factory=list, description="Only these tasks, by id. Empty: all tasks.")
    limit: int | None = Field(None, ge=1, description="Maximum number of tasks, from the first one on. null: no limit.")


class DifficultyFilter(Config):
    """Keeps tasks by the share of episodes that an agent solved, as `simia pack difficulty` measured it."""

    agent: str = Field(description="Name of the agent or model whose episodes were measured.")
    low: float = Field(0.0, ge=0, le=1, description="Minimum share of solved episodes (0 to 1).")
    high: float = Field(1.0, ge=0, le=1, description="Maximum share of solved episodes (0 to 1).")


class EnvironmentConfig(Config):
    """An environment: a pack, its back end, and the models that simulate its tools, play its user and judge its episodes."""

    pack: str = Field(
        "customer_service",
        description="Pack by name or path, or the URL of an environment on a server, `https://HOST/PACK`.",
    )
    token_env: str | None = Field(
        None,
        json_schema_extra=OPERATIONAL,
        description="For packs on a server: name of the environment variable that holds the server's token. null: no token.",
    )
    packs: list[PackShare] | None = Field(
        None,
        description="Several packs in place of `pack`. Each is a name, a pattern such as `gyms/*`, or a section with a weight.",
    )
    backend: str | dict[str, str] = Field(
        "executable",
        description="executable, simulated, shadow or an installed back end; or a mapping of each tool to executable or simulated "
        "(`*`: all other tools).",
    )
    backend_settings: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the back end: ExecutableSettings, SimulatedSettings, or both."
    )
    user: str | None = Field(
        None,
        description="User simulator: none, scripted or llm. null: that of the pack, but scripted if the agent is the reference solution.",
    )
    split: str | None = Field(None, description="Only tasks of this split. null: all splits.")
    tasks: list[str] = Field(default_factory=list, description="Only these tasks, by id. Empty: all tasks.")
    limit: int | None = Field(None, ge=1, description="Maximum number of tasks, from the first one on. null: no limit.")
    difficulty: DifficultyFilter | None = Field(
        None, description="Only tasks with this measured difficulty. null: all tasks."
    )
    seed: int = Field(0, description="Random seed of the environment. Episodes of the same task share it.")
    episode: EpisodeLimits = Field(
        default_factory=EpisodeLimits, description="Limits at which an episode is truncated."
    )
    perturb: PerturbSettings | None = Field(
        None, description="Events that disturb the tools and the user of an episode. null: none."
    )
    llm: LLMSettings = Field(
        default_factory=EmbeddedSettings,
        description="The model of every role that has no model of its own. In a rollout, it is the agent.",
    )
    simulator: LLMSettings | None = Field(None, description="The model that simulates the tools. null: `llm`.")
    player: LLMSettings | None = Field(
        None, description="The model that plays the user. null: the model of `simulator`."
    )
    judge: LLMSettings | None = Field(
        None, description="The model that judges the episodes. null: the model of `simulator`."
    )
    reward: Literal["auto", "rules", "oracle", "both", "trace_state", "function"] = Field(
        "auto",
        description="rules: the task's rules. oracle: a judge model. auto: a judge model if a model simulates the tools (not with "
        "shadow), else the rules. both: the rules, and the judge's verdict as an additional part without effect on the "
        "value. trace_state: EnvFactory's reward from calls and state. function: only `reward_function`.",
    )
    trace_state: TraceStateSettings = Field(
        default_factory=TraceStateSettings, description="Weights of the reward `trace_state`."
    )
    reward_function: str | None = Field(
        None,
        description="Your own Python function that computes the final reward, as `FILE.py:NAME` or `MODULE:NAME`. null: none.",
    )
    step_rewards: StepRewardSettings | None = Field(
        None,
        description="Rewards of single turns, which training adds to the final reward. null: only the final reward.",
    )
    user_settings: UserSettings = Field(
        default_factory=UserSettings, description="Prompt and sampling settings of the model that plays the user."
    )
    oracle: RewardJudgeSettings = Field(
        default_factory=RewardJudgeSettings, description="Prompt and sampling settings of the model that judges."
    )
    limits: EngineLimits = Field(
        default_factory=EngineLimits,
        json_schema_extra=OPERATIONAL,
        description="Concurrency and retries for each model, and one budget for all models together.",
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
