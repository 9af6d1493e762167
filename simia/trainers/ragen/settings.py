"""What a tag of RAGEN's `custom_envs` says to us, and which task a seed is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.text_episode import plain_mapping
from simia.task import Task

ENV_TYPE = "simia"
"""Our name in RAGEN's registries: a tag's `env_type`."""


@dataclass
class SimiaEnvConfig:
    """`env_config` of a tag in RAGEN's `custom_envs`; every field has a default, for RAGEN makes it without any."""

    stage: dict[str, Any] = field(default_factory=dict)
    """A `EnvironmentConfig` as a mapping: pack, back end, models, judge."""
    train: str | None = "train"
    """The split of the training seeds; None: all tasks of the stage."""
    val: str | None = "test"
    """The split of the validation seeds."""
    store: str | None = None
    """A folder in which paid replies are kept, and found again when the run is started again."""
    at_once: int | None = None
    """Most episodes of the tag under way; the others wait for their turn. None: all of a step."""
    world_seconds: float = 1800.0
    """One answer of the environment, its judge's verdict with it; later the episode is aborted, and the others go on."""

    def __post_init__(self) -> None:
        self.stage = plain_mapping(self.stage)


def parse_stage(config: SimiaEnvConfig) -> EnvironmentConfig:
    return parse_config(EnvironmentConfig, config.stage, where="env_config.stage")


def choose_task(tasks: Sequence[Task], seed: int, mode: str = "train") -> Task:
    """The same for the same seed in any process. In training n seeds in a row, from a multiple of n on, are all n tasks, each time
    in another order. Else there is one order, so that any n seeds in a row are all n tasks: RAGEN validates from seed 123 on."""
    lap, place = divmod(seed, len(tasks))
    order = list(range(len(tasks)))
    random.Random(f"lap {lap}" if mode == "train" else "one order").shuffle(order)
    return tasks[order[place]]


@dataclass(frozen=True, slots=True)
class SeedLane:
    """A seat's place among a step's groups: RAGEN gives group g of `of` the seed `base + step * of + g`."""

    base: int = 0
    of: int = 1
    group: int = 0
    groups: int = 1
    """How many of them are its tag's, and which of these it is."""
    place: int = 0

    def number(self, seed: int) -> int:
        """The tag's own count of its groups, from `base` on and without a gap; with one tag it is the seed."""
        return self.base + (seed - self.group - self.base) // self.of * self.groups + self.place
