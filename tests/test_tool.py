"""Foreign schemas are hostile, and arguments are judged by all that a schema says."""

from __future__ import annotations

import pytest

from simia.tool import SchemaError, ToolSpec, compile_schema

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["a", "b"]},
        "at": {"type": "string", "format": "time"},
        "day": {"type": "string", "format": "date"},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"n": True}, "n"),
        ({"n": "3"}, "n"),
        ({"n": 0}, "n"),
        ({"n": 1, "kind": "c"}, "kind"),
        ({"n": 1, "address": {}}, "address"),
        ({"n": 1, "address": {"city": "x", "zip": 1}}, "address"),
        ({"n": 1, "at": "25:00"}, "at"),
        ({"n": 1, "day": "2025-02-30"}, "day"),
        ({"n": 1, "other": 2}, ""),
        ({}, ""),
    ],
)
def test_each_violation_is_found_where_it_is(arguments: dict[str, object], where: str) -> None:
    errors = ToolSpec(name="t", parameters=SCHEMA).argument_errors(arguments)
    assert [place for place, _ in errors] == [where]


@pytest.mark.parametrize("at", ["10:00", "10:00:30", "23:59Z", "10:00:00+02:00"])
def test_times_as_people_write_them(at: str) -> None:
    assert ToolSpec(name="t", parameters=SCHEMA).argument_errors({"n": 1, "at": at, "day": "2025-02-28"}) == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "http://127.0.0.1:1/x.json"}, "only references within"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "only references within"),
        ({"type": "strnig"}, "not a usable JSON Schema"),
        ({"type": "object", "properties": {"a": {"pattern": "(?=x)(a+)+$"}}}, "not a usable JSON Schema"),
        ({"description": "x" * 300_000}, "larger than"),
    ],
)
def test_hostile_schemas_are_refused_with_a_reason(schema: dict[str, object], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        compile_schema(schema)


def test_deep_nesting_is_refused() -> None:
    schema: dict[str, object] = {}
    for _ in range(60):
        schema = {"properties": {"a": schema}}
    with pytest.raises(SchemaError, match="nests deeper"):
        compile_schema(schema)


def test_a_catastrophic_pattern_is_linear_here() -> None:
    tool = ToolSpec(name="t", parameters={"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert tool.argument_errors({"a": "a" * 5000 + "!"})
