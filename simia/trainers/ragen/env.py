"""The environment with RAGEN's signatures: one seat, in which episode follows episode.

    env = SimiaEnv(SimiaEnvConfig(stage={"pack": "customer_service"}))
    env.reset(seed=7)
    observation, reward, done, info = env.step('<tool_call>…</tool_call>')

A group of RAGEN's is the environments that are reset with one seed. The seed chooses the task, and the group's simulated answers are
shared. Seeds that follow one another go through the whole split before a task comes again, in training in another order each time.
All seats of a process share one open environment: one pack, one sandbox, one pace.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia import sync
from simia.config import parse
from simia.environment import Episode, Sample
from simia.errors import Code, UserError
from simia.formats.calls import read_message
from simia.rollout.figures import SUCCESS
from simia.rollout.session import as_text, plain, share
from simia.rollout.settings import StageConfig
from simia.task import Task
from simia.trainers.tokens import Row, Text
from simia.trajectory import Message

Result = tuple[str, float, bool, dict[str, float]]
"""What RAGEN's `step` gives: observation, reward, done, info."""


@dataclass
class SimiaEnvConfig:
    """`env_config` of a tag in RAGEN's `custom_envs`; every field has a default, for RAGEN makes it without any."""

    stage: dict[str, Any] = field(default_factory=dict)
    """A `StageConfig` as a mapping: pack, back end, models, judge."""
    train: str | None = "train"
    """The split of the training seeds; None: all tasks of the stage."""
    val: str | None = "test"
    """The split of the validation seeds."""
    store: str | None = None
    """A folder in which paid replies are kept, and found again when the run is started again."""

    def __post_init__(self) -> None:
        self.stage = plain(self.stage)


def as_stage(config: SimiaEnvConfig) -> StageConfig:
    return parse(StageConfig, config.stage, where="env_config.stage")


def task_of(tasks: Sequence[Task], seed: int, mode: str = "train") -> Task:
    """The same for the same seed in any process. In training n seeds in a row, from a multiple of n on, are all n tasks, each time
    in another order. Else there is one order, so that any n seeds in a row are all n tasks: RAGEN validates from seed 123 on."""
    lap, place = divmod(seed, len(tasks))
    order = list(range(len(tasks)))
    random.Random(f"lap {lap}" if mode == "train" else "one order").shuffle(order)
    return tasks[order[place]]


