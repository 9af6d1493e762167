"""One episode with a policy that samples ids: token in, token out, whoever runs the policy.

Nothing of verl is needed here. `generate` is the policy: ids in, a reply out. Limits end an episode and it is scored (of tokens, of
time for the policy's turn and for the episode); what the infrastructure fails at (a world that cannot be had, an answer that does
not come, a lost server) aborts it: it has no reward, and is played anew a few times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.environment import Environment, Episode, Sample
from simia.errors import Aborted, Code, UserError
from simia.trainers.tokens import Row, Text
from simia.trainers.verl.settings import PlaySettings
from simia.trajectory import Message

GAP = "\n[…]\n"  # where a long result was cut


@dataclass(frozen=True, slots=True)
class Reply:
    """What the policy sampled: ids with the end token, and the log-probability of each where the server gives them."""

    ids: list[int]
    logprobs: list[float] | None = None


class PolicyLostError(Exception):
    """The policy's server gave no reply: infrastructure, not the policy's doing."""


Generate = Callable[[list[int], int], Awaitable[Reply]]
"""(context as ids, most new tokens) → a reply. Raises whatever: it aborts the episode, except for a `UserError`."""


@dataclass(slots=True)
class Played:
    """An episode that is over. `reward` None: aborted or not scored, nothing of it may be trained."""

    row: Row
    reward: float | None
    logprobs: bool = True
    """Whether every reply came with log-probabilities."""
    attempts: int = 1
    fits: bool = True
    """Whether the opening fits into the prompt: if not, the policy was never asked."""
    policy_seconds: float = 0.0
    world_seconds: float = 0.0

    @property
    def end(self) -> str:
        """terminated, truncated, aborted; unscored: an end that no judge could judge."""
        kind = self.row.episode.end.kind if self.row.episode.end else "aborted"
        return "unscored" if self.reward is None and kind != "aborted" else kind


@dataclass(slots=True)
class Player:
    """Plays episodes of one environment. `prompt_tokens` and `response_tokens` are the trainer's limits of a row."""

    environment: Environment
    tokenizer: Any
    text: Text
    settings: PlaySettings
    prompt_tokens: int
    response_tokens: int

    async def play(self, generate: Generate, task: str, *, seed: int, group: str, name: str) -> Played:
        """One episode, played anew when it is aborted, at most `resample` times. Raises only a `UserError`.

        Episodes of one `group` share what is drawn by simulation; `name` tells this one's user from those of the others.
        """
        for attempt in range(self.settings.resample + 1):
            once = Once(self, generate)
            played = await once.play(task, seed=seed, group=group, name=f"{name}+{attempt}" if attempt else name)
            played.attempts = attempt + 1
            if played.reward is not None or not played.fits:
                break
        return played


