"""Play an episode with a policy that samples ids: token in, token out, with any inference engine.

This module does not need verl. `generate` is the policy: ids in, a reply out. A token limit truncates an episode, which is still scored. An
infrastructure failure (a world that does not open, a late answer, a lost server) aborts it: it has no reward, and is replayed up to
`resample` times. A time limit counts as such a failure, also in the policy's turn, since a reply may wait in the server's queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.envs.environment import Environment, Episode
from simia.errors import Aborted, Code, UserError
from simia.event_loop import share_loop
from simia.garbage_collection import raised_thresholds
from simia.trainers.tokens import ChatText, TokenRow
from simia.trainers.verl.settings import PlaySettings
from simia.trajectory import Message

GAP = "\n[…]\n"  # marks where a long result was cut


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """The policy's sampled ids, end token included, and their log-probabilities if the server returns them."""

    ids: list[int]
    logprobs: list[float] | None = None


class PolicyLostError(Exception):
    """The policy's server returned no reply, a failure of infrastructure."""

    code = Code.AGENT_FAILED


class PolicyLateError(PolicyLostError):
    """The policy's server returned no reply in time."""

    code = Code.TIMEOUT


Generate = Callable[[list[int], int], Awaitable[PolicyReply]]
"""(context as ids, most new tokens) → a reply. Any exception aborts the episode, except `UserError`, which is raised."""


@dataclass(slots=True)
class PolicyPlayer:
    """Plays episodes of one environment. `prompt_tokens` and `response_tokens`: the trainer's limits for a row; `model_tokens`: context
    length of the policy's server (None: unknown)."""

    environment: Environment
    tokenizer: Any
    text: ChatText
    settings: PlaySettings
    prompt_tokens: int
    response_tokens: int
    model_tokens: int | None = None

    async def play(self, generate: Generate, task: str, *, seed: int, group: str, name: str) -> PlayedEpisode:
        """Play one episode; replay it when it is aborted, at most `resample` times. Raises only `UserError`.

        Episodes of one `group` share simulated answers; `name` distinguishes this episode's simulated user from the others'.
        """
        await share_loop()  # a thousand episodes may start at once in this loop
        most = self.settings.episode_seconds
        until = None if most is None else time.monotonic() + most
        with raised_thresholds():
            for attempt in range(self.settings.resample + 1):
                played = PlayedEpisode(self, generate, until, attempts=attempt + 1)
                await played.play(task, seed=seed, group=group, name=f"{name}+{attempt}" if attempt else name)
                if played.reward is not None or not played.fits or played.late:
                    break
        return played

    def explain_unfit(self, opening: int) -> str | None:
        """Return why an opening of `opening` tokens cannot be played; None if it can."""
        if opening > self.prompt_tokens:
            return f"more than data.max_prompt_length ({self.prompt_tokens}): raise it"
        if self.model_tokens is not None and opening >= self.model_tokens:
            return f"which leaves no room in the context of the policy's server ({self.model_tokens})"
        return None

    def room(self, row: TokenRow) -> int:
        """Return how many tokens the policy may add."""
        left = self.response_tokens - len(row.completion_ids) - len(row.pending)
        return left if self.model_tokens is None else min(left, self.model_tokens - len(row.context))


