"""Agents of the verification gate that do not read the task, and the episodes in which they play.

What such an agent does depends only on the start state. So tasks with equal starts share one episode of each agent, and the reward of
each of these tasks scores it: the gate's cost grows with the number of different starts, not with the number of tasks.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import (
    CANNED,
    Act,
    NothingAgent,
    RandomAgent,
    make_solution_messages,
    make_text_message,
)
from simia.envs.play.player import play
from simia.envs.users import EpisodeView, NoUser, User
from simia.envs.worlds.executable import ExecutableBackend
from simia.event_loop import start_shared
from simia.task import Action, Task
from simia.trajectory import Message, ToolCall, Trajectory, digest, write_compact_json

LIMITS = EpisodeLimits(turns=200, errors=1_000)
SPARE_TURNS = 50  # beyond one for each call of the solution
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


def list_all_calls(tasks: Sequence[Task], ends: Sequence[str]) -> list[Action]:
    """List the agent's calls in the tasks' solutions, in order and each once, `MOST_CALLS` at most. Of the calls that end an episode only the
    most frequent one is kept, as the last call."""
    found: dict[str, Action] = {}
    count: Counter[str] = Counter()
    for action in (action for task in tasks for action in task.agent_actions):
        key = describe_call(action)
        found.setdefault(key, action)
        count[key] += action.name in ends
    last = [found[key] for key, times in count.most_common(1) if times]
    return [*[action for action in found.values() if action.name not in ends][: MOST_CALLS - len(last)], *last]


def describe_call(action: Action) -> str:
    """A call as text, equal for equal calls."""
    return f"{action.name} {write_compact_json(action.arguments)}"


async def play_task(environment: Environment, task: Task, agent: Agent, user: User) -> Trajectory:
    """Play one episode of this task with this user. Its turn limit leaves room for the solution."""
    turns = max(LIMITS.turns, max(len(task.actions), len(make_solution_messages(task))) + SPARE_TURNS)
    arena = Environment(
        environment.pack,
        environment.backend,
        backend_name=environment.backend_name,
        user=lambda _: user,
        limits=LIMITS.model_copy(update={"turns": turns}),
    )
    return await play(await arena.reset(task), agent)


@dataclass(slots=True)
class CommonStart:
    """Tasks that start in the same state and show the same tools."""

    tasks: list[Task]
    made: dict[str, asyncio.Future[Any]] = field(default_factory=dict)

    async def once(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of `make`, which is called only once for each name."""
        if name not in self.made:
            self.made[name] = start_shared(make())
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

    async def play_unread(
        self, environment: Environment, task: Task, parts: Mapping[str, tuple[int, list[Task]]] | None
    ) -> dict[str, list[Trajectory]]:
        """Agent → its episodes: `nothing` and, with `parts` of the pack, `random` and `all_calls`."""
        first, pack = self.tasks[0], environment.pack
        found: dict[str, list[Trajectory]] = {
            "nothing": [
                await self.once("nothing", lambda: play_task(environment, first, NothingAgent(first), NoUser(first)))
            ]
        }
        if parts is None:
            return found
        found["random"] = [
            await self.once(
                f"random {n}", functools.partial(play_task, environment, first, RandomAgent(first, n), NoUser(first))
            )
            for n in range(RANDOM_EPISODES)
        ]
        number, part = parts[task.id]
        wanted = list_all_calls(part, pack.ends)
        found["all_calls"] = [
            await self.once(
                f"all {number}", lambda: play_task(environment, first, AllCallsAgent(wanted), NoUser(first))
            )
        ]
        return found


def split_by_calls(tasks: Sequence[Task]) -> dict[str, tuple[int, list[Task]]]:
    """Split a pack's tasks into parts whose different calls fit into one episode: task id → (number of its part, tasks of the part)."""
    parts: list[list[Task]] = [[]]
    known: set[str] = set()
    for task in tasks:
        own = {describe_call(action) for action in task.agent_actions}
        if parts[-1] and len(known | own) > MOST_CALLS:
            parts.append([])
            known = set()
        parts[-1].append(task)
        known |= own
    return {task.id: (number, part) for number, part in enumerate(parts) for task in part}


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