class SimiaEnv:
    """One seat. `reset` and `step` are RAGEN's; `begin`, `act`, `take` and `cut` are what they are made of, for the portal's loop."""

    def __init__(self, config: SimiaEnvConfig | None = None) -> None:
        """Opens the stage if no other seat has. Raises `UserError` for what must be changed first."""
        self.config = config or SimiaEnvConfig()
        self.lease = share(as_stage(self.config), store=Path(self.config.store) if self.config.store else None)
        self.member = 0
        """Which one of its group it is: it tells this one's simulated user from the others'."""
        self.most_turns: int | None = None
        """Turns of the policy that there is time for; the episode is judged after the last one."""
        self.batched = False
        """Set by our manager: `reset` only starts the episode and `step` hands out what the batch has done."""
        self.episode: Episode | None = None
        self.row: Row | None = None
        self._text: Text | None = None
        self._room = 0
        self._heard: Sequence[Message] = ()
        self._starting: Future[None] | None = None
        self._ready: Result | None = None

    # -- RAGEN's ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, mode: str = "train", **_: Any) -> str:
        """The user's first words. Raises `UserError` for a split without tasks and a task that cannot be set up; lost
        infrastructure is an episode that is over."""
        seed = random.randrange(2**31) if seed is None else int(seed)
        task = task_of(self.tasks(mode), seed, mode)
        begun = self.begin(task, f"{mode}/{seed}/{task.id}")
        self._starting = asyncio.run_coroutine_threadsafe(begun, sync.portal())
        return "" if self.batched else self.render()

    def step(self, action: str) -> Result:
        """The whole response of the policy is the action: words to the user, or calls between Hermes tags.

        The reward comes with the end. An episode that was aborted, or that no judge could judge, has none: it is NaN, for 0
        would say that the policy failed; `info["unscored"]` says so too. Our context manager leaves such rows out.
        """
        self._started()
        if self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self.playing.end is not None:
            return self.result()
        sync.run(self.act(read_message(action, f"call_{len(self.playing.samples) + 1}")))
        return self.result()

    def render(self) -> str:
        """What the policy heard last, as text."""
        self._started()
        return as_text(self._heard)

    def close(self) -> None:
        if self.episode is not None:
            sync.run(self.episode.close())
        self.lease.close()

    # -- what became of the episode -----------------------------------------------------------------------------------

    @property
    def playing(self) -> Episode:
        if self.episode is None:
            raise UserError("there is no episode to step in: reset first")
        return self.episode

    @property
    def done(self) -> bool:
        self._started()
        return self.playing.end is not None

    @property
    def reward(self) -> float | None:
        """None while it runs, and for good if it was aborted or could not be judged."""
        episode = self.playing
        if episode.end is None or episode.end.kind == "aborted" or episode.reward is None:
            return None
        return episode.reward.value

    @property
    def info(self) -> dict[str, float]:
        """Numbers only: RAGEN casts every value. `score` is there once there is one."""
        episode, reward = self.playing, self.reward
        kind = episode.end.kind if episode.end else None
        errors = sum(m.role == "tool" and m.error is not None for m in episode.view.messages)
        return {
            "success": float(reward is not None and reward >= SUCCESS),
            **({} if reward is None else {"score": reward}),
            "turns": float(len(episode.samples)),
            "tool_errors": float(errors),
            "truncated": float(kind == "truncated"),
            "aborted": float(kind == "aborted"),
            "unscored": float(kind is not None and reward is None),
        }

    def result(self) -> Result:
        done = self.playing.end is not None
        value = self.reward if done else 0.0
        return as_text(self._heard), math.nan if value is None else value, done, self.info

    def tasks(self, mode: str) -> list[Task]:
        split = self.config.train if mode == "train" else self.config.val
        environment = self.lease.environment
        tasks = [task for task in environment.tasks if split in (None, task.split)]
        if not tasks:
            splits = ", ".join(sorted({task.split or "none" for task in environment.tasks}))
            raise UserError(
                f"pack {environment.pack.name} has no task of split {split!r}, which {mode} wants; its splits: {splits}"
            )
        return tasks

    def _started(self) -> None:
        """Wait for the start of the episode, and raise what it raised."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.result()

    # -- in the portal's loop -----------------------------------------------------------------------------------------

    async def begin(self, task: Task, group: str) -> None:
        if self.episode is not None:
            await self.episode.close()
        self.row = self._ready = None
        environment = self.lease.environment
        name = f"{group}/{self.member}"
        self.episode = await environment.reset(task, seed=self.lease.seed, group=group, name=name)
        self._heard = self.episode.view.messages

    async def act(self, message: Message, sample: Sample | None = None) -> None:
        """One turn. The last one that there is time for ends the episode, and it is judged."""
        episode = self.playing
        step = await episode.step(message, sample)
        self._heard = step.messages
        if step.end is None and self.most_turns is not None and len(episode.samples) >= self.most_turns:
            await self.cut(Code.MAX_TURNS)

    async def cut(self, code: Code, detail: str = "") -> None:
        """Out of turns or tokens: truncated, and scored as it stands."""
        await self.playing.stop(code, detail=detail)

    def opening(self, text: Text, room: int) -> Row:
        """The episode as ids from here on. `room`: the longest context in which a whole turn of the policy has room."""
        view = self.playing.view
        self._text, self._room = text, room
        self.row = Row(self.playing, text.opening(view.system, view.messages, view.tools))
        return self.row

    @property
    def overlong(self) -> str:
        """Why there is no room for another turn; empty if there is."""
        length = len(self.row.context) if self.row is not None else 0
        return f"the context has {length} tokens, of which {self._room} leave room for a turn" * (length > self._room)

    async def take(self, ids: list[int]) -> None:
        """What the policy sampled, end token included, and what the environment says to it."""
        row, text = self.row, self._text
        assert row is not None
        assert text is not None
        sample = Sample(row.context, ids)
        row.take(ids, [0.0] * len(ids))
        message = text.read(ids, row.turns)
        if not ids or ids[-1] not in text.end_ids:  # cut in the middle: half a message is nothing to act on
            await self.playing.stop(Code.MAX_TOKENS, message=message, sample=sample)
            self._heard = ()
        else:
            await self.act(message, sample)
        if self.playing.end is None:
            row.pending = text.between(self._heard)
            if self.overlong:
                await self.cut(Code.MAX_TOKENS, self.overlong)

    async def answer(self, action: str, ids: list[int] | None) -> None:
        """A turn of the batch; `step` hands out its result."""
        if ids is not None and self.row is not None:
            await self.take(ids)
        else:
            await self.act(read_message(action, f"call_{len(self.playing.samples) + 1}"))
        self._ready = self.result()
