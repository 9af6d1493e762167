"""The episodes that a training plays, as a dry run counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simia.envs.config import EnvironmentConfig
from simia.pack import Pack
from simia.task import Task


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """Episodes of one environment. `what` is training or validation, with a tag if the config has several environments."""

    what: str
    stage: EnvironmentConfig
    pack: Pack
    tasks: Sequence[Task]
    episodes: int
    limit: tuple[str, int] | None = None
    """The trainer's setting that bounds the prompt, and its tokens."""
    rest: tuple[str, int] | None = None
    """The trainer's setting that bounds the tokens after the prompt, and its value, if the trainer has no limit for the prompt."""
    dialogue: bool = True
    """Whether the user's answers reach the policy."""
    place: str = "stage"
    """The section of the config that defines this environment."""


def count_validations(steps: int, every: int, *, before: bool) -> int:
    """Count the validations of verl's trainers: one at first if `before`; if `every` > 0, one each `every` steps and one at the end."""
    return int(before) + (-(-steps // every) if every > 0 else 0)
