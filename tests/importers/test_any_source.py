"""`simia pack new --from`: packs from lists of tools in every form, and from seed trajectories with or without tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia import formats
from simia.amplification.session import open_preview
from simia.amplification.settings import AmplifyConfig, SeedSettings
from simia.authoring.inferred_tools import MARK, infer_tools, infer_value_schema
from simia.authoring.tool_lists import read_tool_list
from simia.errors import UserError
from simia.importers.any_source import detect_kind, find_gaps, start_pack
from simia.pack import Pack
from simia.tool import compile_schema
from tests.packs.small import small

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}, "required": ["city"]}
WORDS = "The weather of a city"
FORMS: dict[str, Any] = {
    "ours": [{"name": "weather", "description": WORDS, "parameters": SCHEMA}],
    "openai": [{"type": "function", "function": {"name": "weather", "description": WORDS, "parameters": SCHEMA}}],
    "openai responses": [{"type": "function", "name": "weather", "description": WORDS, "parameters": SCHEMA, "strict": True}],
    "openai request": {"model": "m", "tools": [{"type": "function", "function": {"name": "weather", "description": WORDS, "parameters": SCHEMA}}]},
    "anthropic": [{"name": "weather", "description": WORDS, "input_schema": SCHEMA}],
    "mcp": {"tools": [{"name": "weather", "description": WORDS, "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]},
    "mcp answer": {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "weather", "description": WORDS, "inputSchema": SCHEMA}]}},
    "gemini": [{"functionDeclarations": [{"name": "weather", "description": WORDS, "parameters": {
        "type": "OBJECT", "properties": {"city": {"type": "STRING", "description": "Where"}}, "required": ["city"]}}]}],
    "titled schema": {**SCHEMA, "title": "weather", "description": WORDS},
    "list of titled schemas": [{**SCHEMA, "title": "weather", "description": WORDS}],
    "schema by name": {"weather": {**SCHEMA, "description": WORDS}},
    "tool by name": {"weather": {"description": WORDS, "parameters": SCHEMA}},
}  # fmt: skip


@pytest.mark.parametrize("form", list(FORMS))
def test_tools_of_every_form_become_the_same_pack(tmp_path: Path, form: str) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(FORMS[form]))
    assert detect_kind(str(path)) == ("tools", str(path))
    missing = start_pack(tmp_path / "pack", str(path))
    pack = Pack.load(tmp_path / "pack")
    [tool] = pack.tools
    assert tool.name == "weather"
    assert {k: v for k, v in tool.parameters.items() if k != "description"} == SCHEMA
    assert (tool.description or tool.parameters["description"]) == WORDS
    assert [gap.what.split(" (")[0] for gap in missing] == [
        "no policy", "no seeds", "no tasks", "no state", "no executable",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [{"role": "user", "content": "Hi"}], "tools": FORMS["openai"]},
        [{"conversations": [{"from": "human", "value": "Hi"}], "tools": "[]"}],
        [],
        {},
        "weather",
        [{"name": "Anna", "age": 3}],
        [FORMS["ours"][0], {"id": 7}],
        {"weather": "sunny"},
        None,
    ],
)
def test_what_is_no_list_of_tools_is_not_taken_for_one(value: Any) -> None:
    assert read_tool_list(value) is None


def test_a_tool_a_line_is_read_and_unusable_ones_are_named(tmp_path: Path) -> None:
    rows = [
        FORMS["ours"][0],
        {"name": "ping"},
        {"name": "odd", "parameters": {"type": "object", "properties": {"a": {"$ref": "http://example.com/x.json"}}}},
        {"name": "weather", "parameters": SCHEMA},
    ]
    path = tmp_path / "tools.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    lines: list[str] = []
    missing = start_pack(tmp_path / "pack", str(path), say=lines.append)
    assert [tool.name for tool in Pack.load(tmp_path / "pack").tools] == ["weather", "ping"]
    assert "'odd' is left out" in lines[0]
    assert "'weather' is listed twice" in lines[1]
    assert "no description of ping: a model knows only the name" in [str(gap) for gap in missing]


def calls(*steps: tuple[str, dict[str, Any]], system: str | None = None, tools: Any = None) -> dict[str, Any]:
    """A row as OpenAI's chat has it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": "Please look at order 17 of Anna for me."})
    for i, (name, arguments) in enumerate(steps):
        function = {"name": name, "arguments": json.dumps(arguments)}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{i}", "type": "function", "function": function}],
            }
        )
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": '{"ok": true}'})
    messages.append({"role": "assistant", "content": f"That is done, all {len(steps)} of them."})
    return {"messages": messages, **({"tools": tools} if tools else {})}


