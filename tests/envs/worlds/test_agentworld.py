"""The dialects of Qwen-AgentWorld: the rendered chat, how observations are read, and episodes against an endpoint in that form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import NoUser
from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.simulated.agentworld import cut_screen
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall, UnreadableAnswer
from simia.errors import Code, UserError
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall
from tests.envs.worlds.test_simulated import PACK, TASK, do, replies, simulated
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small

MCP: dict[str, Any] = {"dialect": "agentworld-mcp"}
TERMINAL: dict[str, Any] = {"dialect": "agentworld-terminal"}
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
KEYSTROKES = {
    "type": "object",
    "properties": {"keystrokes": {"type": "string"}, "duration": {"type": "number"}},
    "required": ["keystrokes"],
}
SHELL = Pack(
    name="shell",
    ends=["finish"],
    tools=[
        ToolSpec(name="run", description="Runs a command.", parameters=COMMAND),
        ToolSpec(name="press", description="Types.", parameters=KEYSTROKES),
        ToolSpec(name="finish", description="Ends it.", parameters={"type": "object", "properties": {}}),
    ],
)
AT = "root@localhost:/#"


async def test_the_chat_of_a_tool_world() -> None:
    observed = ['**Environment Observation:**\n{"order_id":"ORD-1","status":"pending"}', '{"status":"shipped"}']
    async with simulated(replies(*observed), **MCP) as (backend, model):
        world = await backend.open(TASK)
        calls = [
            ToolCall(id=name, name=name, arguments={"order_id": "ORD-1"}) for name in ("get_order", "cancel_order")
        ]
        first, second = await world.call(calls)
    assert (first.data, second.data) == ({"order_id": "ORD-1", "status": "pending"}, {"status": "shipped"})
    one, two = (request.messages for request in model.asked)
    system = one[0]["content"]
    assert one[0] == two[0]
    assert "**Tool World Model**" in system
    assert '{"name": "get_order", "description": "An order.", "parameters": {"type": "object"' in system
    assert '"returns": {"type": "object", "properties": {"status"' in system
    assert "Be kind." in system
    assert "Cancel ORD-1." in system
    assert [each["role"] for each in two] == ["system", "user", "assistant", "user"]
    assert one[1]["content"] == (
        '### Turn 1\n**Action:**\n```json\n{\n  "name": "get_order",\n  "arguments": {\n    "order_id": "ORD-1"\n  }\n}\n```'
    )
    assert two[1:3] == [one[1], {"role": "assistant", "content": observed[0]}]
    assert two[3]["content"].startswith('### Turn 2\n**Action:**\n```json\n{\n  "name": "cancel_order"')
    assert all(request.response_format is None for request in model.asked)


async def test_what_a_schema_simulator_is_not_given() -> None:
    async with simulated(replies('{"status":"pending"}'), knowledge="schema", **MCP) as (backend, model):
        await do(await backend.open(TASK), "get_order", order_id="ORD-1")
    assert "Cancel ORD-1." not in json.dumps(model.asked[0].messages)


def test_examples_are_turns_of_training_references() -> None:
    pack = Pack.load("customer_service")
    shown = SimulatedBackend(pack, **MCP).feedback.system
    assert "# Few-shot Examples" in shown
    assert '### Turn 1\n**Action:**\n```json\n{\n  "name": "' in shown
    assert "```\n**Environment Observation:**\n{" in shown
    assert "# Few-shot Examples" not in SimulatedBackend(pack, examples=0, **MCP).feedback.system


def test_an_instruction_for_one_answer_is_in_the_system_text() -> None:
    feedback = SimulatedBackend(PACK, **MCP).feedback
    asked = [("agent", ToolCall(id="c", name="get_order", arguments={"order_id": "ORD-1"}))]
    plain, steered = (feedback.messages(TASK, [], "", asked, **more) for more in ({}, {"steering": "Refuse it."}))  # type: ignore[arg-type]
    assert steered[0]["content"].endswith("before all other rules\nRefuse it.")
    assert steered[1:] == plain[1:]


@pytest.mark.parametrize(
    ("reply", "content", "failed"),
    [
        ('{"a": 1}', {"a": 1}, False),
        ('**Environment Observation:**\n{"a": 1}', {"a": 1}, False),
        ("<think>{}</think>\n**Environment Observation:**\nplain words", "plain words", False),
        ("thoughts with [1]\n</think>\n[1, 2]", [1, 2], False),
        ("<predicted_observation>1</predicted_observation><predicted_observation>\n[2]", [2], False),
        ('```json\n{"a": 1}\n```', {"a": 1}, False),
        ('{"type":"text","text":"{\\"a\\":1}"}', {"a": 1}, False),
        ('[{"type":"text","text":"two words"}]', "two words", False),
        ('[{"type":"text","id":1}]', [{"type": "text", "id": 1}], False),
        ('{"error": "there is none"}', {"error": "there is none"}, True),
        ('{"error": null, "a": 1}', {"error": None, "a": 1}, False),
        ("Error calling tool 'get_order': 1 validation error", {"error": "Error calling tool 'get_order': 1 validation error"}, True),
        ("status: error\nmessage: no", {"error": "status: error\nmessage: no"}, True),
        ("{not json", "{not json", False),
    ],
)  # fmt: skip
def test_observations_are_read(reply: str, content: Any, failed: bool) -> None:
    feedback = SimulatedBackend(PACK, **MCP).feedback
    [answer] = feedback.parse(reply, [ToolCall(id="c", name="get_order", arguments={})])
    assert (answer.content, answer.failed, answer.changes) == (content, failed, [])


@pytest.mark.parametrize("reply", ["", "<think>only thoughts", "thoughts</think>", "**Environment Observation:**\n  "])
def test_a_reply_without_an_observation_is_unreadable(reply: str) -> None:
    with pytest.raises(UnreadableAnswer):
        SimulatedBackend(PACK, **MCP).feedback.parse(reply, [ToolCall(id="c", name="get_order", arguments={})])


async def test_an_unreadable_reply_is_asked_for_again_with_the_same_messages() -> None:
    async with simulated(replies("<think>nothing", '{"status":"pending"}'), **MCP) as (backend, model):
        result = await do(await backend.open(TASK), "get_order", order_id="ORD-1")
    assert result.data == {"status": "pending"}
    assert model.asked[0].messages == model.asked[1].messages


async def test_the_oldest_turns_leave_a_full_prompt() -> None:
    long = json.dumps({"text": "x" * 900})
    async with simulated(replies(long), context=2_000, max_tokens=64, **MCP) as (backend, model):
        world = await backend.open(TASK)
        for number in range(12):
            await do(world, "get_order", order_id=f"A-{number}")
    last = model.asked[-1].messages
    assert len(last) < 24
    assert last[-1]["content"].startswith("### Turn 12\n")
    assert last[1]["content"].startswith(f"### Turn {12 - len(last[1:]) // 2}\n")
    assert sum(len(each["content"]) for each in last) < 2_000 * 3.6


async def test_the_chat_of_a_terminal() -> None:
    screens = [
        f"{AT} cd /app\nroot@localhost:/app#",
        "root@localhost:/app# printf 'a\n> b'\na\nb\nroot@localhost:/app#",
        "root@localhost:/app# top",
        "",
    ]
    async with simulated(replies(*screens), pack=SHELL, **TERMINAL) as (backend, model):
        world = await backend.open(Task(id="t"))
        results = [
            await do(world, "run", command="cd /app"),
            await do(world, "run", command="printf 'a\nb'"),
            await do(world, "press", keystrokes="top", duration=0.5),
        ]
        restored = await backend.open(Task(id="t"), snapshot=await world.snapshot())
        end = await do(restored, "finish")
    assert [each.content for each in results] == ["", "a\nb", screens[2]]
    assert (end.ends, end.content, len(model.asked)) == (True, "", 3)
    assert [each.answer.raw for each in restored.history] == [*screens[:3], ""]
    first, *_, last = (request.messages for request in model.asked)
    assert "**Terminal World Model**" in first[0]["content"]
    assert first[1]["content"] == (
        f"### Turn 1\n**Current State:**\n{AT}\n\n**Action:**\n```json\n"
        '[\n  {\n    "keystrokes": "cd /app\\n",\n    "duration": 5.0\n  }\n]\n```'
    )
    assert last[2]["content"] == f"**Environment Observation:**\n{screens[0]}"
    assert last[-1]["content"] == (
        '### Turn 3\n**Action:**\n```json\n[\n  {\n    "keystrokes": "top",\n    "duration": 0.5\n  }\n]\n```'
    )


def test_recorded_results_are_shown_as_screens() -> None:
    feedback = SimulatedBackend(SHELL, shell_prompt="me@box:~$", **TERMINAL).feedback
    history = [
        AnsweredCall("agent", "run", {"command": "ls"}, Answer("a.txt\n")),
        AnsweredCall("agent", "run", {"command": "cd /"}, Answer("", raw="me@box:~$ cd /\nme@box:/$")),
        AnsweredCall("agent", "run", {"command": "true"}, Answer("")),
    ]
    call = ToolCall(id="c", name="run", arguments={"command": "ls"})
    shown = [each["content"] for each in feedback.messages(Task(id="t"), history, "", [("agent", call)])]
    assert shown[1].startswith("### Turn 1\n**Current State:**\nme@box:~$\n\n")
    assert shown[2] == "**Environment Observation:**\nme@box:~$ ls\na.txt\nme@box:~$"
    assert shown[6] == "**Environment Observation:**\nme@box:/$ true\nme@box:/$"


@pytest.mark.parametrize(
    ("screen", "command", "output"),
    [
        (f"{AT} ls\na\nb\n{AT}", "ls", "a\nb"),
        (f"{AT} ls\na", "ls", "a"),  # still running
        (f"{AT} ls", "ls", ""),
        ("a\nb", "ls", "a\nb"),  # no echo
        ("ls\nls.txt", "ls", "ls\nls.txt"),  # no prompt before it
        (f"{AT} cat x\ncost: 5#\n{AT}", "cat x", "cost: 5#"),
        (f"{AT} su me\nme@localhost:/$", "su me", "me@localhost:/$"),  # another user's prompt is not known
    ],
)
def test_a_command_gets_what_lies_between_echo_and_prompt(screen: str, command: str, output: str) -> None:
    assert cut_screen(screen, command) == output


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**MCP, "knowledge": "state"}, "set knowledge to schema or reference"),
        ({**MCP, "ledger": True}, "leave out `ledger`"),
        (TERMINAL, "set dialect to agentworld-mcp"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        SimulatedBackend(PACK, **settings)


@pytest.fixture(scope="module")
def agentworld() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint("--respond", "tests.agentworld:respond")
    yield endpoint
    endpoint.stop()


async def test_tools_are_played_over_http(agentworld: FakeEndpoint, tmp_path: Path) -> None:
    agentworld.plan()
    pack = small(tmp_path / "todos")
    task = pack.task("todo-1")
    llm = {"kind": "openai", "base_url": agentworld.url, "model": "agentworld"}
    settings: dict[str, Any] = {"user": NoUser, "llm": llm, "reward": "rules", "temperature": 0.6, **MCP}
    async with await open_environment(pack, backend="shadow", **settings) as environment:
        trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    rows = trajectory.evidence["differences"]
    assert [row["name"] for row in rows] == ["list_todos", "finish_todo"]
    assert all(row["simulated"] == row["real"] for row in rows)
    async with await open_environment(pack, backend="simulated", **settings) as environment:
        episode = await environment.reset(task)
        result = await episode.world.call([ToolCall(id="c", name="finish_todo", arguments={"todo_id": "T-9999"})])
    assert (result[0].error, result[0].content) == (
        Code.TOOL_ERROR,
        '{"error":"there is no T-9999; list_todos gives the ids"}',
    )
    assert {request["body"]["temperature"] for request in agentworld.requests} == {0.6}


async def test_a_shell_is_played_over_http(agentworld: FakeEndpoint) -> None:
    agentworld.plan()
    llm = {"kind": "openai", "base_url": agentworld.url, "model": "agentworld"}
    async with await open_environment(
        SHELL, backend="simulated", user=NoUser, llm=llm, reward="rules", **TERMINAL
    ) as opened:
        episode = await opened.reset(Task(id="t", instruction="Look around."))
        found = [
            (await episode.world.call([ToolCall(id="c", name="run", arguments={"command": command})]))[0].content
            for command in ("cd /srv", "pwd", "echo hello there > note", "cat note", "cat other")
        ]
    assert found == ["", "/srv", "", "hello there", "cat: other: No such file or directory"]
