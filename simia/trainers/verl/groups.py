"""Episodes of one group that run in this process: which rows of it verl may be given.

verl takes mean and deviation over the rows of one `uid`, whatever their mask, so an episode without a reward gives no row: its group
is the others, and verl fills the batch up with empty rows of another uid. Two things verl does not do. Of one row alone its
estimators that compare within a group take the bare reward (mean 0, deviation 1); there is nothing to compare, so it is left out too.
And a group that has ended well and has no row is to be reported by an error, once, for only then verl can replace it.

verl's own figures are those of the rows that it was given, so what was lost is written down here, a line a group.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALONE = ("gae", "reinforce_plus_plus", "remax")  # estimators of verl's whose advantages need no sibling


def name_group(step: int | None, extra: Mapping[str, Any], otherwise: str) -> str:
    """What a group is called by those who draw for it. Steps and tasks, where they are known, are the same when a run is started
    again: its answers are found in the store. What is validated on is no part of what is trained on in the same step."""
    return otherwise if step is None else f"{'val-' if extra.get('validates') else ''}{step}/{extra['task']}"


@dataclass(slots=True)
class EpisodeGroup:
    trains: bool = True
    """False: its episodes are validated on, each for itself."""
    members: int = 0
    rewards: list[float | None] = field(default_factory=list)
    """Of those that have ended, in that order; None: nothing of it may be trained."""
    ends: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    told: bool = False
    """Whether one of it has said that it is lost."""

    @property
    def known(self) -> list[float]:
        return [reward for reward in self.rewards if reward is not None]

    def usable(self, estimator: str) -> bool:
        """Whether its rewards are something to learn from, for one of verl's estimators of the advantage."""
        compared = self.trains and self.members > 1 and estimator not in ALONE
        return len(self.known) >= (2 if compared else 1)


class OpenGroups:
    """verl starts all episodes of a group before any of them can end, so that each knows when it is the last."""

    def __init__(self) -> None:
        self._open: dict[str, EpisodeGroup] = {}
        self.lost = 0
        """Groups to train on that ended without any reward, one after the other."""

    def join(self, key: str, *, trains: bool = True) -> EpisodeGroup:
        group = self._open.setdefault(key, EpisodeGroup(trains))
        group.members += 1
        return group

    def leave(self, key: str, group: EpisodeGroup, reward: float | None, end: str) -> bool:
        """Once a member, however it ended. Whether it was the last one, which ends the group."""
        group.rewards.append(reward)
        group.ends.append(end)
        if len(group.rewards) < group.members:
            return False
        self._open.pop(key, None)
        if group.trains:
            self.lost = 0 if group.known else self.lost + 1
        group.over.set()
        return True


def append_note(folder: Path, name: str, step: Any, task: str, group: EpisodeGroup) -> None:
    """A line about a group that has ended, in a file of this process."""
    line = {"group": name, "step": step, "task": task, "trains": group.trains}
    line |= {"ends": group.ends, "rewards": group.rewards}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{platform.node()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
