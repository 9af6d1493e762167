"""State that the episodes of one verl worker share: the open environment, places for episodes, and groups.

verl makes an agent loop per sample, so the environment cannot be the loop's. It is opened once in a process, belongs to the event loop
that opened it, and is closed with the process (whose children die with it) or by `close_all`.

verl takes mean and deviation over the rows of one `uid`, whatever their mask, so an episode without a reward gives no row: its group is
the others, and verl fills the batch with empty rows of another uid. Two cases need care. For a single row, estimators that compare
within a group use the bare reward (mean 0, deviation 1), so a single row is left out too. A group that ended without a row must raise
an error once, since only then can verl replace it. verl's metrics cover only the rows that it received, so each group is also recorded
in a line of a file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.trainers.verl.settings import VerlSettings

log = logging.getLogger(__name__)
ALONE = ("gae", "reinforce_plus_plus", "remax")  # verl's estimators of the advantage that do not compare within a group
Loop = asyncio.AbstractEventLoop
_opened: WeakKeyDictionary[Loop, dict[str, asyncio.Task[Environment]]] = WeakKeyDictionary()
_places: WeakKeyDictionary[Loop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()


async def get_environment(settings: VerlSettings) -> Environment:
    """Return the process's environment of these settings; the first call opens it. Raises `UserError`."""
    loop = asyncio.get_running_loop()
    mine = _opened.setdefault(loop, {})
    key = settings.model_dump_json(include={"stage", "store"})
    if key not in mine:
        store = Path(settings.store) if settings.store else None
        mine[key] = loop.create_task(open_environment(settings.stage, store=store, say=log.info))
    opening = mine[key]
    try:
        return await asyncio.shield(opening)  # a cancelled episode must not cancel it for the others
    finally:
        if opening.done() and (opening.cancelled() or opening.exception() is not None):
            mine.pop(key, None)  # the next call tries again


def take_place(settings: VerlSettings) -> AbstractAsyncContextManager[None]:
    """Take one of the `play.at_once` places for episodes under way on the process's environment of these settings."""
    most = settings.play.at_once
    if most is None:
        return nullcontext()
    mine = _places.setdefault(asyncio.get_running_loop(), {})
    return mine.setdefault(settings.model_dump_json(include={"stage", "store"}), asyncio.Semaphore(most))


async def close_all() -> None:
    """Close what this event loop opened."""
    for opening in list(_opened.pop(asyncio.get_running_loop(), {}).values()):
        environment = await opening
        await environment.close()


def name_group(step: int | None, extra: Mapping[str, Any], otherwise: str) -> str:
    """Name a group for simulation by its step and task, which a restarted run repeats, so that it finds stored replies.

    A task that is validated on is another group than the same task trained on in the same step.
    """
    return otherwise if step is None else f"{'val-' if extra.get('validates') else ''}{step}/{extra['task']}"


def choose_settings(settings: VerlSettings, extra: Mapping[str, Any]) -> VerlSettings:
    """Return the settings that a row is played with: rows to validate on have an environment of their own."""
    return settings.for_validation() if extra.get("validates") else settings


@dataclass(slots=True)
class EpisodeGroup:
    """The episodes of one group in this process."""

    trains: bool = True
    """False: its episodes are validated on, each for itself."""
    members: int = 0
    rewards: list[float | None] = field(default_factory=list)
    """Of the ended episodes, in the order of their ends; None: the episode must not be trained."""
    ends: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    told: bool = False
    """Whether an episode of it has raised the error that it is lost."""

    @property
    def known(self) -> list[float]:
        return [reward for reward in self.rewards if reward is not None]

    def usable(self, estimator: str) -> bool:
        """Whether its rewards can be trained on with this estimator of verl's."""
        compared = self.trains and self.members > 1 and estimator not in ALONE
        return len(self.known) >= (2 if compared else 1)


class OpenGroups:
    """Groups under way. verl starts all episodes of a group before one can end, so each knows when it is the last."""

    def __init__(self) -> None:
        self._open: dict[str, EpisodeGroup] = {}
        self.lost = 0
        """Number of consecutive groups to train on that ended without any reward."""

    def join(self, key: str, *, trains: bool = True) -> EpisodeGroup:
        group = self._open.setdefault(key, EpisodeGroup(trains))
        group.members += 1
        return group

    def leave(self, key: str, group: EpisodeGroup, reward: float | None, end: str) -> bool:
        """Record the end of a member. Returns whether it was the last one, which ends the group."""
        group.rewards.append(reward)
        group.ends.append(end)
        if len(group.rewards) < group.members:
            return False
        self._open.pop(key, None)
        if group.trains:
            self.lost = 0 if group.known else self.lost + 1
        group.over.set()
        return True


groups = OpenGroups()


def append_note(folder: Path, name: str, step: Any, task: str, group: EpisodeGroup) -> None:
    """Append a line about an ended group to this process's file."""
    line = {"group": name, "step": step, "task": task, "trains": group.trains}
    line |= {"ends": group.ends, "rewards": group.rewards}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{platform.node()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
