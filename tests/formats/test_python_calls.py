"""Calls and values written as Python: literals alone are read, nothing is run; tool schemas with types of Python become JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from simia import formats
from simia.formats.row_tools import read_tools
from simia.formats.tagged_calls import read_calls, read_message
from simia.tool import compile_schema

READ: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("{'name': 'f', 'arguments': {'a': None, 'b': True}}", [("f", {"a": None, "b": True})]),
    ("[{'name': 'f', 'arguments': {}}, {'name': 'g', 'arguments': {'x': (1, 2)}}]", [("f", {}), ("g", {"x": [1, 2]})]),
    ("[f(a=1, b='x'), g()]", [("f", {"a": 1, "b": "x"}), ("g", {})]),
    ("f(a=-1.5, b=[{'c': \"it's\"}])", [("f", {"a": -1.5, "b": [{"c": "it's"}]})]),
    ("[math.hypot(x=4, y=5)]", [("math.hypot", {"x": 4, "y": 5})]),
    (
        "[Market Trends API(kind='to me (x)'), a-b(c=null)]",
        [("Market Trends API", {"kind": "to me (x)"}), ("a-b", {"c": None})],
    ),
]
NOT_CALLS = [
    "__import__('os').system('true')",
    "f(a=open('x'))",
    "f(a=1 + 1)",
    "f(1)",
    "f(**{'a': 1})",
    "{'a' * 9: 1}",
    "[f(a=lambda: 1)]",
    "f(a=" + "(" * 500,
    "{'name': 'f', 'arguments': {'a': {1: 2}}}",
    "{'name': 'f', 'arguments': {'a': float('nan')}}",
    "{'name': 'f', 'arguments': {'a': 1e999}}",
]


@pytest.mark.parametrize(("text", "calls"), READ)
def test_calls_written_as_python_are_read(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    row = {"conversations": [{"from": "human", "value": "go"}, {"from": "function_call", "value": text}]}
    t = formats.get("apigen").read(row)
    assert [(c.name, c.arguments) for _, _, c in t.calls()] == calls
    assert formats.get("apigen").write(t) == row


@pytest.mark.parametrize("text", NOT_CALLS)
def test_any_other_python_stays_text(text: str) -> None:
    (call,) = read_calls(text, python=True)
    assert (call.arguments, call.raw) == (None, text)


def test_what_a_policy_writes_is_not_read_as_python() -> None:
    message = read_message("<tool_call>\n{'name': 'f', 'arguments': {}}\n</tool_call>")
    assert message.calls[0].arguments is None


def tool(parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "f", "description": "", "parameters": parameters, **more}


def test_types_of_python_become_json_schema_also_within() -> None:
    given = {
        "type": "dict",
        "properties": {
            "n": {"type": "float", "description": "size"},
            "who": {"type": "dict", "properties": {"tags": {"type": "tuple", "items": {"type": "str"}}}},
            "any": {"type": "any"},
            "ids": {"type": "List[int]"},
            "maybe": {"type": "Optional[str]"},
            "late": {"type": "bool, optional"},
        },
        "required": ["n"],
    }
    (spec,) = read_tools([tool(given)])
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "n": {"type": "number", "description": "size"},
            "who": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
            "any": {},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "maybe": {"type": ["string", "null"]},
            "late": {"type": "boolean"},
        },
        "required": ["n"],
    }
    compile_schema(spec.parameters)


def test_arguments_without_properties_are_found() -> None:
    (spec,) = read_tools([tool({"city": {"type": "str", "description": "where"}})])
    assert spec.parameters["properties"]["city"] == {"type": "string", "description": "where"}
    assert spec.argument_errors({"city": 1})


def test_the_file_keeps_its_schema() -> None:
    row = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool({"type": "dict", "properties": {}})]}
    t = formats.get("openai").read(row)
    assert t.tools[0].parameters["type"] == "object"
    assert formats.get("openai").write(t) == row
    assert '"type": "object"' in str(formats.get("apigen").write(t)["tools"])


def test_a_schema_of_json_schema_is_not_touched() -> None:
    given = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["float"]}},
        "x-more": {"type": "dict"},
    }
    (spec,) = read_tools([tool(given)])
    assert spec.parameters == given