@dataclass(slots=True)
class PlayedEpisode:
    """One attempt at an episode. `until`: deadline on the monotonic clock; None: no deadline."""

    player: PolicyPlayer
    generate: Generate
    until: float | None = None
    attempts: int = 1
    row: TokenRow = field(init=False)
    logprobs: bool = True
    """Whether every reply came with log-probabilities."""
    fits: bool = True
    """Whether the opening fits into the prompt; if not, the policy was never asked."""
    policy_seconds: float = 0.0
    world_seconds: float = 0.0

    @property
    def reward(self) -> float | None:
        """The reward to train on. None if the episode was aborted, not scored, or ended before the policy spoke."""
        return self.row.reward

    @property
    def end(self) -> str:
        """terminated, truncated, aborted, or unscored: an end without a verdict, or before the policy spoke."""
        kind = self.row.episode.end.kind if self.row.episode.end else "aborted"
        return "unscored" if self.reward is None and kind != "aborted" else kind

    @property
    def late(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    async def play(self, task: str, *, seed: int, group: str, name: str) -> None:
        environment = self.player.environment
        try:
            episode = await self._world(environment.reset(task, seed=seed, group=group, name=name))
        except TimeoutError:
            late = Aborted(Code.TIMEOUT, "the environment took too long to begin")
            episode = environment.abort(environment.pack.task(task), seed, late)
        try:
            self.row = await self.player.text.open_row(episode)
            length = len(self.row.prompt_ids)
            if (unfit := self.player.explain_unfit(length)) is not None:
                self.fits = False
                detail = f"the opening has {length} tokens, {unfit}"
                await self._stop(episode, Code.MAX_TOKENS, aborted=True, detail=detail)
            while episode.end is None:
                await self._turn(self.row)
        finally:
            await episode.close()

    async def _turn(self, row: TokenRow) -> None:
        """Take one turn: a message of the policy, and the environment's answer."""
        episode, settings = row.episode, self.player.settings
        room = self.player.room(row)
        if room <= 0:
            return await self._stop(episode, Code.MAX_TOKENS, detail="no room for another turn")
        started = time.monotonic()
        try:
            reply = await self._reply(row.context, min(room, settings.turn_tokens or room))
        except PolicyLostError as lost:
            return await self._stop(episode, lost.code, aborted=True, detail=str(lost))
        finally:
            self.policy_seconds += time.monotonic() - started
        self.logprobs = self.logprobs and reply.logprobs is not None
        ids, logprobs = reply.ids[:room], reply.logprobs[:room] if reply.logprobs is not None else None
        try:
            await self._world(self.player.text.act(row, ids, logprobs, heard=self._shortened))
        except TimeoutError:
            await self._stop(episode, Code.TIMEOUT, aborted=True, detail="the environment took too long")
        return None

    async def _reply(self, context: list[int], most: int) -> PolicyReply:
        """Get the policy's reply. Raises `PolicyLostError` for any failure of the server, and at the time limit."""
        seconds = self.player.settings.turn_seconds
        if self.until is not None:
            left = self.until - time.monotonic()
            seconds = left if seconds is None else min(left, seconds)
        if seconds is not None and seconds <= 0:
            raise PolicyLateError(f"the episode took over {self.player.settings.episode_seconds:g} s")
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                reply = await self.generate(context, most)
        except (UserError, PolicyLostError):
            raise
        except Exception as error:
            if limit.expired():
                raise PolicyLateError(f"the policy's turn took over {seconds:g} s") from None
            raise PolicyLostError(f"{type(error).__name__}: {error}"[:500]) from error
        if not reply.ids:
            raise PolicyLostError("the policy's server gave an empty reply")
        if reply.logprobs is not None and len(reply.logprobs) != len(reply.ids):
            raise PolicyLostError(f"{len(reply.logprobs)} log-probabilities for {len(reply.ids)} ids")
        return reply

    async def _world(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """Await the environment for at most `world_seconds`."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.player.settings.world_seconds):
                return await doing
        finally:
            self.world_seconds += time.monotonic() - started

    async def _stop(self, episode: Episode, code: Code, *, aborted: bool = False, detail: str = "") -> None:
        """End the episode, scored unless it is aborted. A judge that does not answer in time leaves it without a reward."""
        try:
            await self._world(episode.stop(code, aborted=aborted, detail=detail))
        except TimeoutError:
            episode.reward = None

    def _shortened(self, messages: Sequence[Message]) -> list[Message]:
        most = self.player.settings.result_tokens
        if most is None:
            return list(messages)
        return [shorten_result(m, self.player.tokenizer, most) if m.role == "tool" else m for m in messages]


def shorten_result(message: Message, tokenizer: Any, most: int) -> Message:
    """Return a copy of the message with about `most` tokens of text, cut in the middle."""
    ids = tokenizer(message.text, add_special_tokens=False)["input_ids"]
    if len(ids) <= most:
        return message
    head, tail = ids[: most - most // 2], ids[len(ids) - most // 2 :]
    return message.model_copy(update={"content": tokenizer.decode(head) + GAP + tokenizer.decode(tail)})
