"""Repair of slightly invalid schemas: each becomes one that can be compiled, and a valid one stays as it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.schema_repair import is_foreign, repair_schema
from simia.tool import SchemaError, compile_schema


def of(value: Any, **more: Any) -> dict[str, Any]:
    """A schema with one argument."""
    return {"type": "object", "properties": {"a": value}, **more}


REPAIRS: list[tuple[Any, Any, str]] = [
    (None, {"type": "object", "properties": {}}, "the schema null became one without arguments"),
    ({"properties": {"a": {}}}, of({}), "type: object added"),
    ({"type": "object"}, {"type": "object", "properties": {}}, "properties: {} added"),
    ({"type": ["object", "null"], "properties": {"a": {}}}, of({}), 'type: ["object", "null"] became object'),
    ({"a": {"type": "string"}, "required": ["a"]}, of({"type": "string"}, required=["a"]), "a: moved into properties"),
    (of({"type": "string", "required": True}), of({"type": "string"}, required=["a"]), "a: required: true moved"),
    (of({"type": "string", "required": False}), of({"type": "string"}), "a: required: false moved"),
    (of({}, required=True), of({}), "required: true became []"),
    (of({}, required="a"), of({}, required=["a"]), 'required: "a" became ["a"]'),
    (of({}, required=["a", "a", 3]), of({}, required=["a"]), 'required: ["a", "a", 3] became ["a"]'),
    (of({}, required={"a": True, "b": False}), of({}, required=["a"]), "required: {"),
    (of({"type": "any"}), of({}), 'a: type: "any" removed'),
    (of({"type": None}), of({}), "a: type: null removed"),
    (of({"type": "int"}), of({"type": "integer"}), 'a: type: "int" became "integer"'),
    (of({"type": ["string", None]}), of({"type": ["string", "null"]}), "a: type:"),
    (of({"type": "string | null"}), of({"type": ["string", "null"]}), "a: type:"),
    (of({"type": "string[]"}), of({"type": "array", "items": {"type": "string"}}), "a: type:"),
    (of({"type": "string", "nullable": True}), of({"type": ["string", "null"]}), "a: type:"),
    (of("string"), of({"type": "string"}), 'a: "string" became a type'),
    (of({"minimum": 0, "exclusiveMinimum": True}), of({"exclusiveMinimum": 0}), "a: exclusiveMinimum: true became 0"),
    (of({"maximum": 9, "exclusiveMaximum": False}), of({"maximum": 9}), "a: exclusiveMaximum: false removed"),
    (of({"minimum": "0", "minLength": "3"}), of({"minimum": 0, "minLength": 3}), 'a: minimum: "0" became 0'),
    (of({"minimum": "2024-01-01"}), of({}), 'a: minimum: "2024-01-01" removed'),
    (of({"items": [{"type": "string"}], "additionalItems": False}), of({"prefixItems": [{"type": "string"}], "items": False}), "a: items"),
    (of({"items": None}), of({}), "a: items: null removed"),
    (of({"dependencies": {"x": ["y"]}}), of({"dependentRequired": {"x": ["y"]}}), "a: dependencies"),
    (of({}, additionalProperties="false"), of({}, additionalProperties=False), 'additionalProperties: "false" became false'),
    (of({}, additionalProperties=None), of({}), "additionalProperties: null removed"),
    (of({"examples": "x"}), of({"examples": ["x"]}), 'a: examples: "x" became ["x"]'),
    (of({"type": "string", "enum": [1, True, "x"]}), of({"type": "string", "enum": ["1", "true", "x"]}), "a: enum:"),
    (of({"type": "integer", "enum": ["1", "2"]}), of({"type": "integer", "enum": [1, 2]}), "a: enum:"),
    (of({"type": "string", "enum": ["x", None]}), of({"type": ["string", "null"], "enum": ["x", None]}), "a: type:"),
    (of({"type": "array", "enum": ["x"]}), of({"type": "array", "items": {"enum": ["x"]}}), "a: enum: moved to the items"),
    (of({"enum": "x"}), of({"enum": ["x"]}), 'a: enum: "x" became ["x"]'),
    (of({"enum": []}), of({}), "a: enum: [] removed"),
    (of({"enum": ["x"], "default": "y"}), of({"enum": ["x"]}), 'a: default: "y" removed'),
    (of({"description": None, "title": 3}), of({"title": "3"}), "a: title: 3 became"),
    (of({"pattern": "(?=x)y"}), of({}), "a: pattern:"),
    (of({"anyOf": []}), of({}), "a: anyOf: [] removed"),
    (of({"oneOf": {"type": "string"}}), of({"oneOf": [{"type": "string"}]}), "a: oneOf:"),
    (of({"$ref": "#/definitions/x"}, **{"$defs": {"x": {}}}), of({"$ref": "#/$defs/x"}, **{"$defs": {"x": {}}}), "a: $ref:"),
    (of({"$ref": "#/definitions/x"}), of({}), "a: $ref:"),
    ({"type": "object", "properties": [{"name": "a", "type": "string", "required": True}]}, of({"type": "string"}, required=["a"]), "properties: the list"),
    (of({"type": "object", "properties": {"b": {"type": "any"}}}), of({"type": "object", "properties": {"b": {}}}), "a.b: type:"),
    (of({"type": "array", "items": {"type": "any"}}), of({"type": "array", "items": {}}), "a[]: type:"),
]  # fmt: skip


@pytest.mark.parametrize(("given_schema", "wanted", "note"), REPAIRS)
def test_a_slightly_invalid_schema_is_repaired_with_a_note(given_schema: Any, wanted: Any, note: str) -> None:
    made, notes = repair_schema(given_schema)
    assert made == wanted
    assert any(each.startswith(note) for each in notes), notes
    compile_schema(made)
    assert repair_schema(made) == (made, [])


def test_the_name_of_an_old_draft_goes_only_with_its_keywords() -> None:
    name = {"$schema": "http://json-schema.org/draft-04/schema#"}
    assert repair_schema(of({"type": "string"}, **name)) == (of({"type": "string"}, **name), [])
    made, notes = repair_schema(of({"minimum": 0, "exclusiveMinimum": True}, **name))
    assert made == of({"exclusiveMinimum": 0})
    assert notes[-1] == "$schema removed"


@pytest.mark.parametrize(
    "bare",
    [
        {"title": {"type": "str", "description": "film"}, "year": {"type": "int"}},
        {"type": {"type": "str"}, "year": {"type": "int"}},
        {"title": {"type": "str"}},
        {"order_id": {"type": "string"}, "items": {"type": "array", "items": {"type": "string"}}},
        {"contains": {"type": "string"}, "limit": {"type": "integer"}},
        {
            "format": {"enum": ["a"]},
            "description": {"type": "str"},
            "default": {"type": "str"},
            "enum": {"type": "str"},
        },
        {"if": {"type": "string"}, "city": {"type": "string"}},
    ],
)
def test_arguments_with_the_names_of_keywords_are_moved_into_properties(bare: dict[str, Any]) -> None:
    wanted, _ = repair_schema({"type": "object", "properties": bare})
    for given_schema in (bare, {"required": [*bare], **bare}, {"additionalProperties": False, **bare}):
        made, _ = repair_schema(given_schema)
        assert made["properties"] == wanted["properties"]
        assert made.get("required", []) == given_schema.get("required", [])
    assert is_foreign(bare)


@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": {"type": "string"}},
        {"type": "object", "propertyNames": {"enum": ["a"]}},
        {"type": "object", "if": {"type": "object"}, "not": {"type": "object"}},
        {"title": "Arguments", "default": {"type": 1}, "definitions": {"type": {"type": "string"}}},
    ],
)
def test_keywords_with_schemas_are_no_arguments(schema: dict[str, Any]) -> None:
    assert not is_foreign(schema)
    assert repair_schema(schema)[0]["properties"] == {}


@pytest.mark.parametrize(
    "schema",
    [
        of({"type": "string", "enum": ["x"], "default": "x", "pattern": "^x$", "examples": ["x"]}, required=["a"]),
        of({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"type": ["string", "null"]}}}),
        of({"type": "object", "properties": {"required": {"type": "boolean"}, "type": {"type": "string"}}}),
        of({"type": "array", "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}}),
        of(True, additionalProperties=False),
    ],
)
def test_a_valid_schema_stays_as_it_is(schema: Any) -> None:
    assert repair_schema(schema) == (schema, [])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "its arguments are no object"),
        (["string"], "the schema is not an object"),
        (of({"$ref": "http://example.com/s.json"}), "refers to 'http://example.com/s.json'"),
    ],
)
def test_what_cannot_be_repaired_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        repair_schema(schema)


KEYS = ("type", "required", "properties", "items", "enum", "default", "examples", "minimum", "exclusiveMinimum", "minLength", "anyOf", "pattern", "$ref", "additionalProperties", "description", "dependencies", "uniqueItems")  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "any", "a", "0", "true", "(", "object"])
)
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_any_schema_of_an_argument_is_repaired_to_a_fixed_point_or_refused(schema: Any) -> None:
    try:
        made, _ = repair_schema(of(schema))
        compile_schema(made)
    except SchemaError:
        return
    assert repair_schema(made) == (made, [])


@given(JSON_VALUES)
def test_any_schema_of_all_arguments_is_repaired_or_refused(schema: Any) -> None:
    try:
        compile_schema(repair_schema(schema)[0])
    except SchemaError:
        return
