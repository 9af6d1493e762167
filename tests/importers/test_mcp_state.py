"""Servers of the Model Context Protocol with state in memory: a shop by the official SDK, in the sandbox."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia.authoring.verification_gate import verify_tasks
from simia.envs.environment import Environment, Episode
from simia.envs.opening import open_environment
from simia.errors import Code, UserError
from simia.importers.mcp import import_server
from simia.importers.mcp_state import describe_state_tools
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall

HERE = Path(__file__).parent
SDK = ["mcp>=1.20,<2"]
STATE_TOOLS = ("load_scenario", "save_scenario")
MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy"


@pytest.fixture(scope="session")
def script(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server, where whoever runs the sandbox may read it."""
    folder = tmp_path_factory.mktemp("shop")
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    path = folder / "mcp_state_server.py"
    path.write_bytes((HERE / "mcp_state_server.py").read_bytes())
    path.chmod(0o644)
    return path


@pytest.fixture(scope="session")
def state_shop(script: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The server as a pack, and the lines of its import."""
    lines: list[str] = []
    out = import_server(
        ["python", str(script)], pip=SDK, out=tmp_path_factory.mktemp("packs") / "shop", state_tools=STATE_TOOLS,
        clock_variable="SHOP_NOW", environment={"REGION": "north"}, say=lines.append,
    )  # fmt: skip
    return SimpleNamespace(out=out, lines=lines, script=script)


async def use(episode: Episode, name: str, /, **arguments: Any) -> Message:
    step = await episode.step(Message(role="assistant", calls=[ToolCall(id="1", name=name, arguments=arguments)]))
    return step.messages[0]


def opened(state_shop: SimpleNamespace, out: Path | None = None) -> Any:
    return open_environment(str(out or state_shop.out), read=[str(state_shop.script.parent)])


async def begun(environment: Environment, **task: Any) -> Episode:
    return await environment.reset(Task(id="t", instruction="Go on.", **task))


CANCEL = [{"name": "cancel", "arguments": {"order_id": "O-1"}}]


def test_state_tools_are_hidden_and_the_start_is_in_the_pack(state_shop: SimpleNamespace) -> None:
    pack = Pack.load(state_shop.out)
    names = [tool.name for tool in pack.tools]
    assert names[:4] == ["orders", "cancel", "end", "look"]
    assert not set(names) & set(STATE_TOOLS)
    how = json.loads((state_shop.out / "mcp.json").read_bytes())
    assert how["state"] == {"load": "load_scenario", "save": "save_scenario", "argument": "scenario", "text": False}
    assert not how["tools"].keys() & set(STATE_TOOLS)
    state = json.loads((state_shop.out / "state.json").read_bytes())
    assert state == {"orders": {"O-1": {"status": "pending", "total": 5}}, "log": []}
    assert [part.kind for part in pack.task("example-orders").reward.parts] == ["trace", "state"]
    assert state_shop.lines[-3].endswith(": 12 tools, 2 example tasks")


def test_invalid_schemas_are_repaired_with_a_line_each(state_shop: SimpleNamespace) -> None:
    lines = [line for line in state_shop.lines if line.startswith(("repaired", "left out"))]
    assert lines == [
        "repaired: the tool orders: properties: {} added",
        "repaired: the tool required_flag: value: required: true moved to the object's required",
        'repaired: the tool any_type: value: type: "any" removed; other: type: null removed',
        "repaired: the tool no_type: type: object added",
        "repaired: the tool nothing: type: object added; properties: {} added",
        'repaired: the tool additional: additionalProperties: "false" became false',
        "repaired: the tool draft_4: value: exclusiveMinimum: true became 0; $schema removed",
        'repaired: the tool enumeration: value: enum: [1, 2] became ["1", "2"]; value: default: "3" removed',
        'repaired: the tool examples: required: true became []; value: examples: "x" became ["x"]',
        'left out: the tool hopeless: not a usable JSON Schema: "strnig" is not valid under any of the schemas listed in '
        "the 'anyOf' keyword",
    ]


async def test_repaired_tools_are_called(state_shop: SimpleNamespace) -> None:
    async with await opened(state_shop) as environment:
        episode = await begun(environment)
        assert json.loads((await use(episode, "draft_4", value=1)).text) == {"value": 1}
        refused = await use(episode, "draft_4", value=0)
        assert refused.error is Code.BAD_ARGUMENTS
        assert json.loads((await use(episode, "enumeration", value="2")).text) == {"value": "2"}
        await episode.close()


async def test_a_task_gives_the_start_and_the_state_is_seen(state_shop: SimpleNamespace) -> None:
    reward = {"parts": [{"kind": "state"}]}
    patch = {"patch": {"orders": {"O-2": {"status": "pending", "total": 7}}}}
    whole = {"state": {"orders": {"O-1": {"status": "shipped"}}}}
    async with await opened(state_shop) as environment:
        one = await begun(environment, initial=patch, reference=CANCEL, reward=reward)
        other = await begun(environment, initial=whole, reference=CANCEL, reward=reward)
        assert set(json.loads((await use(one, "orders")).text)) == {"O-1", "O-2"}
        assert json.loads((await use(other, "orders")).text) == {"O-1": {"status": "shipped"}}
        assert (await use(one, "cancel", order_id="O-1")).text == "cancelled"
        copy = await one.fork()  # rebuilt from the journal
        for episode, value in ((one, 1.0), (copy, 1.0), (other, 0.0)):
            step = await episode.step(Message(role="assistant", content="Done."))
            assert step.reward is not None
            assert step.reward.value == value
        assert one.evidence is not None
        changes = {tuple(change["path"]): change["new"] for change in one.evidence["changes"]}
        assert changes == {("log",): ["O-1"], ("orders", "O-1", "status"): "cancelled"}


async def test_state_tools_are_refused_if_called(state_shop: SimpleNamespace) -> None:
    async with await opened(state_shop) as environment:
        episode = await begun(environment, reference=CANCEL)
        for name in STATE_TOOLS:
            refused = await use(episode, name, scenario={"orders": {}})
            assert refused.error is Code.UNKNOWN_TOOL
        assert set(json.loads((await use(episode, "orders")).text)) == {"O-1"}
        await episode.close()
        backend = environment.backend
        world = await backend.open(Task(id="t"))  # past the environment's own check
        [done] = await world.call([ToolCall(id="1", name="load_scenario", arguments={"scenario": {}})])
        assert done.error is not None
        assert "there is no tool 'load_scenario'" in (done.content or done.detail)
        assert (await world.state())["orders"]["O-1"]["status"] == "pending"
        await world.close()


async def test_clock_environment_and_arguments_of_a_task(state_shop: SimpleNamespace, tmp_path: Path) -> None:
    async def look(environment: Environment, initial: dict[str, Any]) -> dict[str, Any]:
        episode = await begun(environment, initial=initial)
        seen: dict[str, Any] = json.loads((await use(episode, "look")).text)
        await episode.close()
        return seen

    async with await opened(state_shop) as environment:
        assert await look(environment, {}) == {"now": "2025-01-01T00:00:00", "region": "north", "words": []}
        own = {"clock": "2030-05-05T10:00:00", "environment": {"REGION": "south"}, "arguments": ["--day", "${CLOCK}"]}
        words = ["--day", "2030-05-05T10:00:00"]
        assert await look(environment, own) == {"now": "2030-05-05T10:00:00", "region": "south", "words": words}
        for initial, why in (
            (
                {"orders": {}},
                "initial has orders: it may have folder, files, environment, arguments, clock, state, patch",
            ),
            ({"environment": {"A": 1}}, "initial: arguments and the values of environment must be texts"),
            ({"state": []}, "initial: state must be a dict"),
            ({"state": {"orders": 3}}, "its tool load_scenario refused: orders must be an object"),
        ):
            with pytest.raises(UserError, match=why):
                await look(environment, initial)
    folder = tmp_path / "shop"
    shutil.copytree(state_shop.out, folder)
    text = (folder / "pack.yaml").read_text()
    (folder / "pack.yaml").write_text(text.replace("2025-01-01T00:00:00", "2026-02-03T04:05:06"))
    async with await opened(state_shop, folder) as environment:
        assert (await look(environment, {}))["now"] == "2026-02-03T04:05:06"


async def test_the_gate_sees_the_state(state_shop: SimpleNamespace, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(state_shop.out, folder)
    rows = [
        {"id": "cancel", "instruction": "Cancel O-1.", "reference": CANCEL, "reward": {"parts": [{"kind": "state"}]}},
        {
            "id": "nothing",
            "instruction": "See.",
            "reference": [{"name": "orders"}],
            "reward": {"parts": [{"kind": "state"}]},
        },
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pack = Pack.load(folder)
    async with await opened(state_shop, folder) as environment:
        cancel, nothing = (await verify_tasks(environment, pack.tasks)).verdicts
    assert cancel.passed, cancel.findings
    assert cancel.floor == 0.0
    assert not nothing.passed  # a state that the solution leaves as it is verifies nothing


async def test_a_server_that_ended_has_no_state_to_judge(state_shop: SimpleNamespace) -> None:
    async with await opened(state_shop) as environment:
        episode = await begun(environment, reference=CANCEL, reward={"parts": [{"kind": "state"}]})
        await use(episode, "end")
        step = await episode.step(Message(role="assistant", content="Done."))
        assert step.reward is None or step.reward.value in (None, 0.0)


def test_a_given_state_as_text(script: Path, tmp_path: Path) -> None:
    given = tmp_path / "start.json"
    given.write_text('{"orders": {"O-9": {"status": "pending"}}}')
    lines: list[str] = []
    out = import_server(
        ["python", str(script), "text"], pip=SDK, out=tmp_path / "text", state_tools=STATE_TOOLS, state=given, say=lines.append,
    )  # fmt: skip
    assert json.loads((out / "mcp.json").read_bytes())["state"]["text"] is True
    assert json.loads((out / "state.json").read_bytes()) == {"orders": {"O-9": {"status": "pending"}}, "log": []}
    assert "the server loads another state than it was given: log differ" in lines


def test_the_licence_is_the_sources(state_shop: SimpleNamespace, tmp_path: Path) -> None:
    assert Pack.load(state_shop.out).licence == "unknown"  # not that of the SDK, which --pip names
    source = state_shop.script.parent / "licensed"
    source.mkdir(mode=0o755)
    (source / "server.py").write_bytes(state_shop.script.read_bytes())
    (source / "LICENSE").write_text(MIT)
    out = import_server(["python", str(source / "server.py")], pip=SDK, out=tmp_path / "licensed")
    assert Pack.load(out).licence == "MIT"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"state_tools": ("load", "save_scenario")},
            r"^--state-tools: the server has no tool 'load'; it has: load_scenario, ",
        ),
        ({"state_tools": ("load_scenario", "cancel")}, r"^--state-tools: cancel needs arguments \(order_id\)"),
        (
            {"state_tools": ("load_scenario", "look"), "reset": ("no", {})},
            r"^the server has no tool 'no' to reset it with",
        ),
        ({"state_tools": ("cancel", "save_scenario")}, r"^its tool cancel refused: "),
        ({"state_tools": ("load_scenario", "end")}, r"^its tool end refused: the server has ended"),
    ],
)
def test_mistakes_are_one_line(script: Path, tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as error:
        import_server(["python", str(script)], pip=SDK, out=tmp_path / "out", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_how_a_state_is_loaded_follows_from_the_schema() -> None:
    save: dict[str, Any] = {"type": "object", "properties": {}}

    def load(properties: dict[str, Any], *required: str) -> tuple[Any, Any]:
        schema = {"type": "object", "properties": properties, "required": list(required)}
        found = describe_state_tools(("load", "save"), {"load": schema, "save": save})
        return found["argument"], found["text"]

    assert load({"scenario": {"type": "object"}}, "scenario") == ("scenario", False)
    assert load({"scenario": {"type": "string"}, "session": {}}, "scenario") == ("scenario", True)
    assert load({"data": {}}) == ("data", False)
    assert load({"orders": {}, "log": {}}) == (None, False)
    assert load({"orders": {}, "log": {}}, "orders", "log") == (None, False)
