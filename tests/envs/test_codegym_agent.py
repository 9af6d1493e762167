"""A model behind an endpoint plays a gym in CodeGym's dialect: the requests are the rows of supervised training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simia.envs.opening import open_environment
from simia.envs.play.llm_agent import LLMAgent, LLMAgentSettings
from simia.envs.play.player import play
from simia.errors import Code
from simia.exporting import CardFacts, export
from simia.formats.codegym import BEGIN, END
from simia.llm.engine import Engine, EngineLimits
from simia.llm.types import Request
from simia.trajectory import Trajectory
from tests.envs.gym_packs import write_gym_pack
from tests.envs.test_new_tasks_by_model import MemoryJournal, Scripted

REPLIES = [
    f'{BEGIN}[{{"name": "observe", "parameters": {{}}}}]{END}',
    f'I look at two.\n{BEGIN}[{{"name": "look_up", "parameters": {{"index": 1}}}}, {{"name": "look_up", "parameters": {{"index": 2}}}}]{END}',
    f"{BEGIN}[{{'name': 'look_up'}}]{END}",
    f'{BEGIN}{{"name": "look_up", "arguments": {{"index": 2}}}}',
    f'{BEGIN}[{{"name": "done", "parameters": {{"answer": 9}}}}]{END}',
]


def answer(request: Request) -> str:
    return REPLIES[sum(row["role"] == "assistant" for row in request.messages)]


async def play_gym(folder: Path, model: Scripted, **sampling: Any) -> Trajectory:
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        agent = LLMAgent(engine, LLMAgentSettings.model_validate({"calls": "codegym", **sampling}), item="x")
        settings = {"turns": 256, "calls_per_message": 1}
        async with await open_environment(str(folder), user="none", episode=settings) as environment:
            return await play(await environment.reset("easy-01"), agent)


async def test_an_agent_wins_with_one_call_a_step(tmp_path: Path) -> None:
    write_gym_pack(tmp_path / "gym")
    model = Scripted(answer)
    trajectory = await play_gym(tmp_path / "gym", model)
    assert trajectory.reward is not None
    assert trajectory.reward.value == 1.0
    results = [(m.error, m.text) for m in trajectory.messages if m.role == "tool"]
    assert [error for error, _ in results] == [None, None, Code.MAX_CALLS, Code.UNPARSABLE_ARGUMENTS, None, None]
    assert results[4][1] == "9"
    last = model.asked[-1].messages
    assert [row["role"] for row in last] == ["system", *["user", "assistant"] * 4, "user"]
    assert last[5]["content"].startswith("<tool_response>\n5\n</tool_response>\n<tool_response>\n")
    assert model.asked[0].extra_body == {}, "the tools are in the system text"

    clean = trajectory.model_copy(update={"messages": [*trajectory.messages[:3], *trajectory.messages[-2:]]})
    export([clean], tmp_path / "out", to="codegym", facts=CardFacts())
    row = json.loads((tmp_path / "out" / "data.jsonl").read_text())["messages"]
    assert row[:4] == last[:4], "a policy is rolled out on what it was trained on"


async def test_a_small_models_list_without_marks_is_read_where_that_is_set(tmp_path: Path) -> None:
    write_gym_pack(tmp_path / "gym")
    reply = '```json\n[{"name": "done", "parameters": {"answer": 9}}]\n```'
    for bare, value in ((True, 1.0), (False, 0.0)):
        trajectory = await play_gym(tmp_path / "gym", Scripted(lambda _: reply), bare=bare)
        assert trajectory.reward is not None
        assert trajectory.reward.value == value
