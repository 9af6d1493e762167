"""The section `simia` of a verl configuration: the environment, how episodes are played, and the tasks to train on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from simia.config import OPERATIONAL, Config
from simia.trainers.kept_episodes import KeptSettings
from simia.trainers.tokens import CallForm
from simia.trainers.val_environment import StageSettings


def operational(default: Any, description: str, **bounds: Any) -> Any:
    """Make a field whose value may change when a run resumes."""
    return Field(default, json_schema_extra=OPERATIONAL, description=description, **bounds)


class PlaySettings(Config):
    """How an episode is played with verl's policy."""

    turn_tokens: int | None = Field(
        None,
        ge=1,
        description="Maximum number of tokens of a message of the policy. A longer message ends the episode. null: no limit.",
    )
    result_tokens: int | None = Field(
        None,
        ge=8,
        description="Maximum number of tokens of a tool result. A longer result is cut in the middle. null: no limit.",
    )
    end_tokens: list[str] = Field(
        [], description="Tokens that end a message of the policy. Empty: those of the tokenizer."
    )
    at_once: int | None = operational(None, "Maximum number of concurrent episodes in a worker. null: all.", ge=1)
    turn_seconds: float | None = operational(
        3600,
        "Maximum duration of one message of the policy, waiting time included, in seconds. After that, the episode is "
        "aborted. null: no limit.",
        gt=0,
    )
    episode_seconds: float | None = operational(
        None,
        "Maximum duration of an episode with all its attempts, in seconds. After that, the episode is aborted. null: no limit.",
        gt=0,
    )
    world_seconds: float = operational(
        1800, "Maximum duration of one answer of the environment, in seconds. After that, the episode is aborted.", gt=0
    )
    resample: int = operational(1, "Maximum number of times that an aborted episode is played again.", ge=0)
    lost_groups: int | None = operational(
        32, "End the training after this many consecutive groups without any reward. null: never.", ge=1
    )


class DataSettings(Config):
    """The tasks in verl's data sets."""

    train: str | None = Field(None, description="Split to train on. null: the tasks of `stage`.")
    val: str | None = Field(
        None, description="Split to validate on. null: the split of `val_environment`, or else the split for training."
    )


class VerlSettings(StageSettings):
    """The section `simia` of a verl configuration."""

    play: PlaySettings = Field(default_factory=PlaySettings, description="How an episode is played.")
    calls: CallForm = Field(
        "template",
        description="How tools and calls are written. template: by the chat template. codegym: in CodeGym's dialect.",
    )
    data: DataSettings = Field(default_factory=DataSettings, description="The tasks for training and validation.")
    allow_evaluation_tasks: bool = Field(
        False, description="Whether to allow training on tasks that are meant for evaluation only."
    )
    store: str | None = operational(None, "Folder of stored replies. null: a folder next to the checkpoints.")
    episodes: KeptSettings | None = Field(
        default_factory=KeptSettings,
        json_schema_extra=OPERATIONAL,
        description="The run that stores all episodes of the training. null: none.",
    )
