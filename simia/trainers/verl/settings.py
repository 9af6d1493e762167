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
    """How an episode is played with the policy of verl."""

    turn_tokens: int | None = Field(None, ge=1, description="Most tokens of a message; a longer one ends the episode.")
    result_tokens: int | None = Field(None, ge=8, description="Most tokens of a tool's result; cut in the middle.")
    end_tokens: list[str] = Field([], description="Tokens that end the policy's turn; unset: the tokenizer's own.")
    at_once: int | None = operational(None, "Most episodes under way in a worker; unset: all.", ge=1)
    turn_seconds: float | None = operational(3600, "A message of the policy, queue included; later: aborted.", gt=0)
    episode_seconds: float | None = operational(None, "An episode with all its attempts; later: aborted.", gt=0)
    world_seconds: float = operational(1800, "One answer of the environment; later: aborted.", gt=0)
    resample: int = operational(1, "How often an aborted episode is replayed.", ge=0)
    lost_groups: int | None = operational(32, "Groups lost in a row that end the training; unset: none.", ge=1)


class DataSettings(Config):
    """Tasks as verl's data sets."""

    train: str | None = Field(None, description="The split to train on; unset: the stage's tasks.")
    val: str | None = Field(
        None, description="The split to validate on; unset: that of `val_environment`, or as for training."
    )


class VerlSettings(StageSettings):
    """The section `simia` of a configuration of verl."""

    play: PlaySettings = Field(default_factory=PlaySettings, description="How an episode is played.")
    calls: CallForm = Field(
        "template", description="How tools and calls are written: by the chat template, or in CodeGym's dialect."
    )
    data: DataSettings = Field(default_factory=DataSettings, description="Tasks as data sets.")
    allow_evaluation_tasks: bool = Field(False, description="Train on tasks that are meant for evaluation only.")
    store: str | None = operational(None, "Folder of paid replies; unset: beside the checkpoints.")
    episodes: KeptSettings | None = Field(
        default_factory=KeptSettings,
        json_schema_extra=OPERATIONAL,
        description="The run that keeps all episodes; null: none.",
    )
