"""Convert OpenAPI 3.0 and 3.1 schemas to plain JSON Schema: expand references within the document and cut cycles.

A foreign document is untrusted: it may refer to itself or to other files, or grow without bound when it is expanded. Only
references within the document are followed. A reference that is cyclic or makes a schema too large becomes an object whose
description names it. Keywords of 3.0 that differ from JSON Schema (`nullable`, a boolean `exclusiveMinimum`) are converted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote

import orjson

from simia.schema_repair import INNER, LISTS, PLACES
from simia.tool import SchemaError, compile_schema

JSON = Any
DEPTHS = (8, 5, 3, 2, 1)  # depths of nested references, tried until the schema is small enough
LARGEST = 40_000  # bytes of one tool's arguments
NODES = 50_000
DROPPED = {
    "xml", "discriminator", "externalDocs", "example", "examples", "deprecated", "$schema", "$id", "$comment", "$anchor",
}  # fmt: skip


class SchemaTooLarge(Exception):  # noqa: N818 - a state
    """A schema has more than `NODES` nodes."""


class OpenAPIDocument:
    """An OpenAPI document that resolves its references."""

    def __init__(self, value: dict[str, JSON]) -> None:
        self.value = value
        self._nodes = 0

    def at(self, reference: str) -> JSON:
        """Resolve a reference within the document; None for a broken reference or one to another file."""
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
        """Return a parameter, body or response, also behind references; empty for anything else."""
        for _ in range(10):
            if not (isinstance(value, dict) and isinstance(value.get("$ref"), str)):
                break
            value = self.at(value["$ref"])
        return value if isinstance(value, dict) and "$ref" not in value else {}

    def schema(self, value: JSON, *, sent: bool = True, largest: int = LARGEST) -> dict[str, JSON]:
        """Expand a schema. `sent`: the schema is of a request, so read-only properties are omitted."""
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
                hidden = {n for n, s in each.items() if sent and isinstance(s, dict) and s.get("readOnly") is True}
                unsent |= hidden
                kept = {name: inner for name, inner in each.items() if name not in hidden}
                made[key] = {str(name): self._schema(inner, seen, depth, sent) for name, inner in kept.items()}
            elif key in LISTS and isinstance(each, list):
                made[key] = [self._schema(inner, seen, depth, sent) for inner in each]
            elif key in INNER and isinstance(each, dict):
                made[key] = self._schema(each, seen, depth, sent)
            elif key not in ("readOnly", "writeOnly", *PLACES, *LISTS) and (key not in INNER or isinstance(each, bool)):
                made[key] = each
        return convert_schema(made, unsent)


def make_reference_stub(reference: str, target: JSON) -> dict[str, JSON]:
    """Make a schema with type and name, in place of a reference that is not followed."""
    kind = target.get("type") if isinstance(target, dict) else None
    return {**({"type": kind} if isinstance(kind, str) else {}), "description": f"see {reference.rsplit('/', 1)[-1]}"}


def convert_schema(schema: dict[str, JSON], unsent: Collection[str] = ()) -> dict[str, JSON]:
    """Convert a 3.0 schema to 2020-12, and join an `allOf` of objects. `unsent`: properties that were omitted."""
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
    required = schema.get("required")  # some documents write `required: true` on a property
    names = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
    schema["required"] = [name for name in names if name not in unsent]
    if not schema["required"]:
        del schema["required"]
    return join_objects(schema)


def join_objects(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Join an `allOf` of objects to one object with all properties."""
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
        made["required"] = list(dict.fromkeys([*made.get("required", []), *part.get("required", [])]))
        made |= {key: part[key] for key in ("description", "title") if key in part}
    return {key: value for key, value in made.items() if value != []}


def make_compilable(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Return the schema, without patterns if these do not compile (the linear-time engine lacks some). Raises `SchemaError`."""
    try:
        compile_schema(schema)
    except SchemaError:
        schema = remove_patterns(schema)
        compile_schema(schema)
    return schema


def remove_patterns(value: JSON, *, names: bool = False) -> JSON:
    """Remove patterns. `names`: the keys are names of properties, which may be called `pattern`."""
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
    """Summarize a schema, as `{id: integer, tags: [string]}`."""
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
