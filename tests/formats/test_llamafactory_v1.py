"""LLaMA-Factory's v1 rows: parts of every type, results, weights; rows with other parts are refused, not read as empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.errors import Code
from simia.formats import RefusedRow
from simia.formats.dialect import RowError
from simia.quality.check import Checks
from simia.quality.exact_duplicates import hash_content
from simia.quality.seed_filter import filter_seeds
from simia.trajectory import Message, Trajectory

V1 = formats.get("llamafactory-v1")


def part(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return part("tool_call", json.dumps({"name": name, "arguments": arguments}))


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_price",
            "description": "The price of an item",
            "parameters": {
                "type": "dict",
                "properties": {"item": {"type": "str"}, "most": {"type": "float, optional"}},
            },
            "required": ["item"],
        },
    }
]
ROW = {
    "messages": [
        {"role": "system", "content": [part("text", "Help.")]},
        {"role": "user", "content": [part("text", "What do pens and "), part("text", "inks cost?")]},
        {
            "role": "assistant",
            "content": [
                part("reasoning", "Two look-ups."),
                call("get_price", item="pens"),
                call("get_price", item="inks", most=9),
            ],
            "loss_weight": 1.0,
        },
        {
            "role": "tool",
            "content": [
                part(
                    "text",
                    json.dumps([{"name": "get_price", "content": {"price": 3}}, {"name": "get_price", "content": "8"}]),
                )
            ],
        },
        {
            "role": "assistant",
            "content": [part("reasoning", "Done."), part("text", "Pens cost 3, inks 8.")],
            "loss_weight": 0.0,
        },
    ],
    "tools": json.dumps(TOOLS),
}


def test_a_row_is_read_whole() -> None:
    t = V1.read(ROW)
    assert t.system == "Help."
    user, asking, first, second, answer = t.messages
    assert user.content == "What do pens and inks cost?"
    assert (asking.reasoning, asking.content) == ("Two look-ups.", None)
    assert [c.arguments for c in asking.calls] == [{"item": "pens"}, {"item": "inks", "most": 9}]
    assert [(m.role, m.content) for m in (first, second)] == [("tool", '{"price": 3}'), ("tool", "8")]
    assert [first.call_id, second.call_id] == [c.id for c in asking.calls]
    assert (answer.reasoning, answer.content, answer.train, asking.train) == (
        "Done.",
        "Pens cost 3, inks 8.",
        False,
        None,
    )
    assert t.tools[0].parameters == {
        "type": "object",
        "properties": {"item": {"type": "string"}, "most": {"type": "number"}},
        "required": ["item"],
    }
    assert filter_seeds([t], Checks())[0] == [t]
    assert V1.write(t) == ROW


def test_a_weight_follows_the_switch_of_the_turn() -> None:
    t = V1.read(ROW)
    t.messages[-1].train = True
    assert V1.write(t)["messages"][-1]["loss_weight"] == 1.0


def test_a_call_written_as_python_is_read() -> None:
    message = {"role": "assistant", "content": [part("tool_call", "{'name': 'f', 'arguments': {'a': None}}")]}
    assert V1.read({"messages": [message]}).messages[0].calls[0].arguments == {"a": None}


@pytest.mark.parametrize("kind", ["image_url", "video_url", "audio_url", "hologram"])
def test_other_parts_refuse_their_row_alone(tmp_path: Path, kind: str) -> None:
    strange = {"messages": [{"role": "user", "content": [part(kind, "a.jpg"), part("text", "Who is it?")]}]}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [strange, ROW, strange, ROW])), encoding="utf-8")
    rows = list(formats.read(path))
    assert [type(row) for row in rows] == [RefusedRow, Trajectory, RefusedRow, Trajectory]
    assert isinstance(rows[2], RefusedRow)
    assert (rows[2].line, rows[2].code) == (3, Code.UNKNOWN_PART)
    assert kind in rows[2].detail


def test_calls_and_reasoning_belong_to_the_assistant() -> None:
    for kind in ("tool_call", "reasoning"):
        with pytest.raises(RowError) as error:
            V1.read({"messages": [{"role": "user", "content": [part(kind, "x")]}]})
        assert error.value.code is Code.UNKNOWN_PART


def test_parts_that_are_no_text_make_no_duplicates() -> None:
    """Rows of simia hold parts as they are; two images are two conversations."""
    one, other = (
        Trajectory(messages=[Message(role="user", content=[{"type": "image_url", "image_url": {"url": url}}])])
        for url in "ab"
    )
    assert hash_content(one) != hash_content(other)
    with pytest.raises(RowError) as error:
        formats.get("simia").read(one.to_row())
    assert error.value.code is Code.UNKNOWN_PART
