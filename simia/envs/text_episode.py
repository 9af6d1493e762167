"""Play a pack's episodes as text, one after the other, for interfaces that pass strings: Gymnasium, OpenEnv and SkyRL.

The policy's turn is a text: Hermes calls and `<think>` are parsed, the rest is a message to the user. The answer is the tools' results or
the user's message. The work runs in the portal's thread, so synchronous code, threads and event loops of other servers can use it;
`share_environment` opens an environment once for all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from simia import event_loop
from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment, Episode, Step
from simia.envs.opening import open_environment
from simia.errors import Code, UserError
from simia.formats import tagged_calls as tagged
from simia.formats.hermes import join_system
from simia.reward import Reward
from simia.task import Task
from simia.trajectory import End, Message, ToolCall, Trajectory, digest

T = TypeVar("T")
Keep = Callable[[Trajectory], Awaitable[None]]
Stage = Environment | EnvironmentConfig | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextStep:
    """The answer to a reset or an action. `text` is all of it in Hermes' format, `messages` the same as chat rows.

    `value` includes the rewards of single turns. It is None while the episode runs, and for an `aborted` ending, which has no reward.
    """

    text: str
    messages: list[dict[str, str]]
    end: End | None = None
    reward: Reward | None = None

    @property
    def value(self) -> float | None:
        return self.reward.total if self.reward is not None else None

    @property
    def ended(self) -> str | None:
        """terminated, truncated or aborted; None while it runs. An end without a verdict counts as aborted, since it has no reward."""
        if self.end is None:
            return None
        return "aborted" if self.value is None else self.end.kind

    @property
    def code(self) -> Code | None:
        """The reason of the end or, if there is no verdict, the reason for that."""
        if self.end is None or self.reward is None or self.value is not None:
            return self.end.code if self.end else None
        return self.reward.error or self.end.code


class TextEpisodes:
    """Play one episode at a time: `reset`, then `act` until `ended`, and again.

    Concurrent calls wait for each other: an action of a client that has disconnected is completed before the episode is closed.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        seed: int = 0,
        keep: Keep | None = None,
        tasks: Mapping[str, Task] | None = None,
    ) -> None:
        """`keep` receives the trajectory of each episode with a turn, also of one that was left early. `tasks`: id → task, those to
        play; None: the environment's. Raises `UserError` for a pack without tasks."""
        self.tasks = {task.id: task for task in environment.tasks} if tasks is None else tasks
        if not self.tasks:
            raise UserError(f"pack {environment.pack.name} has no tasks: a trainer needs a tasks.jsonl")
        self.environment, self.seed = environment, seed
        self.episode: Episode | None = None
        self.turns = 0
        self._keep, self._kept = keep, True
        self._order = itertools.count()
        self._turn = asyncio.Lock()

    def keep_with(self, keep: Keep) -> None:
        """Give finished trajectories to `keep` from now on."""
        self._keep = keep

    async def reset(
        self, task: str | None = None, *, seed: int | None = None, group: str | None = None, name: str | None = None
    ) -> TextStep:
        """Start an episode and return its beginning: system text with tools, the user's first message.

        Without a `task` the seed selects it; without a seed tasks are played in their order. Raises `UserError` for a task that does
        not exist or is not among those to play. `name`: see `Environment.reset`.
        """
        async with self._turn:
            view = (await self._begin(task, seed, group, name)).view
            system = join_system(view.system, list(view.tools))
            rows = [] if system is None else [{"role": "system", "content": system}]
            rows += messages_to_rows(view.messages)
            return await self._heard("\n\n".join(row["content"] for row in rows), rows)

    async def begin(
        self, task: str | None, *, seed: int | None = None, group: str | None = None, name: str | None = None
    ) -> Episode:
        """Start an episode as `reset` does and return it, for callers that read messages. `name`: see `Environment.reset`."""
        async with self._turn:
            episode = await self._begin(task, seed, group, name)
            await self._settle(episode)
            return episode

    async def _begin(self, task: str | None, seed: int | None, group: str | None, name: str | None = None) -> Episode:
        if task is not None:
            self._refuse_other_task(task)
        chosen = task if task is not None else self.select_task(next(self._order) if seed is None else seed)
        await self._leave()
        world_seed = self.seed if seed is None else seed
        episode = await self.environment.reset(self.tasks[chosen], seed=world_seed, group=group, name=name)
        self.episode, self.turns, self._kept = episode, 0, False
        return episode

    def _refuse_other_task(self, task: str) -> None:
        """Refuse a task that is not among those to play, so that a held-out split stays held out."""
        if not isinstance(task, str):
            raise UserError(f"task: expected the id of a task as text, got {task!r}")
        if task in self.tasks:
            return
        self.environment.pack.task(task)  # an unknown task: this error suggests similar ids
        ids = list(self.tasks)
        shown = ", ".join(ids[:3]) + (", …" if len(ids) > 3 else "")
        raise UserError(f"task {task!r} is not among the {len(ids)} that are played here: {shown}")

    def select_task(self, number: int) -> str:
        return next(itertools.islice(self.tasks, number % len(self.tasks), None))

    async def act(self, action: str | Message) -> TextStep:
        """Take one turn of the policy; its calls get ids that are unique in the episode. If the episode was aborted at its
        reset, returns its end. Raises `UserError` where there is no running episode."""
        if not isinstance(action, str | Message):
            raise UserError(f"an action must be text or a Message, not {action!r}")
        async with self._turn:
            episode = self.episode
            if episode is None or (episode.end is not None and self.turns):
                raise UserError("there is no episode to act in: reset first")
            self.turns += 1
            if episode.end is not None:
                return await self._heard("", [])
            ids = f"call_{self.turns}"
            read = tagged.read_message(action, ids) if isinstance(action, str) else number_calls(action, ids)
            step = await episode.step(read)
            return await self._heard(messages_to_text(step.messages), messages_to_rows(step.messages))

    async def take(self, message: Message) -> Step:
        """Take one message of the policy as it is, its calls' ids included. Raises `ValueError` as `Episode.step` does."""
        async with self._turn:
            assert self.episode is not None
            self.turns += 1
            step = await self.episode.step(message)
            await self._settle(self.episode)
            return step

    async def end(self, code: Code, *, aborted: bool, detail: str, message: Message | None) -> Step:
        """End the episode from outside; see `Episode.stop`."""
        async with self._turn:
            assert self.episode is not None
            step = await self.episode.stop(code, aborted=aborted, detail=detail, message=message)
            await self._settle(self.episode)
            return step

    async def score(self) -> Reward:
        """Compute the reward of the episode as if it ended now."""
        async with self._turn:
            assert self.episode is not None
            return await self.episode.score()

    async def stop(self, code: Code) -> TextStep:
        """Truncate and score the episode, for a limit of the trainer's own."""
        async with self._turn:
            assert self.episode is not None
            await self.episode.stop(code)
            return await self._heard("", [])

    async def leave(self) -> None:
        """Close the episode. A running one is truncated, and scored where trajectories are kept."""
        async with self._turn:
            await self._leave()

    async def _leave(self) -> None:
        episode, self.episode = self.episode, None
        if episode is None:
            return
        if self._keep is not None and self.turns and episode.end is None:
            await episode.stop(Code.AGENT_FAILED, detail="the client left before the episode ended")
        await self._settle(episode)
        await episode.close()

    async def _heard(self, text: str, rows: list[dict[str, str]]) -> TextStep:
        assert self.episode is not None
        await self._settle(self.episode)
        return TextStep(text, rows, self.episode.end, self.episode.reward)

    async def _settle(self, episode: Episode) -> None:
        if episode.end is not None and not self._kept:
            self._kept = True
            if self._keep is not None:
                await self._keep(episode.trajectory)


