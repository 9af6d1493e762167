"""The simulated world on the real local model, through the real engine: it is small, and what it gives must still be in form."""

from __future__ import annotations

import json

import pytest

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.pack import Pack

pytestmark = pytest.mark.usefixtures("local_model")


async def test_the_small_model_plays_tools_and_judge() -> None:
    whole = Pack.load("customer_service")
    names = {"get_order", "cancel_order"}
    tools = [tool for tool in whole.tools if tool.name in names]
    pack = whole.model_copy(update={"tools": tools, "policy": "You help customers with their orders.", "root": None})
    task = next(task for task in whole.tasks if task.actions and {a.name for a in task.actions} <= names)
    settings = {"llm": {"kind": "embedded"}, "max_tokens": 400, "oracle": {"max_tokens": 200}, "temperature": 0.0}
    async with await open_environment(pack, backend="simulated", user=ScriptedUser, **settings) as environment:
        trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    results = [message for message in trajectory.messages if message.role == "tool"]
    assert trajectory.end.kind == "terminated", trajectory.issues
    assert len(results) == len(task.actions)
    assert all(isinstance(json.loads(message.text), dict) for message in results)
    assert trajectory.reward is not None
    assert trajectory.reward.value in (
        0.0,
        1.0,
    )  # it says one or the other; that it is right is not asked of so small a judge
