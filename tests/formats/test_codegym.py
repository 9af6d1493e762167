"""CodeGym's dialect: the letter of what is written, round trips, and calls as models get them wrong (CodeGym B.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia import formats
from simia.formats.codegym import BEGIN, END, join_functions, read_marked_message, split_functions, write_marked
from simia.formats.function_listing import read_functions, write_functions
from simia.pack import Pack
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

CODEGYM = formats.get("codegym")
LOOK_UP = ToolSpec(
    name="look_up",
    description="Return the element at an index.",
    parameters={
        "type": "object",
        "properties": {"index": {"type": "integer", "description": "Position, from 0."}, "twice": {"type": "boolean"}},
        "required": ["index"],
        "additionalProperties": False,
    },
    returns="The element.",
)
ODD_VALUES = {"text": '"@" <|FunctionCallEnd|> \' } ]', "yes": True, "none": None, "n": [1, 1.5, {"a": "é"}]}


def parse(text: str) -> list[ToolCall]:
    return read_marked_message(text).calls


def test_written_to_the_letter() -> None:
    messages = [
        Message(role="user", content="Find it."),
        Message(role="assistant", content="I look.", calls=[ToolCall(id="a", name="look_up", arguments={"index": 2})]),
        Message(role="tool", content='{"value": 9}', call_id="a"),
        Message(role="assistant", calls=[ToolCall(id="b", name="done", arguments={"answer": 9})]),
    ]
    t = Trajectory(system="Act.", tools=[LOOK_UP], messages=messages)
    row = CODEGYM.write(t)
    assert [turn["role"] for turn in row["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    system, _, first, result, last = (turn["content"] for turn in row["messages"])
    assert system.startswith(
        "Act.\n\n# Functions\n\nFunction:\ndef look_up(index: int, twice: bool = None):\n"
        '    """\n    Return the element at an index.\n    Args:\n        index (int): Position, from 0.\n        twice (bool): \n'
        '    Returns:\n        The element.\n    """\n\n# How to call\n'
    )
    assert first == f'I look.\n{BEGIN}[{{"name": "look_up", "parameters": {{"index": 2}}}}]{END}'
    assert result == '<tool_response>\n{"value": 9}\n</tool_response>'
    assert last == f'{BEGIN}[{{"name": "done", "parameters": {{"answer": 9}}}}]{END}'
    assert CODEGYM.read(row).id == t.id


def test_values_keep_their_type_and_close_no_mark() -> None:
    calls = [ToolCall(id="x", name="f", arguments=ODD_VALUES), ToolCall(id="y", name="g", arguments={})]
    text = write_marked("I call.", calls)
    assert text is not None
    assert text.count(END) == 1
    read = read_marked_message(text)
    assert read.content == "I call."
    assert [(call.name, call.arguments) for call in read.calls] == [("f", ODD_VALUES), ("g", {})]


@pytest.mark.parametrize(
    "text",
    [
        f'{BEGIN}[{{"name": "f", "parameters": {json.dumps(ODD_VALUES)}}}]{END}',
        f'{BEGIN} [ {{"name": "f", "parameters": {json.dumps(ODD_VALUES)}}} ]\n{END}\n',
        f'{BEGIN}[{{"name": "f", "parameters": {json.dumps(ODD_VALUES)}}}]',
        f'{BEGIN}{{"name": "f", "parameters": {json.dumps(ODD_VALUES)}}}{END}',
        f'{BEGIN}[{{"name": "f", "arguments": {json.dumps(ODD_VALUES)}}}]{END}',
        f'{BEGIN}[{{"name": "f", "parameters": {json.dumps(json.dumps(ODD_VALUES))}}}]{END}',
        f'<think>\n{BEGIN}[{{"name": "g"}}]{END}\n</think>\n{BEGIN}[{{"name": "f", "parameters": {json.dumps(ODD_VALUES)}}}]{END}',
    ],
    ids=["as asked", "spaces", "no end mark", "one object", "arguments", "JSON in a string", "one is only thought of"],
)
def test_calls_that_are_read_all_the_same(text: str) -> None:
    (call,) = parse(text)
    assert (call.id, call.name, call.arguments) == ("call_0", "f", ODD_VALUES)


