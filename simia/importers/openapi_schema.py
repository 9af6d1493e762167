"""OpenAPI 3.0 and 3.1 schemas as plain JSON Schema: references within the document are written out, cycles are cut.

A foreign document is hostile: it may refer to itself, or to other places, or grow without end when it is written out. Only
references within the document are followed; one that comes round again, or that makes a schema too large, becomes an object
whose description names it. What 3.0 says otherwise than JSON Schema (`nullable`, a boolean `exclusiveMinimum`) is put right.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote

import orjson

from simia.tool import SchemaError, compile_schema

JSON = Any
DEPTHS = (8, 5, 3, 2, 1)  # references written out one within the other, tried until the schema is small enough
LARGEST = 40_000  # bytes of one tool's arguments
NODES = 50_000
DROPPED = {
    "xml",
    "discriminator",
    "externalDocs",
    "example",
    "examples",
    "deprecated",
    "$schema",
    "$id",
    "$comment",
    "$anchor",
}
PLACES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # name → schema
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
INNER = (
    "items",
    "not",
    "additionalProperties",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
)


class SchemaTooLarge(Exception):  # noqa: N818 - a state
    """A schema has more nodes than anybody could read."""


class OpenAPIDocument:
    """An OpenAPI document, with what its references lead to."""

    def __init__(self, value: dict[str, JSON]) -> None:
        self.value = value
        self._nodes = 0

    def at(self, reference: str) -> JSON:
        """What a reference within the document leads to; None for one that leads nowhere or elsewhere."""
        if not reference.startswith("#/"):
            return None
        place: JSON = self.value
        for step in reference[2:].split("/"):
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict):
                place = place.get(step)
            elif isinstance(place, list) and step.isdecimal() and int(step) < len(place):
                place = place[int(step)]
            else:
                return None
        return place

    def resolve_object(self, value: JSON) -> dict[str, JSON]:
        """A parameter, body or response, also where it is only referred to; empty for what is none."""
        for _ in range(10):
            if isinstance(value, dict) and isinstance(value.get("$ref"), str):
                value = self.at(value["$ref"])
            else:
                break
        return value if isinstance(value, dict) and "$ref" not in value else {}

    def schema(self, value: JSON, *, sent: bool = True, largest: int = LARGEST) -> dict[str, JSON]:
        """The schema written out. `sent`: of what a caller sends, without what only the server sets."""
        made: dict[str, JSON] = {}
        for depth in DEPTHS:
            self._nodes = 0
            try:
                made = self._schema(value, (), depth, sent)
            except (SchemaTooLarge, RecursionError):
                continue
            if len(orjson.dumps(made, option=orjson.OPT_NON_STR_KEYS)) <= largest:
                return made
        return {key: each for key, each in made.items() if key in ("type", "description", "title")}

    def _schema(self, value: JSON, seen: tuple[str, ...], depth: int, sent: bool) -> dict[str, JSON]:
        self._nodes += 1
        if self._nodes > NODES:
            raise SchemaTooLarge
        if not isinstance(value, dict):
            return {}
        reference = value.get("$ref")
        if isinstance(reference, str):
            target = self.at(reference)
            if not isinstance(target, dict) or reference in seen or len(seen) >= depth:
                return make_reference_stub(reference, target)
            made = self._schema(target, (*seen, reference), depth, sent)
            beside = {key: each for key, each in value.items() if key in ("description", "title", "default")}
            return {**made, **beside}
        made = {}
        unsent: set[str] = set()
        for key, each in value.items():
            if key in DROPPED or key.startswith("x-"):
                continue
            if key in PLACES and isinstance(each, dict):
                kept = {
                    n: s for n, s in each.items() if not (sent and isinstance(s, dict) and s.get("readOnly") is True)
                }
                unsent |= each.keys() - kept.keys()
                made[key] = {str(name): self._schema(inner, seen, depth, sent) for name, inner in kept.items()}
            elif key in LISTS and isinstance(each, list):
                made[key] = [self._schema(inner, seen, depth, sent) for inner in each]
            elif key in INNER and isinstance(each, dict):
                made[key] = self._schema(each, seen, depth, sent)
            elif key not in ("readOnly", "writeOnly", *PLACES, *LISTS) and (key not in INNER or isinstance(each, bool)):
                made[key] = each
        return convert_schema(made, unsent)


def make_reference_stub(reference: str, target: JSON) -> dict[str, JSON]:
    """In place of a reference that is not followed: what kind of value it is, and its name."""
    kind = target.get("type") if isinstance(target, dict) else None
    return {**({"type": kind} if isinstance(kind, str) else {}), "description": f"see {reference.rsplit('/', 1)[-1]}"}


def convert_schema(schema: dict[str, JSON], unsent: Collection[str] = ()) -> dict[str, JSON]:
    """A 3.0 schema as 2020-12 wants it, and one `allOf` of objects as one object. `unsent`: properties that were left out."""
    for name, edge in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(name), bool) and schema.pop(name) and edge in schema:
            schema[name] = schema.pop(edge)
    if schema.pop("nullable", False) is True:
        if isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
                schema["enum"] = [*schema["enum"], None]
        elif any(key in schema for key in LISTS):
            schema = {"anyOf": [schema, {"type": "null"}]}
    if schema.get("type") == "file":
        schema["type"] = "string"
    if isinstance(schema.get("required"), list):
        names = [name for name in schema["required"] if isinstance(name, str) and name not in unsent]
        schema["required"] = names
        if not names:
            del schema["required"]
    elif "required" in schema:
        del schema["required"]  # true, as some write it on a property
    return join_objects(schema)


def join_objects(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Objects that must all hold are one object with the properties of all."""
    parts = schema.get("allOf")
    if not isinstance(parts, list) or not parts:
        return schema
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    if len(parts) == 1 and not (rest.keys() & parts[0].keys() - {"description", "title", "default"}):
        return {**parts[0], **rest}
    all_of = [*parts, rest]
    known = {"type", "properties", "required", "description", "title", "additionalProperties"}
    if not all(part.keys() <= known and part.get("type", "object") == "object" for part in all_of):
        return schema
    made: dict[str, JSON] = {"type": "object"}
    for part in all_of:
        made["properties"] = {**made.get("properties", {}), **part.get("properties", {})}
        made["required"] = [
            *made.get("required", []),
            *(n for n in part.get("required", []) if n not in made.get("required", [])),
        ]
        made |= {key: part[key] for key in ("description", "title") if key in part}
    return {key: value for key, value in made.items() if value != []}


