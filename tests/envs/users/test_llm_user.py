"""A model as the user: its side of the conversation, its own tools, its end, its failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia.envs.episode import MOST_USER_STEPS, Episode
from simia.envs.opening import open_environment
from simia.envs.users import LLMUser, UserSettings, UserStop
from simia.errors import Code
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import LLMFault, Reply, Request
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message
from tests.envs.worlds.test_simulated import Scripted, replies, result

LINE = ToolSpec(name="restart_phone", description="Restarts it.")
PACK = Pack(name="line", policy="Help.", tools=[ToolSpec(name="look", description="Looks.")], user="llm")
TASK = Task(id="t", instruction="Your phone has no signal. You are Mara.", profile={"mood": "short of time"})


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


async def test_it_speaks_until_it_says_the_word() -> None:
    model = Scripted(replies("Hi, no signal here.", "Yes, I am Mara.", "Great, thanks! ###STOP###"))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK)
        assert [message.content for message in episode.messages] == ["Hi, no signal here."]
        assert (await episode.step(say("Who are you?"))).messages[0].content == "Yes, I am Mara."
        step = await episode.step(say("It is mended."))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("terminated", Code.USER_STOP)
        assert step.messages[-1].content == "Great, thanks!"
    first, second, third = (request.messages for request in model.asked)
    assert "You are Mara." in first[0]["content"]
    assert "short of time" in first[0]["content"]
    assert [row["role"] for row in second[1:]] == ["user", "assistant", "user"]
    assert second[-1]["content"] == "Who are you?"
    assert third[0] == second[0]  # static first


async def test_a_task_without_a_conversation_has_no_user_model() -> None:
    model = Scripted(replies())
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK.model_copy(update={"conversation": False}))
        assert [message.content for message in episode.messages] == [TASK.instruction]
        step = await episode.step(say("Who are you?"))
        assert step.end is not None
        assert step.end.code == Code.ANSWERED
    assert not model.asked
    plain = TASK.model_copy(update={"conversation": False})
    assert "conversation" not in TASK.identity
    assert plain.identity["conversation"] is False


class Never:
    async def score(self, trajectory: Any, task: Task) -> Any:
        from simia.reward import Reward

        return Reward(value=0.0)


async def test_its_own_tools_are_called_and_the_agent_does_not_see_it() -> None:
    call = '<tool_call>\n{"name": "restart_phone", "arguments": {}}\n</tool_call>'
    texts = ["It is dead.", call, json.dumps({"answers": [result({"signal": "good"})]}), "I did: the signal is good."]
    model = Scripted(replies(*texts))
    pack = PACK.model_copy(update={"user_tools": [LINE]})
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(pack, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK)
        step = await episode.step(say("Please restart it."))
        assert [message.content for message in step.messages] == ["I did: the signal is good."]
        assert [message.role for message in episode.messages] == ["user", "assistant", "user", "tool", "user"]
        assert "restart_phone" in str(model.asked[0].messages[0]["content"])
        assert "signal" in str(model.asked[-1].messages[-1]["content"])


class Unasked:
    """A judge of nothing: an aborted episode is not scored."""

    async def score(self, *_: Any) -> Any:
        raise AssertionError


class Cut(Scripted):
    """A model that thinks first: what holds no words was cut at its limit."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        reply = await super().complete(request, draw=draw)
        cut = not reply.text.rpartition("</think>")[2].strip() or (
            "<think>" in reply.text and "</think>" not in reply.text
        )
        return reply.model_copy(update={"finish": "length" if cut else "stop"})


async def met(model: Scripted, *, pack: Pack = PACK, **settings: Any) -> tuple[Episode, MemoryJournal]:
    """An episode with this user, after one word of the agent if it lives so long."""
    journal = MemoryJournal()
    async with Engine(model, journal, EngineLimits(retries=0)) as engine:
        user = lambda task: LLMUser(engine, pack, task, UserSettings(**settings), name="i")  # noqa: E731
        environment = await open_environment(pack, backend="simulated", engine=engine, user=user, scorer=Unasked())
        episode = await environment.reset(TASK)
        if episode.end is None:
            await episode.step(say("Yes?"))
    return episode, journal


