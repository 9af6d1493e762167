"""Events of users: a script's messages are changed by code, a model is told by a fragment in its prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from simia.envs.episode import Episode
from simia.envs.opening import open_environment
from simia.envs.perturbation.checks import message_shows_event
from simia.envs.perturbation.settings import USER_EVENTS
from simia.errors import Code
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.prompts import read_lines
from simia.reward import Reward
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message, Trajectory
from tests.envs.worlds.test_simulated import Scripted

PACK = Pack(name="shop", policy="Help.", tools=[ToolSpec(name="look", description="Looks.")])
CALL = {"name": "look", "arguments": {"order_id": "ORD-4711"}}
SCRIPT = [{"user": "Where is my order ORD-4711?"}, {"agent": "On its way."}, {"user": "Thanks."}, {"agent": "Bye."}]
TASK = Task.model_validate({"id": "t", "instruction": "You want to know where your order ORD-4711 is.", "script": SCRIPT, "reference": [CALL]})  # fmt: skip


class Zero:
    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        return Reward(value=0.0)


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


@asynccontextmanager
async def started(
    kind: str, task: Task = TASK, user: str = "scripted", **more: Any
) -> AsyncIterator[tuple[Episode, Scripted]]:
    model = Scripted(more.pop("model", lambda _: "Hello?"))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(
            PACK, backend="simulated", engine=engine, scorer=Zero(), user=user, knowledge="schema",
            perturb={"schedule": [{"kind": kind, **more}]},
        )  # fmt: skip
        yield await environment.reset(task), model


async def talk(episode: Episode) -> list[str]:
    """The user's messages until the episode ends."""
    while episode.end is None:
        await episode.step(say("I see."))
    return [message.text for message in episode.messages if message.role == "user"]


async def test_an_impatient_user_says_so_in_the_same_message() -> None:
    async with started("impatience") as (episode, _):
        first, second = await talk(episode)
        said = first.removeprefix("Where is my order ORD-4711? ")
        assert said in read_lines("perturb/impatience.txt")
        assert second == "Thanks."


async def test_something_off_topic_comes_first_and_the_request_after_it() -> None:
    async with started("off_topic") as (episode, _):
        first, *rest = await talk(episode)
        assert first in read_lines("perturb/off_topic.txt")
        assert rest == ["Where is my order ORD-4711?", "Thanks."]


@pytest.mark.parametrize("kind", ["impatience", "change_of_mind"])
def test_ordinary_messages_seldom_show_the_event(kind: str) -> None:
    """A check that most messages pass would count what a model never said."""
    packs = [Pack.load(name) for name in ("customer_service", "hotel_front_desk", "job_seeking")]
    tasks = [task for pack in packs for task in pack.tasks]
    scripted = {line.user for task in tasks for line in task.script or [] if line.user}
    told = (
        scripted
        | {task.opening for task in tasks if task.opening}
        | {goal.query for task in tasks for goal in task.goals}
    )
    assert len(told) > 200
    assert sum(message_shows_event(kind, text, {}) for text in told) <= 0.05 * len(told)
    shown = {"impatience": "impatience", "change_of_mind": "doubts"}[kind]
    assert all(message_shows_event(kind, text, {}) for text in read_lines(f"perturb/{shown}.txt"))


async def test_a_change_of_mind_is_taken_back() -> None:
    async with started("change_of_mind") as (episode, _):
        first, second, third = await talk(episode)
        assert first.removeprefix("Where is my order ORD-4711? ") in read_lines("perturb/doubts.txt")
        assert second in read_lines("perturb/decisions.txt")
        assert third == "Thanks."


async def test_a_wrong_identifier_is_corrected_in_the_next_message() -> None:
    async with started("wrong_id") as (episode, _):
        first, second, third = await talk(episode)
        detail = episode.trajectory.perturbations[0].detail
        assert detail["right"] == "ORD-4711"
        assert first == f"Where is my order {detail['wrong']}?" != "Where is my order ORD-4711?"
        assert len(detail["wrong"]) == len("ORD-4711")
        assert "ORD-4711" in second
        assert detail["wrong"] in second
        assert third == "Thanks."


@pytest.mark.parametrize("kind", USER_EVENTS)
async def test_the_record_names_the_message(kind: str) -> None:
    async with started(kind) as (episode, _):
        await talk(episode)
        (record,) = episode.trajectory.perturbations
        assert (record.kind, record.tool, record.by, record.message, record.happened) == (kind, None, "code", 0, True)


async def test_a_message_without_an_identifier_leaves_the_event_for_a_later_one() -> None:
    script = [{"user": "Hi!"}, {"agent": "Hello."}, *SCRIPT]
    task = TASK.model_copy(update={"script": Task.model_validate({"id": "x", "script": script}).script})
    async with started("wrong_id", task) as (episode, _):
        assert (await talk(episode))[0] == "Hi!"
        assert episode.trajectory.perturbations[0].message == 2


async def test_tasks_whose_turns_are_counted_get_no_further_messages() -> None:
    goals = [{"query": "Where is ORD-4711?", "calls": [CALL]}, {"query": "Thanks.", "calls": [CALL]}]
    task = Task.model_validate({"id": "g", "goals": goals})
    for kind in ("off_topic", "change_of_mind", "wrong_id"):
        async with started(kind, task, user="none") as (episode, _):
            assert await talk(episode) == ["Where is ORD-4711?", "Thanks."]
            assert episode.trajectory.perturbations == []
            assert episode.trajectory.extra["missed_events"] == [{"kind": kind, "at": 1}]
    async with started("impatience", task, user="none") as (episode, _):
        assert len(await talk(episode)) == 2
        assert [each.kind for each in episode.trajectory.perturbations] == ["impatience"]


def follow(request: Request) -> str:
    """A user that does what the fragment says."""
    fragment = request.messages[0]["content"].partition("# Your next message")[2].strip()
    if "no longer sure" in fragment:
        return "I am not sure that I want this. Do nothing yet."
    if "made up your mind" in fragment:
        return "Go on, please."
    if "impatient" in fragment:
        return "Where is ORD-4711? This takes far too long."
    if "nothing to do with" in fragment:
        return "Do you like football?"
    if fragment.startswith("In this message name "):
        return f"Where is {fragment.split()[4]}?"
    if "correct yourself" in fragment:
        return "Sorry: it is ORD-4711."
    return "Where is ORD-4711?"


@pytest.mark.parametrize("kind", USER_EVENTS)
async def test_a_model_is_told_for_this_message_and_for_the_one_that_takes_it_back(kind: str) -> None:
    async with started(kind, user="llm", model=follow, at=2) as (episode, model):
        for _ in range(3):
            await episode.step(say("I see."))
        told = ["# Your next message" in request.messages[0]["content"] for request in model.asked]
        assert told == [False, True, kind != "impatience", False]
        (record,) = episode.trajectory.perturbations
        assert (record.kind, record.by, record.happened, record.message) == (kind, "model", True, 2)


@pytest.mark.parametrize("kind", USER_EVENTS)
async def test_a_model_that_does_not_follow_is_recorded_as_such(kind: str) -> None:
    async with started(kind, user="llm", model=lambda _: "It is ORD-4711, I told you.", at=2) as (episode, _):
        await episode.step(say("I see."))
        assert [each.happened for each in episode.trajectory.perturbations] == [False]


async def test_a_user_that_ends_the_episode_is_not_disturbed() -> None:
    async with started("impatience", user="llm", model=lambda _: "Bye. ###STOP###", at=1) as (episode, _):
        assert episode.end is not None
        assert episode.end.code is Code.USER_STOP
        assert episode.trajectory.perturbations == []
