"""Episodes of one group that run in this process: what a lost one may do without moving the others' baseline.

verl's GRPO takes mean and deviation over the rows of one `uid`, masked or not. Its current trainer takes what it is given, so a
lost episode gives no row, and it fills the batch up with empty ones of another uid. Only when all of a group are lost must
somebody say so, by an error, for a group that has ended well and has no row stops the run. The older trainer wants a row of each: a lost
one has mask 0 and waits for its siblings, to take their mean, which leaves the mean where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def name_of(step: int | None, extra: Mapping[str, Any], otherwise: str) -> str:
    """What a group is called by those who draw for it. Steps and tasks, where they are known, are the same when a run is started
    again: its answers are found in the store. What is validated on is no part of what is trained on in the same step."""
    return otherwise if step is None else f"{'val-' if extra.get('validates') else ''}{step}/{extra['task']}"


@dataclass(slots=True)
class Group:
    members: int = 0
    left: int = 0
    rewards: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def mean(self) -> float:
        return sum(self.rewards) / len(self.rewards) if self.rewards else 0.0


class Groups:
    """verl starts all episodes of a group before any of them can end, so that each knows when it is the last."""

    def __init__(self) -> None:
        self._open: dict[str, Group] = {}

    def join(self, key: str) -> tuple[Group, int]:
        """The group, and which of its members this is."""
        group = self._open.setdefault(key, Group())
        group.members += 1
        return group, group.members - 1

    def leave(self, key: str, group: Group, reward: float | None) -> None:
        """Once a member, however it ended. The last one ends the group."""
        if reward is not None:
            group.rewards.append(reward)
        group.left += 1
        if group.left == group.members:
            self._open.pop(key, None)
            group.over.set()