def aborted(episode: Episode) -> str:
    """Why it was, in the record."""
    assert episode.end is not None
    assert (episode.end.kind, episode.end.code) == ("aborted", Code.USER_FAILED)
    assert episode.reward is not None
    assert (episode.reward.value, episode.reward.error) == (None, Code.USER_FAILED)
    assert episode.issues[-1].code is Code.USER_FAILED
    return episode.issues[-1].detail


async def test_a_user_that_says_nothing_is_asked_once_more() -> None:
    model = Scripted(replies("Hello.", "   ", "I am Mara."))
    episode, journal = await met(model)
    assert episode.end is None
    assert [message.content for message in episode.messages] == ["Hello.", "Yes?", "I am Mara."]
    assert model.asked[1] == model.asked[2], "the same question"
    assert [draw for _, draw, _ in journal.requests.values()] == ["user/i/0", "user/i/1", "user/i/1+1"]


@pytest.mark.parametrize(("again", "asked"), [(0, 2), (1, 3), (2, 4)])
async def test_one_that_keeps_silent_aborts_and_is_not_scored(again: int, asked: int) -> None:
    model = Scripted(replies("Hello.", "   "))
    episode, _ = await met(model, again=again)
    assert aborted(episode) == "the user said nothing that can be read"
    assert len(model.asked) == asked


async def test_thoughts_are_not_said_and_one_cut_in_them_gets_twice_the_room() -> None:
    call = '<tool_call>{"name": "restart_phone", "arguments": {}}</tool_call>'
    model = Cut(
        replies(
            "They ask.\n</think>\n\nHello.",
            f"<think>\nDone? ###STOP### {call}",
            "<think>\nNo.\n</think>\n\nStill dead.",
        )
    )
    episode, _ = await met(model, pack=PACK.model_copy(update={"user_tools": [LINE]}))
    assert episode.end is None
    assert [message.content for message in episode.messages] == ["Hello.", "Yes?", "Still dead."]
    assert [request.max_tokens for request in model.asked] == [2048, 2048, 4096]


@pytest.mark.parametrize("text", ["", "<think>\nLet me see"])
async def test_one_that_only_thinks_aborts_and_says_what_to_raise(text: str) -> None:
    model = Cut(replies(text))
    episode, _ = await met(model, max_tokens=100)
    assert [request.max_tokens for request in model.asked] == [100, 200]
    assert "was cut at 200 tokens, raise user_settings.max_tokens" in aborted(episode)


async def test_one_that_only_calls_aborts() -> None:
    call = '<tool_call>\n{"name": "restart_phone", "arguments": {}}\n</tool_call>'
    done = json.dumps({"answers": [result({"signal": "none"})]})
    model = Scripted(lambda request: call if "You play a user" in str(request.messages[0]["content"]) else done)
    episode, _ = await met(model, pack=PACK.model_copy(update={"user_tools": [LINE]}))
    assert aborted(episode) == f"the user called tools {MOST_USER_STEPS} times and said nothing"


async def test_any_user_can_say_that_it_failed() -> None:
    class Lost:
        async def reply(self, view: Any) -> UserStop:
            return UserStop(Code.USER_FAILED, "the line is dead")

        def fork(self) -> Lost:
            return self

    async with Engine(Scripted(replies("")), MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(
            PACK, backend="simulated", engine=engine, user=lambda _: Lost(), scorer=Unasked()
        )
        assert aborted(await environment.reset(TASK)) == "the line is dead"


async def test_an_outage_of_the_user_aborts() -> None:
    def down(_: Request) -> str:
        raise LLMFault(Code.TIMEOUT, "", retry=False)

    async with Engine(Scripted(down), MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine)
        episode = await environment.reset(TASK)
        assert episode.end is not None
        assert (episode.end.kind, episode.end.code) == ("aborted", Code.TIMEOUT)
        assert episode.reward is not None
        assert episode.reward.value is None


async def test_a_fork_draws_for_itself() -> None:
    model = Scripted(replies("Hello.", "One.", "Two."))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK, name="i1")
        other = await episode.fork()
        first, second = await episode.step(say("Yes?")), await other.step(say("Yes?"))
        assert {first.messages[0].content, second.messages[0].content} == {"One.", "Two."}


async def test_calls_that_no_tool_of_the_user_serves_say_nothing() -> None:
    model = Scripted(replies('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK)
        assert aborted(episode)
        assert not [m for m in episode.messages if m.calls]