@dataclass(slots=True)
class Once:
    """One attempt at an episode."""

    player: Player
    generate: Generate
    policy_seconds: float = 0.0
    world_seconds: float = 0.0
    logprobs: bool = True
    began: float = field(default_factory=time.monotonic)

    async def play(self, task: str, *, seed: int, group: str, name: str) -> Played:
        environment, text = self.player.environment, self.player.text
        try:
            episode = await self._world(environment.reset(task, seed=seed, group=group, name=name))
        except TimeoutError:
            late = Aborted(Code.TIMEOUT, "the environment took too long to begin")
            episode = Episode.aborted(environment, environment.pack.task(task), seed, late)
        try:
            view = episode.view
            row = Row(episode, text.opening(view.system, view.messages, view.tools))
            fits = len(row.prompt_ids) <= self.player.prompt_tokens
            if not fits:
                await self._stop(episode, Code.MAX_TOKENS, detail=f"the opening has {len(row.prompt_ids)} tokens")
            while episode.end is None:
                await self._turn(row)
        finally:
            await episode.close()
        aborted = episode.end is None or episode.end.kind == "aborted"
        reward = None if aborted or not fits or episode.reward is None else episode.reward.value
        return Played(
            row, reward, self.logprobs, fits=fits, policy_seconds=self.policy_seconds, world_seconds=self.world_seconds
        )

    async def _turn(self, row: Row) -> None:
        """One message of the policy and what the environment says to it."""
        episode, settings = row.episode, self.player.settings
        room = self.player.response_tokens - len(row.completion_ids) - len(row.pending)
        seconds = min(settings.turn_seconds, self.began + settings.episode_seconds - time.monotonic())
        if room <= 0:
            return await self._stop(episode, Code.MAX_TOKENS, detail="no room for another turn")
        if seconds <= 0:
            return await self._stop(episode, Code.TIMEOUT, detail=f"over {settings.episode_seconds:g} s")
        started = time.monotonic()
        try:
            reply = await self._reply(row.context, min(room, settings.turn_tokens or room), seconds)
        except TimeoutError:
            return await self._stop(episode, Code.TIMEOUT, detail=f"the policy's turn took over {seconds:g} s")
        except PolicyLostError as lost:
            return await self._stop(episode, Code.AGENT_FAILED, aborted=True, detail=str(lost))
        finally:
            self.policy_seconds += time.monotonic() - started
        ids = reply.ids[:room]
        self.logprobs = self.logprobs and reply.logprobs is not None
        logprobs = (reply.logprobs or [0.0] * len(ids))[:room]
        sample = Sample(row.context, ids, logprobs if reply.logprobs is not None else None)
        row.take(ids, logprobs)
        message = self.player.text.read(ids, row.turns)
        if ids[-1] not in self.player.text.end_ids:  # cut in the middle: half a message is nothing to act on
            return await self._stop(episode, Code.MAX_TOKENS, message=message, sample=sample)
        try:
            step = await self._world(episode.step(message, sample))
        except TimeoutError:
            return await self._stop(episode, Code.TIMEOUT, aborted=True, detail="the environment took too long")
        if step.end is None:
            row.pending = self.player.text.between(self._shortened(step.messages))
        return None

    async def _reply(self, context: list[int], most: int, seconds: float) -> Reply:
        """Raises `TimeoutError` when the time is over, `PolicyLostError` for any failure of the server."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                reply = await self.generate(context, most)
        except (UserError, PolicyLostError):
            raise
        except Exception as error:
            if limit.expired():
                raise TimeoutError from None
            raise PolicyLostError(f"{type(error).__name__}: {error}"[:500]) from error
        if not reply.ids:
            raise PolicyLostError("the policy's server gave an empty reply")
        if reply.logprobs is not None and len(reply.logprobs) != len(reply.ids):
            raise PolicyLostError(f"{len(reply.logprobs)} log-probabilities for {len(reply.ids)} ids")
        return reply

    async def _world(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """Bounded: an environment that hangs must not hold up the trainer."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.player.settings.world_seconds):
                return await doing
        finally:
            self.world_seconds += time.monotonic() - started

    async def _stop(
        self,
        episode: Episode,
        code: Code,
        *,
        aborted: bool = False,
        detail: str = "",
        message: Message | None = None,
        sample: Sample | None = None,
    ) -> None:
        """End it, scored unless it is aborted. A judge that does not answer in time leaves it without a reward."""
        try:
            await self._world(episode.stop(code, aborted=aborted, detail=detail, message=message, sample=sample))
        except TimeoutError:
            episode.reward = None

    def _shortened(self, messages: Sequence[Message]) -> list[Message]:
        most = self.player.settings.result_tokens
        if most is None:
            return list(messages)
        return [shortened(m, self.player.tokenizer, most) if m.role == "tool" else m for m in messages]


def shortened(message: Message, tokenizer: Any, most: int) -> Message:
    """The message with about `most` tokens of text, cut in the middle; the episode's own is not touched."""
    ids = tokenizer(message.text, add_special_tokens=False)["input_ids"]
    if len(ids) <= most:
        return message
    head, tail = ids[: most - most // 2], ids[len(ids) - most // 2 :]
    return message.model_copy(update={"content": tokenizer.decode(head) + GAP + tokenizer.decode(tail)})
