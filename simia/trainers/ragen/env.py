"""The environment with RAGEN's interface: one object plays one episode after another.

    env = SimiaEnv(SimiaEnvConfig(stage={"pack": "customer_service"}))
    env.reset(seed=7)
    observation, reward, done, info = env.step('<tool_call>…</tool_call>')

RAGEN resets all environments of a group with the same seed. The seed selects the task, and the group shares simulated answers. Consecutive
seeds go through the whole split before a task repeats; in training each pass has a new order. If RAGEN distributes a step's seeds over
several tags, `SeedLane` counts the seeds of each tag. All objects of a process share one open environment.
"""

from __future__ import annotations

import math
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia import event_loop
from simia.envs.environment import Episode
from simia.envs.text_episode import EnvironmentLease, messages_to_text, share_environment
from simia.errors import Aborted, Code, UserError
from simia.formats.tagged_calls import read_message
from simia.reward import Reward
from simia.statistics import SUCCESS
from simia.task import Task
from simia.trainers.launch import select_split
from simia.trainers.ragen.settings import SimiaEnvConfig
from simia.trainers.time_limits import open_in_time, run_in_time
from simia.trainers.tokens import ChatText, TokenRow
from simia.trajectory import Message

Result = tuple[str, float, bool, dict[str, float]]
"""What RAGEN's `step` returns: observation, reward, done, info."""


def choose_task(tasks: Sequence[Task], seed: int, mode: str = "train") -> Task:
    """Choose the task of a seed, the same in every process.

    In training, n consecutive seeds that begin at a multiple of n cover all n tasks, each time in another order. In validation the order
    is fixed, so that any n consecutive seeds cover all n tasks: RAGEN validates from seed 123 on.
    """
    lap, place = divmod(seed, len(tasks))
    order = list(range(len(tasks)))
    random.Random(f"lap {lap}" if mode == "train" else "one order").shuffle(order)
    return tasks[order[place]]


@dataclass(frozen=True, slots=True)
class SeedLane:
    """The place of a group among a step's groups: RAGEN gives group g of `of` the seed `base + step * of + g`."""

    base: int = 0
    of: int = 1
    group: int = 0
    groups: int = 1
    """Number of the step's groups that belong to its tag; `place` is its index among these."""
    place: int = 0

    def number(self, seed: int) -> int:
        """Return a number that counts the groups of the tag without gaps, from `base` on; with one tag it equals the seed."""
        return self.base + (seed - self.group - self.base) // self.of * self.groups + self.place


