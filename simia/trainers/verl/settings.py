"""The section `simia` of a configuration of verl: the environment, how episodes are played, and the tasks to train on."""

from __future__ import annotations

from pydantic import Field

from simia.config import OPERATIONAL, Config
from simia.envs.config import EnvironmentConfig


class PlaySettings(Config):
    """How an episode is played with the policy of verl."""

    turn_tokens: int | None = Field(
        None, ge=1, description="Most tokens of one message of the policy; one that is longer ends the episode."
    )
    result_tokens: int | None = Field(
        None,
        ge=8,
        description="Most tokens of a tool's result as the policy sees it; longer ones are cut in the middle.",
    )
    end_tokens: list[str] = Field(
        default_factory=list, description="Tokens that end the policy's turn; unset: the tokenizer's own."
    )
    at_once: int | None = Field(
        None, ge=1, json_schema_extra=OPERATIONAL, description="Most episodes under way in a worker; unset: all."
    )
    turn_seconds: float | None = Field(
        3600, gt=0, json_schema_extra=OPERATIONAL, description="A message of the policy, queue and all; later: aborted."
    )
    episode_seconds: float | None = Field(
        None, gt=0, json_schema_extra=OPERATIONAL, description="An episode with all its attempts; later: aborted."
    )
    world_seconds: float = Field(
        1800, gt=0, json_schema_extra=OPERATIONAL, description="One answer of the environment; later: aborted."
    )
    resample: int = Field(
        1, ge=0, json_schema_extra=OPERATIONAL, description="How often an aborted episode is replayed."
    )
    lost_groups: int | None = Field(
        32,
        ge=1,
        json_schema_extra=OPERATIONAL,
        description="Groups lost in whole, one after the other in a worker, that end the training; unset: it goes on.",
    )


class DataSettings(Config):
    """Tasks as verl's data sets."""

    train: str | None = Field(None, description="The split to train on; unset: the stage's tasks.")
    val: str | None = Field(None, description="The split to validate on; unset: as for training.")


class VerlSettings(Config):
    """The section `simia` of a configuration of verl."""

    stage: EnvironmentConfig = Field(description="The environment: a pack with its back end, models and judge.")
    play: PlaySettings = Field(default_factory=PlaySettings, description="How an episode is played.")
    data: DataSettings = Field(default_factory=DataSettings, description="Tasks as data sets.")
    store: str | None = Field(
        None, json_schema_extra=OPERATIONAL, description="Folder of paid replies; unset: beside the checkpoints."
    )