def test_a_call_without_arguments_has_none() -> None:
    (call,) = parse(f'{BEGIN}[{{"name": "observe"}}]{END}')
    assert call.arguments == {}


def test_every_call_of_a_message_is_read_in_order() -> None:
    one, other = (
        '[{"name": "f", "parameters": {}}, {"name": "g", "parameters": {}}]',
        '[{"name": "h", "parameters": {}}]',
    )
    read = read_marked_message(f"First.\n{BEGIN}{one}{END} Then {BEGIN}{other}{END} Last.")
    assert [call.name for call in read.calls] == ["f", "g", "h"]
    assert read.content == "First.\nThen\nLast."


@pytest.mark.parametrize(
    ("inner", "name"),
    [
        ('[{"name": "f", "parameters": {"a": 1}', "f"),
        ("[{'name': 'f', 'parameters': {'a': True}}]", "f"),
        ('[{"name": "f", "parameters": {"a": "it"s"}}]', "f"),
        ('[{"name": "f", "parameters": [1]}]', "f"),
        ("f(a=1)", ""),
        ("[]", ""),
        ("", ""),
        ("[7]", ""),
        ('[{"parameters": {}}]', ""),
    ],
)
def test_calls_that_cannot_be_read_stay_calls(inner: str, name: str) -> None:
    (call,) = parse(f"{BEGIN}{inner}{END}")
    assert (call.name, call.arguments) == (name, None)
    assert call.raw is not None


def test_text_without_marks_is_text() -> None:
    read = read_marked_message('{"name": "f", "parameters": {}}')
    assert (read.calls, read.content) == ([], '{"name": "f", "parameters": {}}')


def test_other_dialects_leave_its_rows_to_it() -> None:
    row = CODEGYM.write(
        Trajectory(
            messages=[
                Message(role="user", content="x"),
                Message(role="assistant", calls=parse(f'{BEGIN}{{"name": "f"}}{END}')),
            ]
        )
    )
    assert [name for name, dialect in formats.DIALECTS.items() if dialect.sniff(row)] == ["codegym"]


def test_the_papers_own_system_turn_gives_its_tools() -> None:
    text = (
        'Function:\ndef PushToStack(index: int, names: list[str], deep: bool = False):\n    """\n    Push onto the stack.\n    Args:\n'
        '        index (int): The index.\n        names (list[str]): Names.\n    Returns:\n        str: The result.\n    """\n'
    )
    system, tools = split_functions(text)
    assert system is None
    assert tools is not None
    assert tools[0].flat() == {
        "name": "PushToStack",
        "description": "Push onto the stack.",
        "parameters": {
            "type": "object",
            "properties": {
                "index": {"type": "integer", "description": "The index."},
                "names": {"type": "array", "items": {"type": "string"}, "description": "Names."},
                "deep": {"type": "boolean", "default": False},
            },
            "required": ["index", "names"],
            "additionalProperties": False,
        },
    }


ODD_TOOLS: list[dict[str, Any]] = [
    {"name": "look-up", "description": "Its name is not Python."},
    {"name": "f", "description": 'Quotes """ and\n    Args:\nFunction:\ndef g():'},
    {"name": "f", "description": "", "parameters": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}}},
    {"name": "f", "parameters": {"type": "object", "properties": {"class": {"type": "string"}}, "required": ["class"]}},
    {"name": "f", "parameters": {"properties": [1], "required": 7}},
]


@pytest.mark.parametrize("tool", ODD_TOOLS)
def test_a_listing_keeps_what_a_signature_cannot_say(tool: dict[str, Any]) -> None:
    spec = ToolSpec(**tool)
    read = read_functions(write_functions([spec, LOOK_UP, spec]))
    assert read is not None
    assert [each.flat() for each in read] == [spec.flat(), LOOK_UP.flat(), spec.flat()]


def test_tools_of_a_pack_come_back() -> None:
    pack = Pack.load("customer_service")
    text = join_functions(pack.policy, pack.tools)
    assert text is not None
    system, tools = split_functions(text)
    assert system == pack.policy
    assert tools is not None
    assert [tool.flat() for tool in tools] == [tool.flat() for tool in pack.tools]
