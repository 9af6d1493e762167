"""Tasks of format 2 in a simulated world, and played by an agent behind an endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.llm_agent import LLMAgent, LLMAgentSettings, make_chat
from simia.envs.play.player import play
from simia.envs.users import EpisodeView
from simia.errors import Code
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.envs.test_new_tasks import THREE_GOALS, make_task, todo, value_of
from tests.envs.worlds.test_simulated import Scripted, result

__all__ = ["todo"]
ADD = {"name": "add_todo", "arguments": {"text": "Buy milk"}}
KINDS: dict[str, dict[str, Any]] = {
    "goals": {"goals": THREE_GOALS},
    "reveal": {
        "reveals": [{"turn": 2, "tools": ["add_todo"]}],
        "goals": [{"query": "Put 'Buy milk' on my list."}, {"query": "You have a tool for it now.", "calls": [ADD]}],
    },
    "withheld": {
        "instruction": "Something new belongs on my list.",
        "withheld": [{"fact": "'Buy milk', please.", "asked": "what"}],
        "script": [
            {"user": "Something new belongs on my list."}, {"agent": "What is it?"}, {"user": "'Buy milk', please."},
            {"calls": [ADD]}, {"agent": "Done."},
        ],
    },
    "penalty": {
        "instruction": "Put 'Buy milk' on my list.", "reference": [ADD],
        "reward": {"parts": [{"kind": "state"}], "penalties": [{"free": 1}]},
    },
}  # fmt: skip


def tools_and_judge(request: Request) -> str:
    """Each call gets a result, and each episode is solved."""
    if str(request.messages[0]["content"]).startswith("You judge"):
        return '{"why": "fine", "solved": true}'
    return json.dumps({"answers": [result({"ok": True})]})


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_is_played_in_a_simulated_world(todo: Path, kind: str) -> None:
    task = make_task(**KINDS[kind])
    model = Scripted(tools_and_judge)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        pack = Pack.load(todo)
        async with await open_environment(pack, backend="simulated", user="scripted", engine=engine) as environment:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    assert value_of(trajectory) == 1.0
    assert [call.name for _, _, call in trajectory.calls()] == [action.name for action in task.actions]
    assert not [m for m in trajectory.messages if m.error]
    judged = str(model.asked[-1].messages[1]["content"])
    assert task.actions[-1].name in judged


async def test_a_judge_reads_the_goals_and_penalties_lower_its_reward(todo: Path) -> None:
    model = Scripted(tools_and_judge)
    penalty = {"parts": [{"kind": "goals"}], "penalties": [{"free": 1, "each": 0.25}]}
    goals = [dict(goal) for goal in THREE_GOALS]
    goals[1] = {
        **goals[1],
        "parts": [{"kind": "answer", "expect": ["two entries"]}],
        "answer": "There are two entries.",
    }
    task = make_task(goals=goals, reward=penalty)
    async with (
        Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine,
        await open_environment(Pack.load(todo), backend="simulated", user="none", engine=engine) as opened,
    ):
        trajectory = await play(await opened.reset(task), ReferenceAgent(task))
    assert value_of(trajectory) == 0.5
    assert trajectory.reward is not None
    assert trajectory.reward.rationale.endswith("penalties: 0.5 off")
    judged = str(model.asked[-1].messages[1]["content"])
    wanted = judged.split("# What happened")[0]
    assert all(goal["query"] in wanted for goal in goals)
    assert "two entries" in wanted.split("# What the user must have been told")[1]


def read_task(request: Request) -> str:
    """An agent that does what the user's last message says; in text, as a small model writes it."""
    turns = [row for row in request.messages if row["role"] == "user"]
    text = str(turns[-1]["content"])
    if "<tool_response>" in text:
        return "Done: nothing else is open but 'Water the plants' and 'Buy milk'."
    calls = {
        "add_todo": ("milk", {"text": "Buy milk"}),
        "list_todos": ("open", {"open_only": True}),
        "finish_todo": ("watered", {"todo_id": "T-1001"}),
    }
    name = next((name for name, (word, _) in calls.items() if word in text.lower()), None)
    if "further tools are now available" in text.lower():
        name = "add_todo"
    if name is None or (name == "add_todo" and f'"{name}"' not in str(request.messages)):
        return "What should I do? I have no tool for that yet."
    return f"<tool_call>{json.dumps({'name': name, 'arguments': calls[name][1]})}</tool_call>"


async def play_agent(folder: Path, task: Task, model: Scripted, calls: str) -> Trajectory:
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        agent = LLMAgent(engine, LLMAgentSettings.model_validate({"calls": calls}), item="x")
        async with await open_environment(Pack.load(folder), user="none") as environment:
            return await play(await environment.reset(task), agent)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_behind_an_endpoint_plays_each_kind(todo: Path, kind: str) -> None:
    task = make_task(**KINDS[kind])
    trajectory = await play_agent(todo, task, Scripted(read_task), "hermes")
    assert value_of(trajectory) == 1.0, (trajectory.reward, [m.text for m in trajectory.messages])


async def test_revealed_tools_are_listed_to_an_endpoint_with_native_calls(todo: Path) -> None:
    model = Scripted(lambda _: "I have no tool for that.")
    trajectory = await play_agent(todo, make_task(**KINDS["reveal"]), model, "native")
    assert trajectory.end.code is Code.ANSWERED
    listed = [[tool["function"]["name"] for tool in request.extra_body["tools"]] for request in model.asked]
    assert listed == [["list_todos", "finish_todo"], ["list_todos", "finish_todo", "add_todo"]]


def test_an_integer_beyond_64_bits_stays_in_the_next_prompt() -> None:
    call = ToolCall(id="1", name="finish_todo", arguments={"todo_id": 10**30})
    messages = (Message(role="user", content="It is done."), Message(role="assistant", calls=[call]))
    (_, row) = make_chat(EpisodeView(None, messages, ()))
    assert row["tool_calls"][0]["function"]["arguments"] == '{"todo_id":1' + "0" * 30 + "}"