def saved(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "seen.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_tools_are_inferred_where_nobody_lists_them(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        calls(("get_order", {"id": 17, "with": ["items"]}), ("note", {"text": "a", "at": {"day": 3}}), system="Be brief."),
        calls(("get_order", {"id": 18.5}), ("note", {"text": None, "at": {"day": 4, "hour": 2}}), system="Be brief."),
        calls(("get_order", {"id": 19, "with": []}), system="Be kind."),
    )  # fmt: skip
    lines: list[str] = []
    missing = start_pack(tmp_path / "pack", str(path), say=lines.append)
    pack = Pack.load(tmp_path / "pack")
    order, note = pack.tools
    assert order.parameters == {
        "type": "object",
        "properties": {"id": {"type": "number"}, "with": {"type": "array", "items": {"type": "string"}}},
        "required": ["id"],
    }
    assert note.parameters["properties"]["text"] == {"type": ["string", "null"]}
    assert note.parameters["properties"]["at"] == {
        "type": "object",
        "properties": {"day": {"type": "integer"}, "hour": {"type": "integer"}},
        "required": ["day"],
    }
    assert order.description.startswith("Inferred from 3 calls")
    assert pack.policy == "Be brief."
    assert [seed.system for seed in pack.seeds] == ["Be brief.", "Be brief.", "Be kind."]
    assert [len(seed.tools) for seed in pack.seeds] == [2, 2, 2]
    assert all(not spec.argument_errors(call.arguments or {}) for seed in pack.seeds
               for _, _, call in seed.calls() for spec in pack.tools if spec.name == call.name)  # fmt: skip
    assert lines[0] == "the policy is the most frequent system text; 1 seed with another one"
    assert "inferred schemas of get_order, note" in missing[0].what
    assert not any(gap.what.startswith(("no seeds", "no policy")) for gap in missing)


def test_tools_that_seeds_list_are_kept_as_they_are_and_others_inferred(tmp_path: Path) -> None:
    other = {
        **FORMS["openai"][0]["function"],
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    }
    unused = {"name": "forecast", "description": "Tomorrow's weather", "parameters": SCHEMA}
    path = saved(
        tmp_path,
        calls(("weather", {"city": "Rome"}), tools=[*FORMS["openai"], {"type": "function", "function": unused}]),
        calls(("weather", {"place": "Rome"}), tools=[{"type": "function", "function": other}]),
        calls(("remind", {"at": "noon"})),
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]},
    )
    lines: list[str] = []
    missing = start_pack(tmp_path / "pack", str(path), say=lines.append)
    pack = Pack.load(tmp_path / "pack")
    assert [tool.name for tool in pack.tools] == ["weather", "forecast", "remind"]
    assert [tool.name for tool in pack.tools if tool.description.startswith(MARK)] == ["remind"]
    assert pack.seeds[1].tools[0].parameters == other["parameters"]
    assert [len(seed.tools) for seed in pack.seeds] == [2, 1, 3]
    assert lines[0] == "left out: 1 conversation without tools or calls"
    assert lines[1].startswith("seeds give several schemas of weather:")
    assert "no seed that calls forecast: amplified trajectories will seldom call them" in map(str, missing)


def test_every_dialect_is_a_start_and_what_it_makes_can_be_amplified(tmp_path: Path) -> None:
    seeds = Pack.load("customer_service").seeds[:6]
    for dialect in ("simia", "apigen", "openai", "hermes"):
        path = tmp_path / f"{dialect}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in formats.write(seeds, dialect)))
        assert detect_kind(str(path)) == ("trajectories", str(path))
        missing = start_pack(tmp_path / dialect, str(path))
        pack = Pack.load(tmp_path / dialect)
        assert pack.policy == Pack.load("customer_service").policy
        assert {tool.name for tool in pack.tools} == {tool.name for tool in seeds[0].tools}
        assert [s.messages[0].content for s in pack.seeds] == [s.messages[0].content for s in seeds]
        assert "tools" not in json.loads((tmp_path / dialect / "seeds.jsonl").read_text().splitlines()[0])
        assert not any(gap.what.startswith(("no use", "inferred")) for gap in missing)
        simulator, kept = open_preview(AmplifyConfig(seeds=SeedSettings(packs=[str(tmp_path / dialect)])))
        assert len(kept.order) == 6
        assert pack.seeds[0].messages[0].text in simulator.prompt(simulator.item(0)).messages[-1]["content"]


