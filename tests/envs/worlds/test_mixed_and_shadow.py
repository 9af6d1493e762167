"""One agent script in four worlds, chosen by one word; what mixed and shadow keep of both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eval.simulator.code_simulator import CodeSimulator
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.envs.worlds.mixed_and_shadow import make_shadow_backend
from simia.errors import Code, UserError
from simia.evaluation.change_fidelity import compare_rewards
from simia.evaluation.fidelity import measure_fidelity
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import LLMFault, Request
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory
from tests.envs.worlds.test_simulated import Scripted, result
from tests.packs.small import small

WORLDS: list[Any] = [
    "executable",
    "simulated",
    "shadow",
    {"*": "simulated"},
    {"*": "executable", "add_todo": "simulated"},
]


def tools_or_judge(request: Request) -> str:
    """Every call gives `{"ok": true}`, every episode is solved."""
    if str(request.messages[0]["content"]).startswith("You judge"):
        return '{"why": "fine", "solved": true}'
    return json.dumps({"answers": [result({"ok": True})]})


@pytest.fixture
def todos(tmp_path: Path) -> Pack:
    """Its tools declare no tables, so that any of them may be simulated."""
    small(tmp_path / "todos")
    pack = Pack.load(tmp_path / "todos")
    return pack.model_copy(update={"tools": [tool.public for tool in pack.tools]})


@asynccontextmanager
async def opened(pack: Pack, backend: Any, model: Scripted) -> AsyncIterator[Environment]:
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        settings = {} if backend == "executable" else {"engine": engine}
        environment = await open_environment(pack, backend=backend, user=ScriptedUser, **settings)
        async with environment:
            yield environment


@pytest.mark.parametrize("backend", WORLDS, ids=str)
async def test_one_script_runs_unchanged_in_every_world(todos: Pack, backend: Any) -> None:
    async with opened(todos, backend, Scripted(tools_or_judge)) as environment:
        for task in environment.tasks:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
            assert trajectory.end.kind == "terminated"
            assert trajectory.reward is not None
            assert trajectory.reward.value == 1.0
            names = [call.name for message in trajectory.messages for call in message.calls]
            assert names == [action.name for action in task.actions]
            assert trajectory.extra["backend"] == (backend if isinstance(backend, str) else "mixed")


async def test_in_the_shadow_the_real_answers_count_and_the_differences_are_kept(todos: Pack) -> None:
    model = Scripted(tools_or_judge)
    async with opened(todos, "shadow", model) as environment:
        task = environment.tasks[0]
        trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    evidence = trajectory.evidence or {}
    rows = evidence["differences"]
    assert [row["name"] for row in rows] == [action.name for action in task.actions]
    assert all(row["simulated"] == {"content": {"ok": True}, "failed": False} for row in rows)
    assert all(row["real"]["content"] != {"ok": True} for row in rows)
    assert evidence["changes"] == evidence["expected"] != []
    if len(rows) > 1:  # it is asked about the next call in the world as it truly is
        text = json.dumps(rows[0]["real"]["content"], separators=(",", ":"))
        assert f"result: {text}" in str(model.asked[-1].messages[1]["content"])


async def test_a_shadow_episode_with_an_integer_beyond_64_bits_can_be_forked(todos: Pack) -> None:
    any_arguments = {"parameters": {"type": "object"}}
    pack = todos.model_copy(update={"tools": [tool.model_copy(update=any_arguments) for tool in todos.tools]})
    async with opened(pack, "shadow", Scripted(tools_or_judge)) as environment:
        episode = await environment.reset(environment.tasks[0])
        call = ToolCall(id="1", name="list_todos", arguments={"limit": 10**30})
        await episode.step(Message(role="assistant", calls=[call]))
        other = await episode.fork()
        await other.close()
        await episode.close()


async def test_a_lost_simulator_does_not_disturb_the_real_episode(todos: Pack) -> None:
    def down(_: Request) -> str:
        raise LLMFault(Code.SERVER_ERROR, "503", retry=False)

    async with opened(todos, "shadow", Scripted(down)) as environment:
        task = environment.tasks[0]
        trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    assert trajectory.reward is not None
    assert trajectory.reward.value == 1.0
    assert all("server_error" in row["lost"] for row in (trajectory.evidence or {})["differences"])


async def test_the_simulator_sees_what_ran_for_real(todos: Pack) -> None:
    model = Scripted(tools_or_judge)
    async with opened(todos, {"*": "simulated", "add_todo": "executable"}, model) as environment:
        episode = await environment.reset(environment.tasks[0])
        calls = [
            ToolCall(id="1", name="add_todo", arguments={"text": "buy milk"}),
            ToolCall(id="2", name="list_todos", arguments={}),
        ]
        step = await episode.step(Message(role="assistant", calls=calls))
        assert step.messages[0].error is None
        assert "buy milk" in str(model.asked[0].messages[1]["content"])
        assert step.messages[1].content == '{"ok":true}'
        other = await episode.fork()
        assert await other.world.state() == await episode.world.state()  # type: ignore[union-attr]
        await other.close()
        await episode.close()


@pytest.mark.parametrize(
    ("routes", "words"), [({"no_tool": "executable"}, "no tool 'no_tool'"), ({"*": "real"}, "executable or simulated")]
)
async def test_routes_that_lead_nowhere(todos: Pack, routes: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        await open_environment(todos, backend=routes)


def declare(pack: Pack, contracts: dict[str, tuple[list[str], list[str]]]) -> Pack:
    """The pack with these tables read and written by its tools."""
    tools = [
        tool.model_copy(update={"reads": contracts[tool.name][0], "writes": contracts[tool.name][1]})
        for tool in pack.tools
    ]
    return pack.model_copy(update={"tools": tools})


LIST_AND_CHANGE = {
    "list_todos": (["todos"], []),
    "add_todo": (["todos"], ["todos"]),
    "finish_todo": (["todos"], ["todos"]),
}


async def test_a_simulated_write_of_what_a_real_tool_reads_is_refused(
    todos: Pack, caplog: pytest.LogCaptureFixture
) -> None:
    routes = {"*": "executable", "add_todo": "simulated"}
    pack = declare(todos, LIST_AND_CHANGE)
    with pytest.raises(UserError, match=r"add_todo is simulated and writes todos, which the executed \w+ reads"):
        await open_environment(pack, backend=routes, engine=None)
    async with Engine(Scripted(tools_or_judge), MemoryJournal(), EngineLimits(retries=0)) as engine:
        async with await open_environment(pack, backend=routes, engine=engine, split_state=True):
            pass
        assert "add_todo is simulated and writes todos" in caplog.text
        caplog.clear()
        apart = {**LIST_AND_CHANGE, "add_todo": (["notes"], ["notes"])}
        async with await open_environment(declare(todos, apart), backend=routes, engine=engine):
            assert caplog.text == ""
        async with await open_environment(todos, backend=routes, engine=engine):
            assert "Declare reads and writes" in caplog.text


async def test_identifiers_that_both_worlds_invent_are_paired(todos: Pack) -> None:
    def answer(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        last = text[text.rindex("add_todo") :] if "add_todo" in text else ""
        return json.dumps({"answers": [result({"todo_id": "T-0007"} if last else {"ok": True})]})

    async with opened(todos, "shadow", Scripted(answer)) as environment:
        episode = await environment.reset(environment.tasks[0])
        await episode.step(
            Message(role="assistant", calls=[ToolCall(id="1", name="add_todo", arguments={"text": "buy milk"})])
        )
        assert episode.world is not None
        row = (await episode.world.evidence())["differences"][0]
        real = row["real"]["content"]["todo_id"]
        assert real != "T-0007"
        assert row["names"] == {"T-0007": real}
        specs = {tool.name: tool for tool in todos.tools}
        assert measure_fidelity([row], specs).total.value_f1 == 1.0
        assert measure_fidelity([{**row, "names": {}}], specs).total.value_f1 == 0.0
        await episode.close()


async def test_a_perfect_simulator_does_not_drift_and_a_wrong_change_stays(tmp_path: Path) -> None:
    """In free running the held state is compared with the true one after each call, and rules judge both at the end."""
    pack = small(tmp_path / "todos")
    task = max(pack.tasks, key=lambda each: len(each.actions))

    async def run(corrupt: Any = None) -> Trajectory:
        model = CodeSimulator(pack, corrupt=corrupt)
        async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
            environment = await open_environment(
                pack, backend="shadow", user=ScriptedUser, engine=engine, knowledge="code", forced=False, again=0
            )
            async with environment:
                return await play(await environment.reset(task), ReferenceAgent(task))

    def lose(answer: dict[str, Any], _: Request) -> dict[str, Any]:
        return {**answer, "changes": []}

    for corrupt in (None, lose):
        trajectory = await run(corrupt)
        rows = (trajectory.evidence or {})["differences"]
        drift = [row["drift"] for row in rows]
        true = [row["transition"]["delta"] for row in rows]
        assert sum(true) > 0
        assert drift == [0 if corrupt is None else sum(true[: n + 1]) for n in range(len(true))]
        assert [row["transition"]["exact"] for row in rows] == [corrupt is None or not delta for delta in true]
        found = measure_fidelity([{**row, "episode": "e"} for row in rows], {})
        assert [each.value for each in found.drift.values()] == drift
        rewards = compare_rewards([trajectory], {pack.name: pack})
        assert rewards is not None
        assert (rewards.both, rewards.agreed) == (1, corrupt is None)


async def test_a_made_up_key_that_no_result_names_is_no_drift() -> None:
    """The result of cancel_order does not show the refund's key, so only the changes pair it with the true one."""
    pack = Pack.load("customer_service")
    task = next(task for task in pack.tasks if any(call.name == "cancel_order" for call in task.actions))

    def rename(answer: dict[str, Any], _: Request) -> dict[str, Any]:
        other = {"key": "REF-0001"}
        return {
            **answer,
            "changes": [each | (other if each["table"] == "refunds" else {}) for each in answer["changes"]],
        }

    model = CodeSimulator(pack, corrupt=rename)
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(
            pack, backend="shadow", user=ScriptedUser, engine=engine, knowledge="code", forced=False, again=0
        )
        async with environment:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    rows = (trajectory.evidence or {})["differences"]
    assert [row["drift"] for row in rows] == [0] * len(task.actions)
    [names] = [row["transition"]["names"] for row in rows if row["name"] == "cancel_order"]
    assert list(names) == ["REF-0001"]
    assert names["REF-0001"] != "REF-0001"


async def test_calls_that_are_followed_are_not_asked_for(todos: Pack) -> None:
    model = Scripted(tools_or_judge)
    task = max(todos.tasks, key=lambda each: len(each.actions))
    *before, last = task.actions
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        backend = make_shadow_backend(todos, engine=engine, knowledge="schema")
        await backend.start()
        world = await backend.open(task)
        for n, action in enumerate(before):
            await world.follow(ToolCall(id=str(n), name=action.name, arguments=action.arguments))
        assert (world.differences, model.asked) == ([], [])
        await world.call([ToolCall(id="last", name=last.name, arguments=last.arguments)])
        await world.close()
        await backend.close()
    assert [row["name"] for row in world.differences] == [last.name]
    assert len(model.asked) == 1
    assert str(model.asked[0].messages[1]["content"]).count("result: ") == len(before)
