"""The environment with RAGEN's signatures: one seat, in which episode follows episode.

    env = SimiaEnv(SimiaEnvConfig(stage={"pack": "customer_service"}))
    env.reset(seed=7)
    observation, reward, done, info = env.step('<tool_call>…</tool_call>')

A group of RAGEN's is the environments that are reset with one seed. The seed chooses the task, and the group's simulated answers are
shared. Seeds that follow one another go through the whole split before a task comes again, in training in another order each time;
where RAGEN deals a step's seeds out to several tags, our manager counts each tag's own (`Lane`). All seats of a process share one open
environment: one pack, one sandbox, one pace.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from simia import event_loop
from simia.envs.environment import Episode
from simia.envs.text_episode import messages_to_text, share_environment
from simia.errors import Aborted, Code, UserError
from simia.formats.tagged_calls import read_message
from simia.reward import Reward
from simia.statistics import SUCCESS
from simia.task import Task
from simia.trainers.launch import select_split
from simia.trainers.ragen.settings import SeedLane, SimiaEnvConfig, choose_task, parse_stage
from simia.trainers.tokens import ChatText, TokenRow
from simia.trajectory import Message

__all__ = ["SeedLane", "SimiaEnv", "SimiaEnvConfig", "choose_task", "parse_stage"]

Result = tuple[str, float, bool, dict[str, float]]
"""What RAGEN's `step` gives: observation, reward, done, info."""


