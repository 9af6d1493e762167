"""A model as the user: its side of the conversation, its own tools, its end, its failures."""

from __future__ import annotations

import json
from typing import Any

from simia.environment import open_environment
from simia.errors import Code
from simia.llm.engine import Engine, Limits, MemoryJournal
from simia.llm.types import LLMFault, Request
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message
from tests.worlds.test_simulated import Scripted, replies, result

LINE = ToolSpec(name="restart_phone", description="Restarts it.")
PACK = Pack(name="line", policy="Help.", tools=[ToolSpec(name="look", description="Looks.")], user="llm")
TASK = Task(id="t", instruction="Your phone has no signal. You are Mara.", profile={"mood": "short of time"})


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


async def test_it_speaks_until_it_says_the_word() -> None:
    model = Scripted(replies("Hi, no signal here.", "Yes, I am Mara.", "Great, thanks! ###STOP###"))
    async with Engine(model, MemoryJournal(), Limits(retries=0)) as engine:
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


class Never:
    async def score(self, trajectory: Any, task: Task) -> Any:
        from simia.reward import Reward

        return Reward(value=0.0)


async def test_its_own_tools_are_called_and_the_agent_does_not_see_it() -> None:
    call = '<tool_call>\n{"name": "restart_phone", "arguments": {}}\n</tool_call>'
    texts = ["It is dead.", call, json.dumps({"answers": [result({"signal": "good"})]}), "I did: the signal is good."]
    model = Scripted(replies(*texts))
    pack = PACK.model_copy(update={"user_tools": [LINE]})
    async with Engine(model, MemoryJournal(), Limits(retries=0)) as engine:
        environment = await open_environment(pack, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK)
        step = await episode.step(say("Please restart it."))
        assert [message.content for message in step.messages] == ["I did: the signal is good."]
        assert [message.role for message in episode.messages] == ["user", "assistant", "user", "tool", "user"]
        assert "restart_phone" in str(model.asked[0].messages[0]["content"])
        assert "signal" in str(model.asked[-1].messages[-1]["content"])


async def test_a_user_that_fails_is_recorded_as_such() -> None:
    model = Scripted(replies("Hello.", "   "))
    async with Engine(model, MemoryJournal(), Limits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK)
        step = await episode.step(say("Yes?"))
        assert step.end is not None
        assert step.end.code is Code.USER_FAILED


async def test_an_outage_of_the_user_aborts() -> None:
    def down(_: Request) -> str:
        raise LLMFault(Code.TIMEOUT, "", retry=False)

    async with Engine(Scripted(down), MemoryJournal(), Limits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine)
        episode = await environment.reset(TASK)
        assert episode.end is not None
        assert (episode.end.kind, episode.end.code) == ("aborted", Code.TIMEOUT)
        assert episode.reward is not None
        assert episode.reward.value is None


async def test_a_fork_draws_for_itself() -> None:
    model = Scripted(replies("Hello.", "One.", "Two."))
    async with Engine(model, MemoryJournal(), Limits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK, name="i1")
        other = await episode.fork()
        first, second = await episode.step(say("Yes?")), await other.step(say("Yes?"))
        assert {first.messages[0].content, second.messages[0].content} == {"One.", "Two."}


async def test_calls_that_no_tool_of_the_user_serves_are_words() -> None:
    model = Scripted(replies('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'))
    async with Engine(model, MemoryJournal(), Limits(retries=0)) as engine:
        environment = await open_environment(PACK, backend="simulated", engine=engine, scorer=Never())
        episode = await environment.reset(TASK)
        assert episode.end is not None
        assert episode.end.code is Code.USER_FAILED
        assert not [m for m in episode.messages if m.calls]
