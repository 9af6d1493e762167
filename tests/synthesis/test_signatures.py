"""The JSON Schema of a method: literals, unions, defaults and collections are kept; what lies is named."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from simia.synthesis.building.signatures import add_formats, compare_parameters, derive_tool
from simia.synthesis.reasons import Unreadable
from simia.tool import ToolSpec, compile_schema


def derive(arguments: str, *lines: str) -> ToolSpec:
    docstring = "\n        ".join(lines)
    code = f'def tool(self{", " if arguments else ""}{arguments}) -> str:\n    """Do it.\n\n    Args:\n        {docstring}\n    """\n'
    function = ast.parse(code).body[0]
    assert isinstance(function, ast.FunctionDef)
    return derive_tool(function)


def derive_one(annotation: str) -> dict[str, Any]:
    schema: dict[str, Any] = derive(f"x: {annotation}", "x: It").parameters["properties"]["x"]
    compile_schema(schema)
    return {key: value for key, value in schema.items() if key != "description"}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("str", {"type": "string"}),
        ("float", {"type": "number"}),
        ("bool | None", {"type": ["boolean", "null"]}),
        ("Optional[int]", {"type": ["integer", "null"]}),
        ("Union[int, str]", {"type": ["integer", "string"]}),
        ("'int | str'", {"type": ["integer", "string"]}),
        ('Literal["a", "b"]', {"type": "string", "enum": ["a", "b"]}),
        ('Literal["a", "b"] | None', {"type": ["string", "null"], "enum": ["a", "b", None]}),
        ("list[str]", {"type": "array", "items": {"type": "string"}}),
        ("list[dict[str, int]]", {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}),
        ("list[str] | None", {"type": ["array", "null"], "items": {"type": "string"}}),
        ("list[str] | str", {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
        ("dict[str, Any]", {"type": "object"}),
        ("Any", {}),
    ],
)  # fmt: skip
def test_types(annotation: str, schema: dict[str, Any]) -> None:
    assert derive_one(annotation) == schema


def test_defaults_and_descriptions() -> None:
    spec = derive(
        "a: str, b: int = 3, c: str | None = None, *, d: bool",
        "a: The first one,", "    in two lines.", "b (int, optional): The second one.", "c: The third.", "d: The last",
    )  # fmt: skip
    assert spec.description == "Do it"
    assert spec.parameters["required"] == ["a", "d"]
    assert spec.parameters["additionalProperties"] is False
    properties = spec.parameters["properties"]
    assert properties["a"] == {"type": "string", "description": "The first one, in two lines"}
    assert properties["b"] == {"type": "integer", "description": "The second one", "default": 3}
    assert properties["c"] == {"type": ["string", "null"], "description": "The third"}


@pytest.mark.parametrize(
    ("arguments", "line", "words"),
    [
        ("x", "x: It", "x has no annotation"),
        ("x: str", "y: It", "the docstring has no line for x"),
        ("x: datetime", "x: It", "datetime is no type for an argument"),
        ("x: tuple[int, int]", "x: It", "is no type for an argument"),
        ("x: dict[int, str]", "x: It", "is no type for an argument"),
        ("x: list[str] = []", "x: It", "the default of x is not a plain"),
        ("x: str = [].append", "x: It", "the default of x is not a plain"),
        ("*x: str", "x: It", "name every argument"),
        ("x: Literal[f]", "x: It", "Literal"),
    ],
)
def test_what_is_no_signature_of_a_tool(arguments: str, line: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words.replace("*", r"\*").replace("[", r"\[")):
        derive(arguments, line)


def test_the_design_and_the_signature_are_compared() -> None:
    designed = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"enum": ["x", "y"]},
            "c": {"type": "number"},
            "d": {"type": "string"},
        },
        "required": ["a", "b"],
    }
    same = derive('a: str, b: Literal["y", "x"], c: float = 0, d: str | None = None', "a: A", "b: B", "c: C", "d: D")
    assert compare_parameters(designed, same.parameters) == []
    lies = derive('a: str = "", b: Literal["x"] = "x", c: int = 0, e: str = ""', "a: A", "b: B", "c: C", "e: E")
    assert compare_parameters(designed, lies.parameters) == [
        "the argument d is missing",
        "the design has no argument e",
        "a is required: give it no default",
        "b is required: give it no default",
        "b: its values are 'x', 'y' in the design: write Literal[…] exactly so",
        "c is number in the design, integer here",
    ]


def test_formats_of_the_design_reach_the_schema() -> None:
    derived = derive(
        'day: str, mail: str | None = None, days: list[str] = None, kind: Literal["a"] = "a", at: str = ""',
        "day: It",
        "mail: It",
        "days: It",
        "kind: It",
        "at: It",
    ).parameters
    day = {"type": "string", "format": "date"}
    mail = {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]}
    at = {"type": "string", "format": "time"}
    designed = {
        "properties": {"day": day, "mail": mail, "days": {"type": "array", "items": day}, "kind": day, "at": at}
    }
    found = add_formats(derived, designed)["properties"]
    assert (found["day"]["format"], found["mail"]["format"], found["days"]["items"]) == ("date", "email", day)
    assert "format" not in found["kind"]
    assert "format" not in found["at"], "10:30 is no time of JSON Schema"
    assert compile_schema({"properties": found}).errors({"day": "tomorrow"})
