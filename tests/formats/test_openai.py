"""OpenAI chat rows: the plain form, what the wild adds, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia import formats
from simia.errors import Code
from simia.formats import RowError
from simia.formats.dialect import MEMO
from simia.trajectory import Trajectory

OPENAI = formats.get("openai")


def read(*messages: dict[str, Any], **fields: Any) -> Trajectory:
    row = {"messages": list(messages), **fields}
    t = OPENAI.read(row)
    assert OPENAI.write(t) == row
    return t


def calling(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def call(arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "abc", "type": "function", "function": {"name": "f", "arguments": arguments}, **fields}


def test_the_plain_form_needs_no_memory() -> None:
    t = read(
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        calling(call('{"a": 1}'), reasoning_content="hm"),
        {"role": "tool", "content": "ok", "tool_call_id": "abc", "name": "f"},
        {"role": "assistant", "content": "done"},
        tools=[{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}],
    )
    assert t.system == "Be kind."
    assert t.messages[1].reasoning == "hm"
    assert t.messages[1].calls[0].id == t.messages[2].call_id == "abc"
    assert t.messages[2].name == "f"
    assert MEMO not in t.extra
    assert not any(m.extra for m in t.messages)


@pytest.mark.parametrize(
    ("arguments", "parsed", "raw"),
    [
        ('{"a":1}', {"a": 1}, None),
        ({"a": 1}, {"a": 1}, None),
        ('"{\\"a\\": 1}"', {"a": 1}, None),
        ('{"a": ', None, '{"a": '),
        ('{"a": 1e999}', None, '{"a": 1e999}'),
        ('{"a": "\\ud800"}', None, '{"a": "\\ud800"}'),
        ("", {}, None),
        (" ", {}, None),
        (None, None, "null"),
        ("[1]", None, "[1]"),
        ('{"a": 12345678901234567890123}', {"a": 12345678901234567890123}, None),
    ],
)
def test_arguments(arguments: Any, parsed: Any, raw: Any) -> None:
    found = read({"role": "user", "content": "go"}, calling(call(arguments))).messages[1].calls[0]
    assert (found.arguments, found.raw) == (parsed, raw)


def test_missing_ids_are_made_and_paired_in_order_beside_given_ones() -> None:
    def bare(**fields: Any) -> dict[str, Any]:
        return {"function": {"name": "f", "arguments": "{}"}, **fields}

    t = read(
        {"role": "user", "content": "go"},
        calling(bare(), bare(id="call_1"), bare(id="")),
        *[
            {"role": "tool", "content": "ok", **given}
            for given in ({}, {"tool_call_id": "call_1"}, {"tool_call_id": None})
        ],
    )
    assert [c.id for c in t.messages[1].calls] == ["call_2", "call_1", "call_3"]
    assert [m.call_id for m in t.messages[2:]] == ["call_2", "call_1", "call_3"]


def test_the_old_form_of_calls() -> None:
    t = read(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "ok"},
    )
    assert t.messages[1].calls[0].name == "f"
    assert t.messages[2].call_id == t.messages[1].calls[0].id


def test_parts_and_odd_results() -> None:
    parts = [{"type": "input_text", "text": "look"}, {"type": "text", "text": " here"}]
    t = read(
        {"role": "system", "content": parts[:1]},
        {"role": "user", "content": parts},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I "}, {"type": "refusal", "refusal": "cannot."}],
        },
        {"role": "tool", "content": {"a": 1.0}},
        {"role": "tool", "content": [{"type": "text", "text": "b"}]},
        {"role": "tool", "content": [{"type": "hotel", "name": "Rex"}]},
    )
    assert t.system == "look"
    assert [m.content for m in t.messages] == [
        "look here",
        "I cannot.",
        '{"a": 1.0}',
        "b",
        '[{"type": "hotel", "name": "Rex"}]',
    ]
    for name in formats.DIALECTS:
        assert formats.get(name).read(formats.get(name).write(t)).id == t.id


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "hologram"])
def test_a_part_that_is_no_text_is_a_reason(kind: str) -> None:
    with pytest.raises(RowError) as error:
        read({"role": "user", "content": [{"type": "text", "text": "look"}, {"type": kind, kind: {"url": "data:"}}]})
    assert error.value.code is Code.UNKNOWN_PART
    assert f"messages[0]: the content has parts of type {kind}" in error.value.detail


def test_an_image_in_a_result_is_a_reason() -> None:
    with pytest.raises(RowError, match="type image"):
        read({"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "x"}]})


def test_arguments_written_as_python_are_read() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{'a': None, 'b': True, 'c': (1, -2.5)}"}}
    t = read({"role": "assistant", "tool_calls": [call]})
    assert t.messages[0].calls[0].arguments == {"a": None, "b": True, "c": [1, -2.5]}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"role": "robot", "content": "a"}, "unknown_role"),
        ({"role": "user"}, "bad_row"),
        ({"role": "user", "content": ["a"]}, "bad_row"),
        ({"role": "user", "content": 1}, "bad_row"),
        ({"role": "assistant", "tool_calls": {"name": "f"}}, "bad_row"),
        ({"role": "assistant", "content": "a", "name": 5}, "bad_row"),
        ({"content": "a"}, "bad_row"),
    ],
)
def test_refusals(message: dict[str, Any], code: str) -> None:
    with pytest.raises(RowError) as error:
        OPENAI.read({"messages": [{"role": "user", "content": "hi"}, message]})
    assert error.value.code == code
    assert "messages[1]" in error.value.detail


def test_one_result_without_an_id_may_list_a_result_for_each_call() -> None:
    calls = [{"id": str(n), "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in (1, 2)]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    listed = {"role": "tool", "content": '["a", "b"]'}
    row = {"messages": [{"role": "user", "content": "hi"}, asked, listed]}
    t = OPENAI.read(row)
    assert [(m.content, m.call_id) for m in t.messages[2:]] == [("a", "1"), ("b", "2")]
    assert OPENAI.write(t) == row
    t = OPENAI.read({"messages": [*row["messages"][:2], {**listed, "tool_call_id": "1"}]})
    assert len(t.messages) == 3, "the list answers the call that it names"
    t = OPENAI.read({"messages": [*row["messages"], {"role": "tool", "content": "c"}]})
    assert [m.content for m in t.messages[2:]] == ['["a", "b"]', "c"]


def test_integer_ids_are_ids() -> None:
    calls = [{"id": n, "type": "function", "function": {"name": "f", "arguments": f'{{"a": {n}}}'}} for n in (0, 7)]
    t = read(
        {"role": "user", "content": "go"},
        calling(*calls),
        {"role": "tool", "tool_call_id": 7, "content": "seven"},
        {"role": "tool", "tool_call_id": 0, "content": "zero"},
    )
    assert [c.id for c in t.messages[1].calls] == ["0", "7"]
    assert [(m.call_id, m.content) for m in t.messages[2:]] == [("7", "seven"), ("0", "zero")]


def test_results_without_ids_answer_the_calls_that_they_name() -> None:
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("f", "g", "g", "h")]
    t = read(
        {"role": "user", "content": "go"},
        calling(*calls),
        *[{"role": "tool", "name": name, "content": name} for name in ("g", "other", "g")],
        {"role": "tool", "content": "last"},
    )
    assert [m.call_id for m in t.messages[2:]] == ["call_2", "call_1", "call_3", "call_4"]


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": []}])
def test_the_old_functions_are_read_where_there_are_no_tools(tools: dict[str, Any]) -> None:
    old = [{"name": "f", "description": "Does it", "parameters": {"type": "object", "properties": {"a": {}}}}]
    turns = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
    for functions in (old, json.dumps(old)):
        t = read(*turns, functions=functions, **tools)
        assert [tool.flat() for tool in t.tools] == old
        t.tools[0].name = "g"
        row = OPENAI.write(t)
        assert row["tools"] == [{"type": "function", "function": {**old[0], "name": "g"}}]
        assert "functions" not in row
    t = read(*turns, functions=old, tools=[{"type": "function", "function": {"name": "new"}}])
    assert [tool.name for tool in t.tools] == ["new"]


@pytest.mark.parametrize("other", ["get_order", ["get_order"], 3, None, [{"calls": 2}]])
def test_a_column_functions_without_tools_is_no_fault(other: Any) -> None:
    assert read({"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, functions=other).tools == []
