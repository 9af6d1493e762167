"""A policy that does not read the task earns nothing in our packs, unless its final state is the solution's.

Every task is played by agents that do nothing, make the calls of all solutions, make some of them at random, or play the solution of
another task. Unlike the gate, which plays most of these once for all tasks that start alike, each is an episode of the task's own.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Iterator, Sequence

import pytest

from simia.authoring.gate_agents import AllCallsAgent, list_all_calls
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import CannedAgent, NothingAgent, RandomAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.rewards.state_match import judge_state
from simia.envs.users import NoUser, ScriptedUser, User
from simia.pack import Pack
from simia.reward_spec import StateSpec
from simia.task import Action, Task
from simia.trajectory import Trajectory

LIMITS = EpisodeLimits(turns=200, errors=1_000)
SOME = 12  # calls at random


@functools.cache
def pack(name: str) -> Pack:
    return Pack.load(name)


def unread(tasks: Sequence[Task], task: Task) -> Iterator[tuple[str, Agent, User]]:
    """Policies that do not read the task: name, agent and user."""
    calls = list_all_calls(tasks, [])
    others = [each for each in tasks if each.id != task.id]
    chance = random.Random(task.id)
    some: list[Action] = chance.sample(calls, min(SOME, len(calls)))
    other = chance.choice(others)
    yield "nothing", NothingAgent(task), NoUser(task)
    yield "canned", CannedAgent(task), NoUser(task)
    yield "all calls", AllCallsAgent(calls), NoUser(task)
    yield "some calls", AllCallsAgent(some), NoUser(task)
    yield "random calls", RandomAgent(task, 7, calls=20), NoUser(task)
    yield f"solution of {other.id}", ReferenceAgent(other), ScriptedUser(other)


async def played(environment: Environment, task: Task, agent: Agent, user: User) -> Trajectory:
    arena = Environment(
        environment.pack, environment.backend, backend_name=environment.backend_name, user=lambda _: user, limits=LIMITS
    )
    return await play(await arena.reset(task), agent)


def same_state(trajectory: Trajectory, loaded: Pack) -> bool:
    judged = judge_state(trajectory, StateSpec(), loaded.match)
    return judged.value == 1.0 and not judged.vacuous


async def rewarded(environment: Environment, task: Task) -> list[str]:
    """Policies that earn anything, and that they should not have."""
    found = []
    for name, agent, user in unread(environment.pack.tasks, task):
        trajectory = await played(environment, task, agent, user)
        assert trajectory.reward is not None
        assert trajectory.reward.error is None, (task.id, name, trajectory.reward)
        if trajectory.reward.value and not same_state(trajectory, environment.pack):
            found.append(f"{task.id}: {name} earns {trajectory.reward.value}: {trajectory.reward.rationale}")
    return found


async def test_a_policy_that_does_not_read_the_task_earns_nothing_in_customer_service() -> None:
    async with await open_environment("customer_service", user="none") as environment:
        found = await asyncio.gather(*(rewarded(environment, task) for task in environment.tasks))
    assert [line for lines in found for line in lines] == []


@pytest.mark.all
@pytest.mark.usefixtures("environments")
async def test_a_policy_that_does_not_read_the_task_earns_nothing_in_office() -> None:
    room = asyncio.Semaphore(4)

    async def one(environment: Environment, task: Task) -> list[str]:
        async with room:
            return await rewarded(environment, task)

    async with await open_environment("office", user="none") as environment:
        found = await asyncio.gather(*(one(environment, task) for task in environment.tasks))
    assert [line for lines in found for line in lines] == []


@pytest.mark.parametrize("name", ["customer_service", "office"])
def test_every_task_judges_the_state_and_one_that_only_reads_the_answer_or_the_calls_too(name: str) -> None:
    for task in pack(name).tasks:
        kinds = {part.kind for part in task.reward.parts}
        assert "state" in kinds, task.id
        recorded = pack(name).references[task.id]
        assert recorded.reward is not None
        assert recorded.reward.value == 1.0
        assert [call.name for _, _, call in recorded.calls()] == [action.name for action in task.actions]
