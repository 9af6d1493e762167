"""A small schema must not make the parent work for minutes: its cost is estimated before it is compiled."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from simia.envs.play.random_arguments import MOST_VALUES, Sampler
from simia.quality.grounding import iterate_schema_leaves
from simia.schema_cost import count_states, estimate_cost
from simia.tool import MOST_ERRORS, SchemaError, ToolSpec, compile_schema

LONG = 60  # seconds; what is tested here takes less than one, and took minutes or gigabytes


def tower(kind: str, levels: int, **beside: Any) -> dict[str, Any]:
    """Levels of one keyword with two references each: 2 to the power of `levels` checks of one value."""
    parts: dict[str, Any] = {f"d{i}": {kind: [{"$ref": f"#/$defs/d{i + 1}"}] * 2, **beside} for i in range(levels)}
    parts[f"d{levels}"] = {"type": "string"}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": parts}


def nested_unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    return schema


def clique(size: int) -> dict[str, Any]:
    parts = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{j}"} for j in range(size)]} for i in range(size)}
    return {"$ref": "#/$defs/d0", "$defs": parts}


def in_another_resource() -> dict[str, Any]:
    """References that mean another place than they would at the root."""
    inner = tower("allOf", 20)
    return {"$defs": {f"d{i}": True for i in range(20)}, "properties": {"b": {**inner, "$id": "urn:inner"}}}


def through_anchors() -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"d{i}": {"$anchor": f"d{i}", "allOf": [{"$ref": f"#d{i + 1}"}, {"$dynamicRef": f"#d{i + 1}"}]}
        for i in range(20)
    }
    return {"$ref": "#d0", "$defs": {**parts, "d20": {"$anchor": "d20", "type": "string"}}}


BOMBS: dict[str, tuple[dict[str, Any], str]] = {
    "allOf": (tower("allOf", 20), "more than 100,000 checks"),
    "anyOf": (tower("anyOf", 20), "more than 100,000 checks"),
    "oneOf": (tower("oneOf", 40), "more than 100,000 checks"),
    "a long chain": (tower("allOf", 2_500), "too long a chain"),
    "unevaluatedProperties": (tower("allOf", 12, unevaluatedProperties=False), "unevaluated"),
    "nested unevaluatedProperties": (nested_unevaluated(25), "unevaluated"),
    "loops that meet": (clique(14), "loop in more than one way"),
    "another resource": (in_another_resource(), "more than 100,000 checks"),
    "anchors": (through_anchors(), "more than 100,000 checks"),
    "a counted repetition": ({"pattern": "(a{1000}){1000}"}, "states"),
    "a pattern of names": ({"patternProperties": {"((a{100}){100}){100}": {}}}, "states"),
    "thousands of patterns": ({"properties": {str(i): {"pattern": "a"} for i in range(5_000)}}, "regular expressions"),
    "a large enum in each place": (
        {"allOf": [{"$ref": "#/$defs/e"}] * 200, "$defs": {"e": {"enum": list(range(1_000))}}},
        "more than 100,000 checks",
    ),
}


@pytest.mark.attack("a schema that expands through its references")
@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_expands_is_refused_before_it_is_compiled(name: str) -> None:
    schema, why = BOMBS[name]
    begun = time.monotonic()
    with pytest.raises(SchemaError, match=why):
        compile_schema(schema)
    assert time.monotonic() - begun < LONG


@pytest.mark.attack("a wrong value with a million errors")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (tower("allOf", 14), {"a": 1}),
        (tower("anyOf", 14), {"a": 1}),
        (tower("oneOf", 13), {"a": "x"}),
        ({"items": {"type": "integer"}}, ["x"] * 300_000),
        ({"items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, ["x"] * 300_000),
        ({"allOf": [{"maxLength": 1}] * 2_000}, "x" * 1_000_000),
        ({"pattern": "(a{100}){100}$"}, "a" * 1_000_000),
    ],
)
def test_the_errors_of_a_value_are_few_and_short(schema: dict[str, Any], value: Any) -> None:
    begun = time.monotonic()
    errors = compile_schema(schema).errors(value)
    assert 1 <= len(errors) <= MOST_ERRORS
    assert sum(len(what) for _, what in errors) < 50_000
    assert not compile_schema(schema).valid(value)
    assert time.monotonic() - begun < LONG


@pytest.mark.attack("a recursive schema that doubles at each level of the value")
def test_a_recursive_schema_checks_only_as_deep_as_it_can_afford() -> None:
    twice = {"a": {"$ref": "#/$defs/n"}}
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"properties": twice, "allOf": [{"properties": twice}], "minProperties": 1}},
    }
    flat: dict[str, Any] = {"b": 1}
    for _ in range(5):
        flat = {"a": flat}
    assert compile_schema(schema).errors(flat) == []
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    ((_, what),) = compile_schema(schema).errors(deep)
    assert "nests deeper" in what


def test_a_single_wrong_value_in_a_large_one_is_found() -> None:
    rows = [{"id": i} for i in range(50_000)]
    rows[4_321]["id"] = "x"  # type: ignore[assignment]
    schema = compile_schema({"items": {"properties": {"id": {"type": "integer"}}}})
    assert schema.errors(rows) == [("[4321].id", '"x" is not of type "integer"')]


JSON_VALUE = {
    "$defs": {
        "json": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/json"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
            ]
        }
    },
    "properties": {"value": {"$ref": "#/$defs/json"}},
}
TREE = {
    "$defs": {
        "node": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
    },
    "$ref": "#/$defs/node",
}


def grown(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for _ in range(levels):
        tree = {"below": [tree]}
    return tree


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (JSON_VALUE, {"value": {"a": [1, {"b": [None, {"c": ["x"]}]}]}}),
        (TREE, grown(30)),
        ({"$ref": "#"}, {"a": 1}),
        (nested_unevaluated(2), {"a": 1}),
        ({"enum": [f"w{i}" for i in range(10_000)]}, "w9999"),
        ({"properties": {str(i): {"pattern": r"^\d{4}-\d{2}-\d{2}$"} for i in range(500)}}, {"7": "2025-05-14"}),
        ({"pattern": r"^\p{L}{1,100}$"}, "Käse"),
        ({"pattern": "^[A-Za-z0-9_-]{1,1000}$"}, "a" * 1000),
    ],
)
def test_a_sound_schema_is_used_as_it_is(schema: dict[str, Any], value: Any) -> None:
    compiled = compile_schema(schema)
    assert compiled.valid(value)
    assert compiled.errors(value) == []


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("abc", 4),
        ("[a-z]{10}", 11),
        (r"\d{4}-\d{2}", 8),
        ("(a{100}){100}", 10_001),
        ("(a|b){2,5}", 11),
        ("a{3,}", 4),
        (r"[\]{9]", 2),
    ],
)
def test_states_are_counted_with_repetitions_written_out(pattern: str, states: int) -> None:
    assert count_states(pattern) == states


def test_parts_of_which_one_applies_count_once() -> None:
    many = {"properties": {f"p{i}": {"type": "string"} for i in range(100)}}
    assert estimate_cost(many).checks[0] < 200


@pytest.mark.attack("a schema of a few hundred bytes that is endless to walk")
def test_walks_over_a_schema_end() -> None:
    names = {f"p{i}": {"$ref": "#"} for i in range(60)}
    schema = {"type": "object", "properties": names, "required": list(names)}
    compile_schema(schema)
    assert sum(1 for _ in iterate_schema_leaves(schema, schema)) <= 10_000
    assert len(str(Sampler(random.Random(1)).object(schema))) < 100 * MOST_VALUES
    greedy = {"type": "object", "properties": {"a": {"type": "array", "minItems": 10**9}}, "required": ["a"]}
    assert len(Sampler(random.Random(1)).object(greedy)["a"]) <= MOST_VALUES


def test_wrong_arguments_are_still_named_one_by_one() -> None:
    tool = ToolSpec(name="t", parameters={"properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "null"}]}}})
    assert [where for where, _ in tool.argument_errors({"a": "x", "b": 1})] == ["a", "b"]