class SimiaEnv:
    """One seat. `reset` and `step` are RAGEN's; `start`, `act`, `take` and `cut` are what they are made of, for the portal's loop."""

    def __init__(self, config: SimiaEnvConfig | None = None) -> None:
        """Opens the stage if no other seat has. Raises `UserError` for what must be changed first."""
        self.config = config or SimiaEnvConfig()
        self.lease = share_environment(
            parse_stage(self.config), store=Path(self.config.store) if self.config.store else None
        )
        self.member = 0
        """Which one of its group it is: it tells this one's simulated user from the others'."""
        self.most_turns: int | None = None
        """Turns of the policy that there is time for; the episode is judged after the last one."""
        self.batched = False
        """Set by our manager: `reset` only says what is to begin, and `step` hands out what the batch has done."""
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
        """The user's first words. Raises `UserError` for a split without tasks and a task that cannot be set up; lost
        infrastructure is an episode that is over."""
        seed = random.randrange(2**31) if seed is None else int(seed)
        task = choose_task(self.tasks(mode), self.lane.number(seed), mode)
        self._next = (task, f"{mode}/{seed}/{task.id}")
        if not self.batched:
            event_loop.run(self.start())
        return self.render()

    def step(self, action: str) -> Result:
        """The whole response of the policy is the action: words to the user, or calls between Hermes tags.

        The reward comes with the end. An episode that was aborted, or that no judge could judge, has none: it is NaN, for 0
        would say that the policy failed; `info["unscored"]` says so too. Our context manager leaves such rows out.
        """
        if self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self.playing.end is None:
            event_loop.run(self.act(read_message(action, f"call_{self.turns + 1}")))
        return self.result()

    def render(self) -> str:
        """What the policy heard last, as text; nothing of an episode that waits for its turn."""
        return "" if self.waiting else messages_to_text(self._heard)

    def close(self) -> None:
        if self.episode is not None:
            event_loop.run(self.episode.close())
        self.lease.close()

    # -- what became of the episode -----------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Reset, and not begun yet."""
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
        """Of the policy, in this episode."""
        return sum(m.role == "assistant" for m in self.playing.messages)

    @property
    def reward(self) -> float | None:
        """None while it runs, and for good if it was aborted, could not be judged or was over before the policy spoke."""
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
        return select_split(environment.pack, environment.tasks, split, f", which {mode} wants")

    # -- in the portal's loop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin what `reset` named."""
        assert self._next is not None
        environment, (task, group), self._next = self.lease.environment, self._next, None
        await self._close()
        opened = environment.reset(task, seed=self.lease.seed, group=group, name=f"{group}/{self.member}")
        try:
            async with asyncio.timeout(self.config.world_seconds):
                self.episode = await opened
        except TimeoutError:
            self._abort_unstarted(task, Code.TIMEOUT, self._late)
        self._heard = self.playing.view.messages
        self._settle()

    async def abort_unstarted(self) -> None:
        """The rollout is over before its turn came."""
        assert self._next is not None
        (task, _), self._next = self._next, None
        await self._close()
        self._abort_unstarted(task, Code.AGENT_FAILED, "the rollout was over before this episode began")

    async def act(self, message: Message) -> None:
        """One turn, as a message. The last one that there is time for ends the episode, and it is judged."""

        async def stepped() -> None:
            self._heard = (await self.playing.step(message)).messages

        await self._run_in_time(stepped())
        await self._cut_after_last_turn()

    async def take(self, ids: list[int]) -> None:
        """One turn, as what the policy sampled, end token included."""
        row, text = self.row, self._text
        assert row is not None
        assert text is not None

        async def stepped() -> None:
            self._heard = await text.act(row, ids)

        await self._run_in_time(stepped())
        await self._cut_after_last_turn()
        if self.playing.end is None and self.overlong:
            await self.cut(Code.MAX_TOKENS, self.overlong)

    async def answer(self, action: str, ids: list[int] | None) -> None:
        """A turn of the batch; `step` hands out its result."""
        if ids is not None and self.row is not None:
            await self.take(ids)
        else:
            await self.act(read_message(action, f"call_{self.turns + 1}"))
        self._ready = self.result()

    async def cut(self, code: Code, detail: str = "") -> None:
        """Out of turns or tokens: truncated, and scored as it stands, unless the policy never spoke."""
        stopped = self.playing.stop(code, aborted=not self.turns, detail=detail)
        await self._run_in_time(stopped)

    def opening(self, text: ChatText, room: int) -> TokenRow:
        """The episode as ids from here on. `room`: the longest context in which a whole turn of the policy has room."""
        view = self.playing.view
        self._text, self._room = text, room
        self.row = TokenRow(self.playing, text.opening(view.system, view.messages, view.tools))
        return self.row

    @property
    def overlong(self) -> str:
        """Why there is no room for another turn; empty if there is."""
        length = len(self.row.context) if self.row is not None else 0
        return f"the context has {length} tokens, of which {self._room} leave room for a turn" * (length > self._room)

    async def _cut_after_last_turn(self) -> None:
        if self.playing.end is None and self.most_turns is not None and self.turns >= self.most_turns:
            await self.cut(Code.MAX_TURNS)

    @property
    def _late(self) -> str:
        return f"the environment took over {self.config.world_seconds:g} s"

    async def _run_in_time(self, doing: Coroutine[Any, Any, Any]) -> None:
        """What takes too long is given up, so that the batch goes on: the episode is aborted, or has no verdict."""
        try:
            async with asyncio.timeout(self.config.world_seconds):
                await doing
        except TimeoutError:
            episode = self.playing
            with contextlib.suppress(TimeoutError):  # a world that cannot be let go either
                async with asyncio.timeout(self.config.world_seconds):
                    if episode.end is None:
                        await episode.stop(Code.TIMEOUT, aborted=True, detail=self._late)
                    else:
                        episode.reward = episode.reward or Reward(error=Code.TIMEOUT, rationale=self._late)
                        await episode.close()
        self._settle()

    def _settle(self) -> None:
        """There is nothing to train in an episode in which the policy never spoke, and nothing to compare the others with."""
        episode = self.playing
        if episode.end is not None and episode.reward is not None and not self.turns:
            why = episode.reward.rationale or "it was over before the policy spoke"
            episode.reward = Reward(error=episode.reward.error or episode.end.code, rationale=why)

    def _abort_unstarted(self, task: Task, code: Code, detail: str) -> None:
        self.episode = Episode.aborted(self.lease.environment, task, self.lease.seed, Aborted(code, detail))
        self._heard = ()

    async def _close(self) -> None:
        episode, self.episode, self.row, self._ready = self.episode, None, None, None
        if episode is not None:
            await episode.close()
