"""Sixty-six episodes of customer_service with the reward that its rules give: solved ones, spoilt ones, and idle ones.

Made by playing, not written: the label is what the executable world says. Ways of being wrong: the last change is left out
and the words claim it all the same; another task's solution; one argument of a change is another one; a change too many;
nothing, the request repeated, or a general answer.
"""

from __future__ import annotations

from typing import Any

from simia.environment import Environment, open_environment
from simia.rollout.agent import Agent
from simia.rollout.play import play
from simia.rollout.scripted import CannedAgent, EchoAgent, NothingAgent, ReferenceAgent
from simia.task import Action, Task, Turn
from simia.trajectory import Trajectory
from simia.users import NoUser, ScriptedUser
from simia.verify.gate import without, writes_of

PACK = "customer_service"
OTHER = {
    "quantity": 9,
    "reason": "changed_mind",
    "street": "Lindenweg 4",
    "city": "Bonn",
    "email": "new.address@example.com",
}


async def labelled() -> list[tuple[str, Task, Trajectory]]:
    """(kind, task, episode), always in the same order."""
    async with await open_environment(PACK, user="none") as environment:
        tasks = environment.tasks
        changing = [task for task in tasks if any(writes(environment, action) for action in task.actions)]
        found: list[tuple[str, Task, Trajectory]] = []

        async def add(kind: str, task: Task, played: Task, agent: Agent, *, idle: bool = False) -> None:
            user = NoUser(task) if idle else ScriptedUser(played)
            arena = Environment(environment.pack, environment.backend, backend_name="executable", user=lambda _: user)
            found.append((kind, task, await play(await arena.reset(task), agent)))

        for task in tasks[::3][:24]:
            await add("reference", task, task, ReferenceAgent(task))
        for task in changing[1::5][:10]:
            full = await play(
                await Environment(
                    environment.pack,
                    environment.backend,
                    backend_name="executable",
                    user=lambda _, t=task: ScriptedUser(t),
                ).reset(task),
                ReferenceAgent(task),
            )
            short = without(task, writes_of(environment, task, full)[0])
            await add("last change left out", task, short, ReferenceAgent(short))
        for n, task in enumerate(changing[2::6][:8]):
            strange = changing[(7 * n + 5) % len(changing)]
            mixed = task.model_copy(update={"script": strange.script, "reference": strange.reference})
            await add("another task's solution", task, mixed, ReferenceAgent(mixed))
        for task in [each for each in changing if spoilt(environment, each)][3::4][:6]:
            wrong = spoilt(environment, task)
            assert wrong is not None
            await add("another argument", task, wrong, ReferenceAgent(wrong))
        for n, task in enumerate(changing[4::7][:6]):
            more = with_more(task, changing[(11 * n + 8) % len(changing)], environment)
            await add("a change too many", task, more, ReferenceAgent(more))
        for kind, agent in (("nothing", NothingAgent), ("echo", EchoAgent), ("canned", CannedAgent)):
            for task in changing[5::15][:4]:
                await add(kind, task, task, agent(task), idle=True)
        return found


def writes(environment: Environment, action: Action) -> bool:
    return (
        bool(environment.backend.writes.get(action.by, {}).get(action.name, True))
        if environment.backend.writes
        else action.name.split("_")[0] not in ("get", "find", "list", "search", "track", "check")
    )  # type: ignore[attr-defined]


def spoilt(environment: Environment, task: Task) -> Task | None:
    """The task with one argument of its last change replaced, in its script too."""
    for action in reversed(task.actions):
        name = next(
            (each for each in OTHER if each in action.arguments and action.arguments[each] != OTHER[each]), None
        )
        if name is not None and writes(environment, action):
            changed = action.model_copy(update={"arguments": {**action.arguments, name: OTHER[name]}})
            return replaced(task, action, [changed])
    return None


def with_more(task: Task, other: Task, environment: Environment) -> Task:
    """The task with a change of another task's solution after its own last one."""
    last, extra = task.actions[-1], next(action for action in other.actions if writes(environment, action))
    return replaced(task, last, [last, extra])


def replaced(task: Task, action: Action, by: list[Action]) -> Task:
    def put(actions: list[Action]) -> list[Action]:
        return [each for held in actions for each in (by if held is action else [held])]

    script = [turn if turn.calls is None else Turn(calls=put(turn.calls)) for turn in task.script]
    return task.model_copy(update={"script": script, "reference": put(task.reference)})


def label(trajectory: Trajectory) -> Any:
    return trajectory.reward.value if trajectory.reward else None
