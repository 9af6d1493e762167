"""Hermes text: the letter of the template, both containers, other people's tags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia import formats
from simia.formats import RowError
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

HERMES = formats.get("hermes")
TOOL = ToolSpec(name="f", description="d", parameters={"type": "object", "properties": {}})


def read(*turns: tuple[str, Any], chat: bool = False, **fields: Any) -> Trajectory:
    role, text, rows = ("role", "content", "messages") if chat else ("from", "value", "conversations")
    row = {rows: [{role: who, text: value} for who, value in turns], **fields}
    t = HERMES.read(row)
    assert HERMES.write(t) == row
    return t


def test_written_to_the_letter() -> None:
    calls = [ToolCall(id="a", name="f", arguments={"größe": 1}), ToolCall(id="b", name="f", arguments={})]
    messages = [
        Message(role="user", content="hi"),
        Message(role="assistant", content="I look.", reasoning="hm", calls=calls),
        Message(role="tool", content="1", call_id="a"),
        Message(role="tool", content="2", call_id="b"),
        Message(role="assistant", content="done"),
    ]
    t = Trajectory(system="Be kind.", tools=[TOOL], messages=messages)
    row = HERMES.write(t)
    assert [turn["from"] for turn in row["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]
    system, _, agent, results, _ = (turn["value"] for turn in row["conversations"])
    listed = '{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}'
    assert system == (
        "Be kind.\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        f"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{listed}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )
    assert agent == (
        '<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"größe": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    )
    assert results == "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    assert HERMES.read(row).id == t.id


@pytest.mark.parametrize("system", [None, "", "Be kind.", "ends\n\n"])
@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_system_text_and_tools_part_cleanly(system: str | None, tools: list[ToolSpec]) -> None:
    t = Trajectory(system=system, tools=tools, messages=[Message(role="user", content="hi")])
    assert HERMES.read(HERMES.write(t)).id == t.id


def test_both_containers_are_written_back_even_after_an_edit() -> None:
    t = read(("system", "Be kind."), ("user", "hi"), ("assistant", "<tool_call>{}</tool_call>"), chat=True)
    t.system = "new"
    assert HERMES.write(t)["messages"][0] == {"role": "system", "content": "new"}
    assert "conversations" in HERMES.write(read(("system", "Be kind."), ("human", "hi")))


def test_results_in_user_turns_and_in_turns_of_their_own() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    two = f"{call}\n{call}"
    joined = read(
        ("human", "hi"),
        ("gpt", two),
        ("tool", "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"),
    )
    apart = read(
        ("human", "hi"), ("gpt", two), *[("tool", f"<tool_response>\n{n}\n</tool_response>\n") for n in (1, 2)]
    )
    users = read(
        ("human", "hi"), ("gpt", two), ("human", "<tool_response>1</tool_response> <tool_response>2</tool_response>")
    )
    assert joined.id == apart.id == users.id
    assert [m.call_id for m in users.messages[2:]] == ["call_1", "call_2"]
    assert read(("human", "hi"), ("gpt", call), ("tool", "bare")).messages[2].content == "bare"


def test_tools_in_other_words_and_in_a_column() -> None:
    block = json.dumps([{"type": "function", "function": {"name": "f", "parameters": {}}}])
    t = read(
        ("system", f"You call functions. Here they are:<tools> {block} </tools> Answer in JSON."),
        ("human", "hi"),
        tools=block,
    )
    assert [tool.name for tool in t.tools] == ["f"]
    assert t.system == "You call functions. Here they are:\n\nAnswer in JSON."
    assert [tool.name for tool in read(("human", "hi"), tools=block).tools] == ["f"]
    t.tools[0].name = "g"
    row = HERMES.write(t)
    assert json.loads(row["tools"])[0]["function"]["name"] == "g", "the column follows an edit too"
    assert HERMES.read(row).tools[0].name == "g"


@pytest.mark.parametrize(
    ("text", "content", "names", "raw"),
    [
        ('<tool_call>{"name": "f", "arguments": {}}', None, ["f"], None),
        ('\n<tool_call>\n{"name": "f", "arguments": {"a": ', "", ["f"], '{"name": "f", "arguments": {"a":'),
        ('a <tool_call>{"name": "f", "arguments": {}}</tool_call> b', "a \nb", ["f"], None),
        ("  \n <tool_call>nonsense</tool_call>", None, [""], "nonsense"),
        (
            '<tool_call>[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]</tool_call>',
            None,
            ["f", "g"],
            None,
        ),
        ("no call", "no call", [], None),
    ],
)
def test_calls_in_text(text: str, content: str | None, names: list[str], raw: str | None) -> None:
    message = read(("human", "hi"), ("gpt", text)).messages[1]
    assert message.content == content
    assert [call.name for call in message.calls] == names
    assert [call.raw for call in message.calls][:1] == ([raw] if names else [])


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n\nhi", "hm", "hi"),
        ("<think>hm</think>hi", "hm", "hi"),
        ("<think>\n\n</think>\n\nhi", "", "hi"),
        ("<think>\na\n\n</think>\n\n\nhi", "a\n", "\nhi"),
        ("<think>never closed", None, "<think>never closed"),
    ],
)
def test_reasoning(text: str, reasoning: str | None, content: str) -> None:
    message = read(("human", "hi"), ("gpt", text)).messages[1]
    assert (message.reasoning, message.content) == (reasoning, content)


def test_a_broken_tools_block_is_refused() -> None:
    with pytest.raises(RowError) as error:
        HERMES.read({"conversations": [{"from": "system", "value": "<tools>[{'name': 'f'}]</tools>"}]})
    assert error.value.code == "bad_tools"


def test_results_with_fields_of_their_own_keep_them_after_an_edit() -> None:
    turns = [{"from": "tool", "value": f"<tool_response>\n{n}\n</tool_response>", "n": n} for n in (1, 2)]
    t = HERMES.read({"conversations": turns})
    t.messages[0].content = "changed"
    row = HERMES.write(t)
    assert [turn["n"] for turn in row["conversations"]] == [1, 2]
    assert [m.content for m in HERMES.read(row).messages] == ["changed", "2"]