class SimiaEnv:
    """Implements RAGEN's `reset` and `step`; `start`, `act`, `take` and `cut` are their parts, which run in the portal's loop."""

    def __init__(self, config: SimiaEnvConfig | None = None) -> None:
        """Open nothing yet: `mode`, given to `reset`, decides which environment is played."""
        self.config = config or SimiaEnvConfig()
        self._validates = False
        self._lease: EnvironmentLease | None = None
        self.member = 0
        """Its number in its group, which distinguishes its simulated user from the others'."""
        self.most_turns: int | None = None
        """Limit of the policy's turns; the episode is scored after the last one."""
        self.batched = False
        """Set by `EnvManager`: `reset` only chooses the task, and `step` returns the result that `answer` stored."""
        self.lane = SeedLane()
        self.episode: Episode | None = None
        self.row: TokenRow | None = None
        self._text: ChatText | None = None
        self._room = 0
        self._heard: Sequence[Message] = ()
        self._next: tuple[Task, str] | None = None
        self._ready: Result | None = None

    # -- RAGEN's ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, mode: str = "train", **_: Any) -> str:
        """Choose the seed's task, and return the user's first message.

        Raises `UserError` for a split without tasks and for a task that cannot be set up. An infrastructure failure gives an episode that has ended.
        """
        seed = random.randrange(2**31) if seed is None else int(seed)
        self.set_mode(mode)
        task = choose_task(self.tasks(mode), self.lane.number(seed), mode)
        self._next = (task, f"{mode}/{seed}/{task.id}")
        if not self.batched:
            event_loop.run(self.start())
        return self.render()

    def step(self, action: str) -> Result:
        """Take one turn: the action is the policy's whole response, a message to the user or calls between Hermes tags.

        The reward comes with the end and is NaN for an episode that was aborted or could not be judged, since 0 would mean that the
        policy failed; `info["unscored"]` is 1 then. `Context` masks such rows.
        """
        if self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self.playing.end is None:
            event_loop.run(self.act(read_message(action, f"call_{self.turns + 1}")))
        return self.result()

    def render(self) -> str:
        """Return the last messages to the policy as text; empty for an episode that has not begun."""
        return "" if self.waiting else messages_to_text(self._heard)

    def close(self) -> None:
        if self.episode is not None:
            event_loop.run(self.episode.close())
        if self._lease is not None:
            self._lease.close()

    def set_mode(self, mode: str) -> None:
        """Choose the environment: that of training with the mode `train`, that of validation with any other."""
        if self._validates != (mode != "train") and self.config.val_environment is not None and self._lease is not None:
            if self.episode is not None:
                event_loop.run(self.episode.close())
            self._lease.close()
            self.episode = self._lease = None
        self._validates = mode != "train"

    @property
    def lease(self) -> EnvironmentLease:
        """The open environment of the mode, shared by all objects of the process. Raises `UserError`."""
        if self._lease is None:
            config = self.config.for_validation() if self._validates else self.config
            self._lease = share_environment(config.stage, store=Path(config.store) if config.store else None)
        return self._lease

    # -- the state of the episode -----------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether it was reset and has not begun."""
        return self._next is not None

    @property
    def playing(self) -> Episode:
        if self.episode is None or self.waiting:
            raise UserError("there is no episode to step in: reset first")
        return self.episode

    @property
    def done(self) -> bool:
        return not self.waiting and self.playing.end is not None

    @property
    def turns(self) -> int:
        """Number of the policy's turns in this episode."""
        return sum(m.role == "assistant" for m in self.playing.messages)

    @property
    def reward(self) -> float | None:
        """The outcome. None while it runs, and if it was aborted, could not be judged or ended before the policy spoke."""
        episode = self.playing
        if episode.end is None or episode.end.kind == "aborted" or episode.reward is None:
            return None
        return episode.reward.value

    @property
    def steps(self) -> list[float]:
        """Rewards of the policy's turns, which training adds to the outcome; empty where there are none."""
        reward = self.playing.reward
        return list(reward.steps) if self.reward is not None and reward is not None else []

    @property
    def info(self) -> dict[str, float]:
        """Facts as numbers, since RAGEN converts every value to a number. `score` is absent while there is none."""
        episode, reward = self.playing, self.reward
        kind = episode.end.kind if episode.end else None
        errors = sum(m.role == "tool" and m.error is not None for m in episode.view.messages)
        return {
            "success": float(reward is not None and reward >= SUCCESS),
            **({} if reward is None else {"score": reward}),
            "turns": float(self.turns),
            "tool_errors": float(errors),
            "truncated": float(kind == "truncated"),
            "aborted": float(kind == "aborted"),
            "unscored": float(kind is not None and reward is None),
        }

    def result(self) -> Result:
        done = self.playing.end is not None
        value = self.reward if done else 0.0
        return messages_to_text(self._heard), math.nan if value is None else value, done, self.info

    def tasks(self, mode: str) -> list[Task]:
        split = self.config.train if mode == "train" else self.config.val
        environment = self.lease.environment
        return select_split(environment.pack, environment.tasks, split, f", which {mode} needs")

    # -- in the portal's loop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the episode that `reset` chose."""
        environment, (task, group) = self.lease.environment, await self._take_next()
        name, seconds = f"{group}/{self.member}", self.config.world_seconds
        self.episode = await open_in_time(environment, task, seconds, seed=self.lease.seed, group=group, name=name)
        self._heard = self.playing.view.messages
        self._settle()

    async def abort_unstarted(self) -> None:
        """Abort the episode that `reset` chose: the rollout ended before it began."""
        task, _ = await self._take_next()
        over = Aborted(Code.AGENT_FAILED, "the rollout was over before this episode began")
        self.episode = self.lease.environment.abort(task, self.lease.seed, over)
        self._heard = ()

    async def act(self, message: Message) -> None:
        """Take one turn, as a message. The turn that reaches `most_turns` ends the episode, which is scored."""

        async def step() -> Sequence[Message]:
            return (await self.playing.step(message)).messages

        await self._take_turn(step())

    async def take(self, ids: list[int]) -> None:
        """Take one turn, as the ids that the policy sampled, end token included."""
        assert self.row is not None
        assert self._text is not None
        await self._take_turn(self._text.act(self.row, ids))

    async def _take_turn(self, turn: Coroutine[Any, Any, Sequence[Message]]) -> None:
        heard = await self._run_in_time(turn)
        self._heard = self._heard if heard is None else heard
        if self.playing.end is not None:
            return
        if self.most_turns is not None and self.turns >= self.most_turns:
            await self.cut(Code.MAX_TURNS)
        elif self.overlong:
            await self.cut(Code.MAX_TOKENS, self.overlong)

    async def answer(self, action: str, ids: list[int] | None) -> None:
        """Take a turn of the batch; `step` returns its result."""
        if ids is not None and self.row is not None:
            await self.take(ids)
        else:
            await self.act(read_message(action, f"call_{self.turns + 1}"))
        self._ready = self.result()

    async def cut(self, code: Code, detail: str = "") -> None:
        """Truncate and score the episode at a limit of turns or tokens. If the policy never spoke, it is aborted."""
        await self._run_in_time(self.playing.stop(code, aborted=not self.turns, detail=detail))

    def opening(self, text: ChatText, room: int) -> TokenRow:
        """Start the row of ids with the episode's opening. `room`: length of the longest context that leaves room for a turn."""
        self._text, self._room = text, room
        self.row = text.begin(self.playing)
        return self.row

    @property
    def overlong(self) -> str:
        """Why there is no room for another turn; empty if there is."""
        length = len(self.row.context) if self.row is not None else 0
        return f"the context has {length} tokens, of which {self._room} leave room for a turn" * (length > self._room)

    async def _run_in_time(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the work and return its result. After `world_seconds` it is cancelled: the episode is aborted, or has no verdict."""
        result = await run_in_time(self.playing, work, self.config.world_seconds)
        self._settle()
        return result

    def _settle(self) -> None:
        """Remove the reward of an episode that ended before the policy spoke, since there is nothing to train or to compare."""
        episode = self.playing
        if episode.end is not None and episode.reward is not None and not self.turns:
            why = episode.reward.rationale or "it was over before the policy spoke"
            episode.reward = Reward(error=episode.reward.error or episode.end.code, rationale=why)

    async def _take_next(self) -> tuple[Task, str]:
        """Return the task and group that `reset` chose, and close the previous episode."""
        assert self._next is not None
        chosen, self._next = self._next, None
        episode, self.episode, self.row, self._ready = self.episode, None, None, None
        if episode is not None:
            await episode.close()
        return chosen
