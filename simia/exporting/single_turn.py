"""Select the tasks that an agent can solve without a user, by calls and one final answer, and verify them by playing.

Programs that serve a pack to an agent in a container have no user who answers. A task is selected if its solution, played as calls and one
final answer, earns reward 1, and an agent that does nothing earns reward 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import Act, NothingAgent, make_text_message
from simia.envs.play.player import play
from simia.envs.users import EpisodeView, NoUser
from simia.errors import UserError
from simia.pack import Pack
from simia.reward_spec import AnswerSpec
from simia.task import Task
from simia.trajectory import Message, ToolCall

SPARE_TURNS = 50
"""Messages that an agent may write in addition to one for each call of the solution."""
FEWEST_TURNS = 100


@dataclass(slots=True)
class SingleTurnTasks:
    """The tasks that were selected, and why others were not."""

    tasks: list[Task] = field(default_factory=list)
    """Tasks whose solution earns reward 1, and in which doing nothing earns 0."""
    refused: dict[str, str] = field(default_factory=dict)
    """Task id → why the task was not selected."""


class SingleTurnAgent:
    """Makes the calls of a solution one by one, then gives the final answer."""

    def __init__(self, task: Task) -> None:
        self._calls = list(enumerate(task.agent_actions, 1))
        self._answer = make_final_answer(task)

    async def act(self, view: EpisodeView) -> Act:
        if not self._calls:
            return make_text_message(self._answer), None
        number, action = self._calls.pop(0)
        call = ToolCall(id=f"call_{number}", name=action.name, arguments=action.arguments)
        return Message(role="assistant", calls=[call]), None


def make_final_answer(task: Task) -> str:
    """Join the agent's messages of the solution; only the last one if the reward compares the whole answer."""
    words = [turn.agent for turn in task.make_script() if turn.agent is not None]
    exact = any(isinstance(part, AnswerSpec) and part.match == "exact" for part in task.reward.parts)
    return (words[-1] if exact else "\n".join(words)) if words else "Done."


def count_turns(task: Task) -> int:
    """Return how many messages an agent may write in an exported episode of this task."""
    return max(FEWEST_TURNS, len(task.actions) + SPARE_TURNS)


def explain_unsuitable(task: Task) -> str | None:
    """Say why a task cannot be done by one agent alone; None if it can."""
    if task.needs_user:
        return "needs a user who answers"
    if not task.solved:
        return "has no solution"
    if any(action.by == "user" for action in task.actions):
        return "its solution has calls of the user"
    return None


async def select_single_turn_tasks(
    pack: Pack, tasks: Sequence[Task], *, unsafe: bool = False, on_task: Callable[[], None] = lambda: None
) -> SingleTurnTasks:
    """Play each task's solution and an agent that does nothing; select the tasks that reward the first and not the second.

    Args:
        pack: A pack with code.
        tasks: Tasks of the pack.
        unsafe: Whether the pack's code runs without a sandbox.
        on_task: Called after each task.

    Raises:
        UserError: The pack has no code, or it cannot be opened.
    """
    if pack.executable is None:
        raise UserError(f"pack {pack.name} has no code to run: export it with --to verifiers or --to openenv")
    found = SingleTurnTasks()
    options: dict[str, Any] = {"unsafe": True} if unsafe else {}
    async with await open_environment(pack, backend="executable", user="none", **options) as environment:
        for task in tasks:
            reason = explain_unsuitable(task) or await explain_unsound(environment, task)
            if reason is None:
                found.tasks.append(task)
            else:
                found.refused[task.id] = reason
            on_task()
    return found


async def explain_unsound(environment: Environment, task: Task) -> str | None:
    """Play the solution and an agent that does nothing; say which of their rewards is wrong, or None."""
    limits = EpisodeLimits(turns=count_turns(task))
    arena = Environment(
        environment.pack, environment.backend, backend_name=environment.backend_name, user=NoUser, limits=limits
    )
    solved = await play(await arena.reset(task), SingleTurnAgent(task))
    value = solved.reward.value if solved.reward else None
    if value != 1:
        return f"its solution in one turn has reward {value}"
    idle = await play(await arena.reset(task), NothingAgent(task))
    value = idle.reward.value if idle.reward else None
    return None if value == 0 else f"doing nothing has reward {value}"
