"""APIGen-MT rows: the real ones, ones of our own with the same defects, and the forms found in the wild."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.formats import RefusedRow, RowError
from simia.trajectory import Message, Trajectory

ROOT = Path(__file__).parents[2]
GLAIVE = ROOT.parent / "shared" / "data" / "glaive_toolcall_en_demo.json"
OURS = Path(__file__).parent / "data" / "defects.json"
APIGEN = formats.get("apigen")


def defects(path: Path) -> tuple[Counter[str], list[Trajectory | RefusedRow]]:
    """What is wrong with the rows of a file, by the eyes of a reader who knows the dialect."""
    rows = list(formats.read(path))
    found: Counter[str] = Counter()
    ids = set()
    for row in rows:
        if isinstance(row, RefusedRow):
            found[f"refused {row.code}"] += 1
            continue
        tools = {tool.name: tool for tool in row.tools}
        calls = [call for _, _, call in row.calls()]
        found["no tools"] += not tools
        found["no call"] += not calls
        found["repeated row"] += row.id in ids
        ids.add(row.id)
        for call in calls:
            found["calls"] += 1
            if call.name not in tools:
                found["unlisted tool"] += 1
                continue
            errors = tools[call.name].argument_errors(call.arguments or {})
            found["broken arguments"] += any('"time"' not in what for _, what in errors)
            found["only the format of a time"] += bool(errors) and all('"time"' in what for _, what in errors)
            required = tools[call.name].parameters.get("required", [])
            found["empty required text"] += any((call.arguments or {}).get(key) == "" for key in required)
        for message in row.messages:
            found["results"] += message.role == "tool"
            if message.role == "tool":
                found["result that is no JSON object"] += not isinstance(json.loads(message.text), dict)
    return +found, rows


def test_our_rows_with_the_defects_of_real_ones() -> None:
    found, rows = defects(OURS)
    assert found == {
        "no tools": 2,
        "no call": 3,
        "repeated row": 1,
        "calls": 3,
        "results": 3,
        "broken arguments": 1,
        "empty required text": 1,
    }
    trajectories = [row for row in rows if isinstance(row, Trajectory)]
    assert list(formats.write(trajectories, "apigen")) == json.loads(OURS.read_text(encoding="utf-8"))
    assert trajectories[0].messages[2].content == '{"total": 4.50, "currency": "EUR"}', "results stay text"
    assert trajectories[0].provenance.source == "defects.json:2"


@pytest.mark.skipif(not GLAIVE.is_file(), reason="the shared data is not beside this clone")
def test_real_rows() -> None:
    found, rows = defects(GLAIVE)
    assert len(rows) == 300
    assert found == {
        "no tools": 109,
        "no call": 147,
        "repeated row": 35,
        "calls": 211,
        "results": 211,
        "broken arguments": 1,
        "empty required text": 1,
    }
    trajectories = [row for row in rows if isinstance(row, Trajectory)]
    original = json.loads(GLAIVE.read_text(encoding="utf-8"))
    for name in formats.DIALECTS:
        dialect = formats.get(name)
        there_and_back = [dialect.read(dialect.write(t)) for t in trajectories]
        assert [t.id for t in there_and_back] == [t.id for t in trajectories]
    assert list(formats.write(trajectories, "apigen")) == original


def read(*turns: tuple[str, Any], **fields: Any) -> Trajectory:
    row = {"conversations": [{"from": who, "value": value} for who, value in turns], **fields}
    t = APIGEN.read(row)
    assert APIGEN.write(t) == row
    return t


def one_call(value: Any) -> Message:
    return read(("human", "go"), ("function_call", value)).messages[1]


def test_parallel_calls_and_their_results_are_paired_in_order() -> None:
    call = '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"a": 1}}]'
    t = read(("human", "go"), ("function_call", call), ("observation", "1"), ("observation", "2"), ("gpt", "done"))
    assert [c.id for c in t.messages[1].calls] == ["call_1", "call_2"]
    assert [m.call_id for m in t.messages[2:4]] == ["call_1", "call_2"]
    joined = read(
        ("human", "go"),
        ("function_call", call),
        ("observation", "1\n</tool_response>\n<tool_response>\n2"),
        ("gpt", "done"),
    )
    assert joined.id == t.id
    apart = call[1:-1].split(", {")
    one_by_one = read(
        ("human", "go"),
        ("function_call", apart[0]),
        ("function_call", "{" + apart[1]),
        ("tool", "1"),
        ("tool", "2"),
        ("gpt", "done"),
    )
    assert one_by_one.id == t.id


def test_a_result_without_a_call_is_read_unpaired() -> None:
    t = read(
        ("human", "go"), ("function_call", '{"name": "f", "arguments": {}}'), ("observation", "1"), ("observation", "2")
    )
    assert [m.call_id for m in t.messages if m.role == "tool"] == ["call_1", None]


def test_text_and_reasoning_beside_a_call() -> None:
    json_call = '{"name": "f", "arguments": {}}'
    both = read(("human", "go"), ("gpt", "<think>\nhm\n</think>\n\nI look."), ("function_call", json_call)).messages[1]
    assert (both.reasoning, both.content, both.calls[0].name) == ("hm", "I look.", "f")
    thought = one_call(f"<think>\nhm\n</think>\n\n{json_call}")
    assert (thought.reasoning, thought.content, thought.calls[0].arguments) == ("hm", None, {})
    tagged = one_call(f"<think>\nhm\n</think>\n\nI look.\n<tool_call>{json_call}</tool_call>")
    assert (tagged.reasoning, tagged.content, tagged.calls[0].arguments) == ("hm", "I look.", {})


@pytest.mark.parametrize(
    ("value", "name", "arguments", "raw"),
    [
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', "f", {"a": 1}, None),
        ('{"name": "f", "arguments": "{\\"a\\": "}', "f", None, '{"a": '),
        ('{"name": "f", "arguments": [1]}', "f", None, "[1]"),
        ('{"name": "f"}', "f", None, ""),
        ('{"name": "f", "arguments": ""}', "f", {}, None),
        ('{"name": "f", "arguments": {"a": 1}', "f", None, '{"name": "f", "arguments": {"a": 1}'),
        ('{"name": "f", "arguments": {"a": NaN}}', "f", None, '{"name": "f", "arguments": {"a": NaN}}'),
        ("f(1)", "", None, "f(1)"),
        ('{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', "f", {"a": 1}, None),
        ({"name": "f", "arguments": {"a": 1}}, "f", {"a": 1}, None),
    ],
)
def test_calls_as_found_in_the_wild(value: Any, name: str, arguments: Any, raw: Any) -> None:
    (call,) = one_call(value).calls
    assert (call.name, call.arguments, call.raw) == (name, arguments, raw)


@pytest.mark.parametrize(
    "tools", ['[{"name": "f"}]', [{"name": "f"}], [{"type": "function", "function": {"name": "f"}}]]
)
def test_tools_in_every_form(tools: Any) -> None:
    assert [tool.name for tool in read(("human", "hi"), tools=tools).tools] == ["f"]


def test_system_in_a_field_or_a_turn() -> None:
    field = read(("human", "hi"), system="Be kind.")
    turn = read(("system", "Be kind."), ("human", "hi"))
    assert field.system == turn.system == "Be kind."
    assert field.id == turn.id
    assert read(("system", "second"), ("human", "hi"), system="first").messages[0].role == "system"


@pytest.mark.parametrize(
    ("row", "code", "said"),
    [
        ({"conversations": 5}, "bad_row", "no list 'conversations'"),
        ({"conversations": [3]}, "bad_row", "conversations[0] is not an object"),
        ({"conversations": [{"value": "a"}]}, "bad_row", "conversations[0] has no 'from'"),
        ({"conversations": [{"from": "robot", "value": "a"}]}, "unknown_role", "'robot'"),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt"}]}, "bad_row", "conversations[1]"),
        ({"conversations": [{"from": "gpt", "value": 3}]}, "bad_row", "int"),
        ({"conversations": [], "tools": "[{"}, "bad_tools", "not JSON"),
        ({"conversations": [], "tools": [{"description": "x"}]}, "bad_tools", "no name"),
        ({"conversations": [], "tools": [{"name": "f", "parameters": "x"}]}, "bad_tools", "'f'"),
        ({"conversations": [], "system": 1}, "bad_row", "system"),
    ],
)
def test_refusals_say_what_and_where(row: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(RowError) as error:
        APIGEN.read(row)
    assert error.value.code == code
    assert said in error.value.detail


PARALLEL = '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]'


@pytest.mark.parametrize(
    ("results", "contents"),
    [
        ('[{"a": 1}, "none"]', ['{"a": 1}', "none"]),
        ([{"a": 1}, "none"], ['{"a": 1}', "none"]),
        ("[1, 2, 3]", ["[1, 2, 3]"]),
        ("[1, 2", ["[1, 2"]),
    ],
)
def test_one_observation_may_list_a_result_for_each_call(results: Any, contents: list[str]) -> None:
    turns = [("human", "hi"), ("function_call", PARALLEL), ("observation", results), ("gpt", "Done.")]
    row = {"conversations": [{"from": role, "value": value} for role, value in turns]}
    t = APIGEN.read(row)
    assert [m.content for m in t.messages if m.role == "tool"] == contents
    assert [m.call_id for m in t.messages if m.role == "tool"] == ["call_1", "call_2"][: len(contents)]
    assert APIGEN.write(t) == row
    t.messages[2].content = "edited"
    assert APIGEN.write(t)["conversations"][2]["value"] == "edited"


def test_a_list_stays_one_result_where_another_follows_or_one_call_is_open() -> None:
    two = read(("human", "hi"), ("function_call", PARALLEL), ("observation", "[1, 2]"), ("observation", "b"))
    assert [m.content for m in two.messages[2:]] == ["[1, 2]", "b"]
    one = read(("human", "hi"), ("function_call", '{"name": "f", "arguments": {}}'), ("observation", "[1]"))
    assert [m.content for m in one.messages[2:]] == ["[1]"]
