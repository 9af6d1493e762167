"""State that the episodes of one verl worker share: the open environment, places for episodes, and groups.

verl makes an agent loop per sample, so the loop cannot own the environment. It is opened once per process and event loop, and is closed by
`close_all` or when the process ends, which also ends its children.

verl computes mean and std over the rows of one `uid`, whatever their mask. So an episode without a reward gives no row: its group consists
of the other rows, and verl fills the batch with empty rows of another uid. Two cases need care. For a single row, estimators that compare
within a group use the raw reward (mean 0, std 1), so a single row is left out too. A group without rows must raise an error once, since
verl replaces only failed groups. verl's metrics cover only the rows that it received, so each group is also recorded as a line of a file.
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
    """Close the environments that this event loop opened."""
    for opening in list(_opened.pop(asyncio.get_running_loop(), {}).values()):
        environment = await opening
        await environment.close()


def name_group(step: int | None, extra: Mapping[str, Any], otherwise: str) -> str:
    """Name a group by its step, task and row. A restarted run uses the same names, so that it finds stored replies.

    A task with several rows may have several groups in a step. The groups of one task in training and in a validation at the same step have
    different names too. `otherwise`: the name without a step.
    """
    if step is None:
        return otherwise
    row = "" if extra.get("index") is None else f"/{extra['index']}"
    return f"{'val-' if extra.get('validates') else ''}{step}/{extra['task']}{row}"


def choose_settings(settings: VerlSettings, extra: Mapping[str, Any]) -> VerlSettings:
    """Return the settings for a row: validation rows have an environment of their own."""
    return settings.for_validation() if extra.get("validates") else settings


@dataclass(slots=True)
class EpisodeGroup:
    """The episodes of one group in this process."""

    trains: bool = True
    """False: a validation, whose episodes are not compared with each other."""
    members: int = 0
    rewards: list[float | None] = field(default_factory=list)
    """Rewards of the ended episodes, in the order of their ends; None: the episode must not be trained on."""
    ends: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    told: bool = False
    """Whether one of its episodes has raised `GroupLostError`."""

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


def append_note(folder: Path, name: str, step: Any, task: str, group: EpisodeGroup, start: str = "") -> None:
    """Append a line about an ended group to this process's file. `start`: name of the start of the training, later than those before."""
    line = {"start": start, "group": name, "step": step, "task": task, "trains": group.trains}
    line |= {"ends": group.ends, "rewards": group.rewards}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{platform.node()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