def number_calls(message: Message, ids: str) -> Message:
    """Number the message's calls `{ids}_0`, `{ids}_1`, …"""
    calls = [call.model_copy(update={"id": f"{ids}_{i}"}) for i, call in enumerate(message.calls)]
    return message.model_copy(update={"calls": calls})


def messages_to_rows(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.text} for m in messages]


def render_call(call: ToolCall) -> str:
    """Write a call as NAME(ARGUMENTS), or its own text where it could not be read."""
    if call.arguments is None:
        return " ".join(f"call that cannot be read: {call.name} {call.raw or ''}".split())
    return f"{call.name}({call.arguments})"


def messages_to_text(messages: Sequence[Message]) -> str:
    """Write results between tags as in Hermes' format, and the user's messages as they are."""
    parts = []
    for results, some in itertools.groupby(messages, key=lambda m: m.role == "tool"):
        texts = [m.text for m in some]
        parts.append(tagged.join_results(texts) if results else "\n".join(texts))
    return "\n".join(parts)


# -- one environment for all callers -----------------------------------------------------------------------------


@dataclass(slots=True)
class SharedEnvironment:
    environment: Environment
    users: int = 0


@dataclass(slots=True)
class EnvironmentLease:
    """A share in an open environment. The last one to close it closes the environment; closing twice is harmless."""

    environment: Environment
    seed: int = 0
    key: str | None = None
    open: bool = field(default=True)

    def session(self, keep: Keep | None = None) -> TextEpisodes:
        return TextEpisodes(self.environment, seed=self.seed, keep=keep)

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        with _guard:
            shared = _shared.get(self.key) if self.key is not None else None
            if shared is None or self.key is None:
                return
            shared.users -= 1
            if not shared.users:
                del _shared[self.key]
                event_loop.run(shared.environment.close())


_guard = threading.Lock()
_shared: dict[str, SharedEnvironment] = {}


def share_environment(stage: Stage, *, store: Path | None = None) -> EnvironmentLease:
    """Open the environment of these settings once in this process: equal settings share one pack, its models and their pace.

    An open `Environment` (in the portal's loop) is used as it is, and its owner closes it. Raises `UserError`.
    """
    if isinstance(stage, Environment):
        return EnvironmentLease(stage)
    config = (
        stage
        if isinstance(stage, EnvironmentConfig)
        else parse_config(EnvironmentConfig, plain_mapping(stage), where="stage")
    )
    key = digest([config.model_dump(mode="json"), str(store)])
    with _guard:
        if key not in _shared:
            _shared[key] = SharedEnvironment(event_loop.run(open_environment(config, store=store)))
        _shared[key].users += 1
        return EnvironmentLease(_shared[key].environment, config.seed, key)


def plain_mapping(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a mapping of a trainer's own type, such as OmegaConf's, to plain values."""
    inner = {str(name): plain_mapping(value) if isinstance(value, Mapping) else value for name, value in stage.items()}
    return {
        name: [plain_mapping(each) if isinstance(each, Mapping) else each for each in value]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
        for name, value in inner.items()
    }


async def await_on_portal(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in the portal's loop and await it from another loop. It is completed even if the caller is cancelled."""
    return await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, event_loop.start_portal())))


def _forget_shared() -> None:
    """Forget shared environments in a forked child, which has no portal thread."""
    global _guard
    _guard = threading.Lock()
    _shared.clear()
    event_loop.start_portal.cache_clear()


os.register_at_fork(after_in_child=_forget_shared)
