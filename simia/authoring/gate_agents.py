"""Agents of the verification gate that do not read the task, and the episodes in which they play.

What such an agent does depends on the state at the start alone. Tasks that start alike share one episode of each of them, which is
then scored by every task's reward: the gate's price grows with the number of starts, not with that of agents times tasks.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import CANNED, Act, NothingAgent, RandomAgent, make_text_message
from simia.envs.play.player import play
from simia.envs.users import EpisodeView, NoUser, User
from simia.envs.worlds.executable import ExecutableBackend
from simia.task import Action, Task
from simia.trajectory import Message, ToolCall, Trajectory, digest, write_compact_json

LIMITS = EpisodeLimits(turns=200, errors=1_000)
MOST_CALLS = 250  # of the agent that makes all calls
RANDOM_EPISODES = 2


class AllCallsAgent:
    """Makes every call of the solutions of a pack, and says that all is done."""

    def __init__(self, calls: Sequence[Action]) -> None:
        self._calls: list[Action] | None = list(calls)

    async def act(self, view: EpisodeView) -> Act:
        calls, self._calls = self._calls, None
        if not calls:
            return make_text_message(CANNED), None
        made = [ToolCall(id=f"call_{n}", name=each.name, arguments=each.arguments) for n, each in enumerate(calls, 1)]
        return Message(role="assistant", calls=made), None


def list_all_calls(tasks: Sequence[Task], ends: Sequence[str], most: int = MOST_CALLS) -> list[Action]:
    """The agent's calls of the tasks' solutions, each once, `most` at most; a call that ends the episode comes last."""
    found: dict[str, Action] = {}
    for action in (action for task in tasks for action in task.actions if action.by == "agent"):
        found.setdefault(f"{action.name} {write_compact_json(action.arguments)}", action)
    last = [action for action in found.values() if action.name in ends][:1]
    return [*[action for action in found.values() if action.name not in ends][: most - len(last)], *last]


async def play_task(environment: Environment, task: Task, agent: Agent, user: User) -> Trajectory:
    """One episode of this task with this user."""
    arena = Environment(
        environment.pack, environment.backend, backend_name=environment.backend_name, user=lambda _: user, limits=LIMITS
    )
    return await play(await arena.reset(task), agent)


@dataclass(slots=True)
class CommonStart:
    """Tasks that start in the same state and show the same tools."""

    tasks: list[Task]
    made: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    parts: list[list[Task]] = field(default_factory=list)

    async def once(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """The result of `make`, which is awaited once for a name."""
        if name not in self.made:
            self.made[name] = asyncio.ensure_future(make())
        return await asyncio.shield(self.made[name])

    async def initial(self, backend: ExecutableBackend) -> Any:
        """The state at the start."""

        async def read() -> Any:
            world = await backend.open(self.tasks[0], seed=0)
            try:
                return await world.initial()
            finally:
                await world.close()

        return await self.once("initial", read)

    async def play_unread(self, environment: Environment, task: Task, *, calls: bool) -> dict[str, list[Trajectory]]:
        """Agent → its episodes: `nothing` and, with `calls`, `random` and `all_calls`."""
        first, pack = self.tasks[0], environment.pack
        found: dict[str, list[Trajectory]] = {
            "nothing": [
                await self.once("nothing", lambda: play_task(environment, first, NothingAgent(first), NoUser(first)))
            ]
        }
        if not calls:
            return found
        found["random"] = [
            await self.once(
                f"random {n}", functools.partial(play_task, environment, first, RandomAgent(first, n), NoUser(first))
            )
            for n in range(RANDOM_EPISODES)
        ]
        if not self.parts:
            self.parts = split_by_calls(self.tasks, pack.ends)
        number = next(n for n, part in enumerate(self.parts) if task in part)
        own = {each.id for each in self.parts[number]}
        wanted = list_all_calls(sorted(pack.tasks, key=lambda each: each.id not in own), pack.ends)
        found["all_calls"] = [
            await self.once(
                f"all {number}", lambda: play_task(environment, first, AllCallsAgent(wanted), NoUser(first))
            )
        ]
        return found


def split_by_calls(tasks: Sequence[Task], ends: Sequence[str]) -> list[list[Task]]:
    """Split tasks into parts for whose calls one episode has room."""
    parts: list[list[Task]] = [[]]
    for task in tasks:
        if parts[-1] and len(list_all_calls([*parts[-1], task], ends, MOST_CALLS + 1)) > MOST_CALLS:
            parts.append([])
        parts[-1].append(task)
    return parts


def group_by_start(tasks: Sequence[Task]) -> dict[str, CommonStart]:
    """Task id → its start. Tasks with goals are judged turn by turn, so each has a start of its own."""
    found: dict[str, CommonStart] = {}
    starts: dict[str, CommonStart] = {}
    for task in tasks:
        shown = [task.initial, task.tools, [reveal.model_dump() for reveal in task.reveals], task.limits.model_dump()]
        key = digest([*shown, task.id if task.goals else ""])
        start = starts.setdefault(key, CommonStart([]))
        start.tasks.append(task)
        found[task.id] = start
    return found
