"""A pack as a SkyRL environment (skyrl-gym): `init` returns the prompt, `step` takes the policy's text.

    simia.trainers.skyrl.register({"pack": "customer_service"})          # in the process that runs the generator
    rows = simia.trainers.skyrl.task_rows({"pack": "customer_service"})  # for the data set: prompt, env_class, task

The reward comes with the end. SkyRL adds up floats and cannot represent a missing reward: an aborted episode gives 0.0, with `aborted` in
its metadata and in `get_metrics`. A trainer that reads neither takes it for a failure. The generator's `max_turns` truncates an episode and
scores it. Its token limit ends episodes without a message to the environment, so set it too high to be reached.

Imports skyrl_gym, which the user's environment must have.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import skyrl_gym  # type: ignore[import-not-found,unused-ignore]
from skyrl_gym.envs.base_text_env import BaseTextEnv  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.text_episode import EnvironmentLease, Stage, TextStep, share_environment
from simia.errors import Code, UserError

NAME = "simia"
_kept: list[EnvironmentLease] = []


class PackEnv(BaseTextEnv):  # type: ignore[misc,unused-ignore]
    """One episode of the row's `task`. SkyRL does not pass the step, so concurrent episodes of a task are a group and share simulated
    answers, unless the row names its `group`."""

    def __init__(
        self,
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
        stage: Stage | None = None,
        store: Path | None = None,
    ) -> None:
        """Open `stage`, or `env_config` if none was registered; its replies are stored in `store`. Raises `UserError` for a row without a task."""
        super().__init__()
        extras = extras or {}
        task = extras.get("task")
        if not isinstance(task, str):
            raise UserError("a row for a simia environment needs the column task: make rows with task_rows")
        self._task, self._seed, self._group = task, extras.get("seed"), extras.get("group")
        self._playing: str | None = None
        self.max_turns = int(extras.get("max_turns") or 0)
        self._lease = share_environment(stage if stage is not None else env_config or {}, store=store)
        self._session = self._lease.session()
        self._heard: TextStep | None = None

    def init(self, prompt: Any = None) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begin the episode and return its opening as the prompt, with the tools in its system turn; the row's prompt is ignored."""
        self._leave()
        self._playing = _groups.join(self._task) if self._group is None else None
        group = self._playing or self._group
        self._heard = event_loop.run(self._session.reset(self._task, seed=self._seed, group=group))
        return self._heard.messages, {"task": self._task}

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        self._heard = heard = event_loop.run(self._session.act(action))
        if heard.ended is None and self.turns == self.max_turns:
            self._heard = event_loop.run(self._session.stop(Code.MAX_TURNS))
        return {
            "observations": heard.messages,
            "reward": self._heard.value or 0.0,
            "done": self._heard.ended is not None,
            "metadata": {"task": self._task, "end": self._heard.ended, "aborted": self._heard.ended == "aborted"},
        }

    def get_metrics(self) -> dict[str, Any]:
        heard = self._heard
        if heard is None or heard.ended is None:
            return {"turns": self.turns}
        metrics = {"turns": self.turns, "aborted": heard.ended == "aborted", "cut": heard.ended == "truncated"}
        return metrics if heard.value is None else {**metrics, "score": heard.value}

    def close(self) -> None:
        if self._lease.open:
            self._leave()
            self._lease.close()

    def _leave(self) -> None:
        event_loop.run(self._session.leave())
        playing, self._playing = self._playing, None
        if playing is not None:
            _groups.leave(playing)


class TaskGroups:
    """Names of the groups under way, by task."""

    def __init__(self) -> None:
        self._guard, self._numbers = threading.Lock(), itertools.count()
        self._now: dict[str, str] = {}
        self._members: Counter[str] = Counter()

    def join(self, task: str) -> str:
        with self._guard:
            if task not in self._now:
                self._now[task] = f"{next(self._numbers)}/{task}"
            group = self._now[task]
            self._members[group] += 1
            return group

    def leave(self, group: str) -> None:
        with self._guard:
            self._members[group] -= 1
            if not self._members[group]:
                del self._members[group]
                del self._now[group.partition("/")[2]]


_groups = TaskGroups()


def register(stage: Stage, name: str = NAME, *, store: str | Path | None = None) -> None:
    """Register the stage for rows whose `env_class` is this name; the environment stays open until the process ends.

    `store`: folder of stored replies, as for `open_environment`.
    """
    kept = Path(store) if store else None
    _kept.append(share_environment(stage, store=kept))  # keeps the environment open between two episodes
    skyrl_gym.register(id=name, entry_point="simia.trainers.skyrl:PackEnv", kwargs={"stage": stage, "store": kept})


def task_rows(stage: Stage, name: str = NAME, *, store: str | Path | None = None) -> list[dict[str, Any]]:
    """Make rows for SkyRL's data set, one per task. The prompt is a placeholder, which the episode's opening replaces."""
    lease = share_environment(stage, store=Path(store) if store else None)
    try:
        return [
            {"prompt": [{"role": "user", "content": task.id}], "env_class": name, "task": task.id}
            for task in lease.environment.tasks
        ]
    finally:
        lease.close()