def make_compilable(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema if it can be compiled, else without its patterns (an engine with linear time lacks some). Raises `SchemaError`."""
    try:
        compile_schema(schema)
    except SchemaError:
        schema = remove_patterns(schema)
        compile_schema(schema)
    return schema


def remove_patterns(value: JSON, *, names: bool = False) -> JSON:
    """Without patterns. `names`: the keys are properties' names, and one of them may be called so."""
    if isinstance(value, list):
        return [remove_patterns(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: remove_patterns(each, names=key in PLACES and not names)
        for key, each in value.items()
        if names or key not in ("pattern", "patternProperties")
    }


def summarize_schema(schema: JSON, depth: int = 3) -> str:
    """A schema in a few words, as `{id: integer, tags: [string]}`."""
    if not isinstance(schema, dict):
        return "anything"
    kind = schema.get("type")
    for several in ("oneOf", "anyOf", "allOf"):
        if isinstance(schema.get(several), list):
            return " or ".join(dict.fromkeys(summarize_schema(each, depth) for each in schema[several][:4]))
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), None)
    if kind == "array" or "items" in schema:
        return f"[{summarize_schema(schema.get('items'), depth)}]"
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties and depth:
        shown = [f"{name}: {summarize_schema(each, depth - 1)}" for name, each in list(properties.items())[:12]]
        return "{" + ", ".join(shown) + (", …" if len(properties) > 12 else "") + "}"
    return str(kind or "anything")