def test_bad_rows_are_named_and_the_others_used(tmp_path: Path) -> None:
    path = saved(tmp_path, calls(("weather", {"city": "Rome"})))
    path.write_text(path.read_text() + '{"messages": 7}\n{broken\n')
    lines: list[str] = []
    start_pack(tmp_path / "pack", str(path), say=lines.append)
    assert [line.split(" is left out")[0] for line in lines[:2]] == [f"{path.name}, line 2", f"{path.name}, line 3"]
    assert len(Pack.load(tmp_path / "pack").seeds) == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "[]", "unknown format|none of its|no list"),
        ("a.json", "{broken", "none of its 1 row"),
        ("a.jsonl", "", "none of its 0 rows"),
        ("a.txt", "hello", "are read from .jsonl, .json and .parquet files"),
        ("a.json", '[{"name": "x", "parameters": {"type": "object", "$ref": "file:///etc/passwd"}}]', "none of its 1 tool"),
        ("a.jsonl", '{"some": "thing"}', "unknown format: the first row has some; known formats: simia, "),
    ],
)  # fmt: skip
def test_what_nothing_can_be_made_of_is_one_line_and_no_folder(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words) as error:
        start_pack(tmp_path / "pack", str(tmp_path / name))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_source_that_is_not_there_and_a_folder_that_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.json does not exist: --from takes a file, openapi:…, mcp:…"):
        start_pack(tmp_path / "pack", str(tmp_path / "nothing.json"))
    with pytest.raises(UserError, match="is a folder: give a file"):
        start_pack(tmp_path / "pack", str(tmp_path))
    path = saved(tmp_path, calls(("weather", {"city": "Rome"})))
    small(tmp_path / "mine")
    with pytest.raises(UserError, match="exists and is not empty"):
        start_pack(tmp_path / "mine", str(path))
    assert Pack.load(tmp_path / "mine").executable is not None
    (tmp_path / "empty").mkdir()
    start_pack(tmp_path / "empty", str(path))
    assert Pack.load(tmp_path / "empty").seeds


def test_a_whole_pack_lacks_seeds_only(tmp_path: Path) -> None:
    assert [gap.what for gap in find_gaps(small(tmp_path / "p"))] == ["no seeds (seeds.jsonl)"]


def test_the_command_tells_what_is_missing_and_what_is_next(tmp_path: Path) -> None:
    from simia.cli.pack import app

    path = saved(tmp_path, calls(("weather", {"city": "Rome"})))
    done = CliRunner().invoke(app, ["new", str(tmp_path / "pack"), "--from", str(path)])
    assert done.exit_code == 0, done.output
    lines = done.output.replace("\n", " ").split("missing  ")
    assert any(line.startswith("no tasks (tasks.jsonl): `simia rollout`") for line in lines)
    assert f"next: simia amplify --seeds {tmp_path / 'pack'}" in lines[-1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], {"type": "boolean"}),
        ([1, True], {"type": ["integer", "boolean"]}),
        ([1, 2.5, None], {"type": ["number", "null"]}),
        ([[1], ["a"]], {"type": "array", "items": {"type": ["integer", "string"]}}),
        ([[]], {"type": "array"}),
        ([{"a": 1}, "x"], {"type": ["object", "string"], "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
        ([{str(i): i for i in range(50)}], {"type": "object"}),
    ],
)
def test_a_type_is_that_of_the_values_seen(values: list[Any], expected: dict[str, Any]) -> None:
    found = infer_value_schema(values, 1)
    assert found == expected
    assert all(compile_schema({"type": "object", "properties": {"x": found}}).valid({"x": value}) for value in values)


def test_deep_values_end_somewhere() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [{"a": deep}]
    row = formats.get("simia").read({"version": 1, "messages": [
        {"role": "assistant", "calls": [{"id": "1", "name": "deep", "arguments": {"x": deep}}]}]})  # fmt: skip
    [tool] = infer_tools([row])
    assert compile_schema(tool.parameters).valid({"x": deep})


def test_a_server_that_is_not_there_is_the_importers_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^there is no program 'no-such-server'[^\n]*$"):
        start_pack(tmp_path / "pack", "mcp:no-such-server --flag")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "words"), [("!!bool x", "cannot be read as its type"), ("1" * 5000, "4,300 digits"), ("[", "is not YAML")]
)
def test_yaml_that_cannot_be_read_is_one_line(tmp_path: Path, value: str, words: str) -> None:
    (tmp_path / "tools.yaml").write_text(f"- name: x\n  description: {value}\n")
    with pytest.raises(UserError, match=words) as caught:
        start_pack(tmp_path / "made", str(tmp_path / "tools.yaml"))
    assert "\n" not in str(caught.value)


def test_a_date_in_yaml_is_text(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text("- name: x\n  description: 2025-13-45\n")
    start_pack(tmp_path / "made", str(tmp_path / "tools.yaml"))
    assert Pack.load(tmp_path / "made").tools[0].description == "2025-13-45"
