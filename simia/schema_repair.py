"""Repair slightly invalid JSON Schemas of foreign tools, with a note for each change.

Servers publish schemas that break JSON Schema 2020-12 in a few recurring ways: keywords of older drafts (`exclusiveMinimum: true`),
`required: true` on a property, `type: "any"`, `examples` that are no list. A keyword with an evident meaning is rewritten, and any other
is removed, so that the tool stays usable; the server checks its arguments itself. `compile_schema` refuses a schema that is still
invalid, such as one with a misspelt type. A valid schema is returned as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from simia.tool import SchemaError, compile_schema, refuse_hostile_schema
from simia.type_hints import ANY, TYPE_NAMES, read_type_hint

JSON = Any
PLACES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # name → schema
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
INNER = (
    "items", "not", "additionalProperties", "contains", "propertyNames", "if", "then", "else", "unevaluatedProperties",
)  # fmt: skip
TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
NUMBERS = ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")
COUNTS = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
TEXTS = ("title", "description", "$comment", "format", "$schema", "$id", "$anchor", "contentEncoding")
DEFINITIONS = ("$defs", "definitions")
OBJECT_RULES = ("additionalProperties", "propertyNames", "unevaluatedProperties")  # never names of arguments
CONDITIONS = {"not", "if", "then", "else"}  # names of arguments only beside other arguments
KEYWORDS = {
    *NUMBERS, *COUNTS, *FLAGS, *TEXTS, *PLACES, *INNER, "type", "required", "enum", "const", "default", "examples",
}  # fmt: skip
WORDS = {"true": True, "false": False}


def is_foreign(schema: JSON) -> bool:
    """Whether a schema names a type that JSON Schema does not have, or lists arguments where `properties` should be."""
    if not isinstance(schema, dict):
        return False
    nodes: list[JSON] = [schema]
    for node in nodes:
        if not isinstance(node, dict):
            continue
        kind = node.get("type")
        if isinstance(kind, str) and kind not in TYPES:
            return True
        for key, value in node.items():
            if key in PLACES and isinstance(value, dict):
                nodes += value.values()
            elif key in LISTS and isinstance(value, list):
                nodes += value
            elif key in INNER:
                nodes.append(value)
    return move_bare_properties(schema, []) is not schema


def repair_schema(schema: JSON) -> tuple[dict[str, JSON], list[str]]:
    """Return the schema of a tool's arguments as an object schema of JSON Schema 2020-12, and a note for each change.

    Raises `SchemaError` for a schema that must not be read (remote references, too deep, too large) or describes no object.
    """
    if schema is None or isinstance(schema, bool):
        return {"type": "object", "properties": {}}, [f"the schema {shorten_json(schema)} became one without arguments"]
    refuse_hostile_schema(schema)
    repair = SchemaRepair(schema)
    made: dict[str, JSON] = repair.repair_node(move_bare_properties(schema, repair.notes), "")
    kind = made.get("type")
    if kind is None or (isinstance(kind, list) and "object" in kind):
        repair.notes.append("type: object added" if kind is None else f"type: {shorten_json(kind)} became object")
        made = {"type": "object", **made, **({"type": "object"} if kind else {})}
    if made["type"] != "object":
        raise SchemaError("its arguments are no object")
    if not made.keys() & {"properties", "$ref", "patternProperties", *LISTS}:
        made["properties"] = {}
        repair.notes.append("properties: {} added")
    if repair.old_draft and made.pop("$schema", None):
        repair.notes.append("$schema removed")
    return made, repair.notes


def move_bare_properties(schema: dict[str, JSON], notes: list[str]) -> dict[str, JSON]:
    """Move arguments that are written where `properties` should be, as in `{"city": {"type": "string"}}`.

    An argument may have the name of a keyword (`title`, `type`, `items`): its value is a schema, which the keyword's never is, or
    never is in a schema of arguments.
    """
    own = schema.get("type", "object")
    if schema.keys() & {"properties", "$ref", *LISTS} or not (own == "object" or describes_argument(own)):
        return schema
    bare = {}
    for key, value in schema.items():
        if key not in KEYWORDS and not key.startswith(("$", "x-")):
            if not isinstance(value, dict) or not value.keys() & {"type", "enum"}:
                return schema
            bare[key] = value
        elif key in KEYWORDS and key not in OBJECT_RULES and describes_argument(value):
            bare[key] = value
    if not bare.keys() - CONDITIONS:
        return schema
    notes.append(f"{', '.join(bare)}: moved into properties")
    return {**{key: value for key, value in schema.items() if key not in bare}, "properties": bare}


def describes_argument(value: JSON) -> bool:
    """Whether a value is a schema that states a type or a list of values."""
    return isinstance(value, dict) and (
        isinstance(value.get("type"), str | list) or isinstance(value.get("enum"), list)
    )


class SchemaRepair:
    """The repair of one schema: its root, which references point into, and the notes so far."""

    def __init__(self, root: dict[str, JSON]) -> None:
        self.root = root
        self.notes: list[str] = []
        self.old_draft = False
        """Whether a keyword of an older draft was rewritten, so that `$schema` is no longer right."""

    def repair_node(self, value: JSON, place: str) -> JSON:
        """Repair the schema at a place, written as the argument's dotted name."""
        if isinstance(value, bool):
            return value
        if isinstance(value, str | list):
            self._note(place, f"{shorten_json(value)} became a type")
            value = {"type": value}
        if not isinstance(value, dict):
            self._note(place, f"{shorten_json(value)} became {{}}")
            return {}
        node = dict(value)
        self._repair_type(node, place)
        self._repair_bounds(node, place)
        self._repair_old_keywords(node, place)
        self._repair_reference(node, place)
        needed = self._repair_properties(node, place)
        self._repair_required(node, needed, place)
        self._repair_values(node, place)
        for key in [key for key in node if key in PLACES and isinstance(node[key], dict)]:
            inner = place if key == "properties" else join(place, key)
            node[key] = {name: self.repair_node(each, join(inner, name)) for name, each in node[key].items()}
        for key in [key for key in node if key in LISTS]:
            if isinstance(node[key], dict):
                self._set(node, key, [node[key]], place)
            if not isinstance(node[key], list) or not node[key]:
                self._remove(node, key, place)
            else:
                node[key] = [self.repair_node(each, f"{join(place, key)}[{n}]") for n, each in enumerate(node[key])]
        for key in [key for key in node if key in INNER]:
            if isinstance(node[key], str) and node[key].lower() in WORDS:
                self._set(node, key, WORDS[node[key].lower()], place)
            if isinstance(node[key], dict | list | str | bool):
                node[key] = self.repair_node(node[key], f"{place}[]" if key == "items" else join(place, key))
            else:
                self._remove(node, key, place)
        return node

    def _repair_type(self, node: dict[str, JSON], place: str) -> None:
        kind = node.get("type", "object")
        if isinstance(kind, str) and kind.endswith("[]") and kind[:-2] in TYPE_NAMES:
            self._set(node, "type", "array", place)
            node.setdefault("items", {"type": TYPE_NAMES[kind[:-2]]})
        elif kind is None or (isinstance(kind, str) and kind.lower() in ANY):
            self._remove(node, "type", place)
        elif isinstance(kind, str) and kind not in TYPES:
            if (made := read_type_hint(kind)) is not None:
                self._note(
                    place,
                    f"type: {shorten_json(kind)} became {shorten_json(made['type'] if made.keys() == {'type'} else made)}",
                )
                del node["type"]
                node.update({key: value for key, value in made.items() if key not in node})
        elif isinstance(kind, list):
            known = ["null" if each is None else TYPE_NAMES.get(str(each).lower(), str(each)) for each in kind]
            known = list(dict.fromkeys(known))
            if not known or set(known) & set(ANY):
                self._remove(node, "type", place)
            elif known != kind:
                self._set(node, "type", known, place)
        if node.get("nullable") is True and "type" in node:
            kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
            self._set(node, "type", list(dict.fromkeys([*kinds, "null"])), place)
            del node["nullable"]

    def _repair_bounds(self, node: dict[str, JSON], place: str) -> None:
        for key, edge in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):  # booleans in draft 4
            if node.get(key) is True and edge in node:
                self._set(node, key, node.pop(edge), place)
                self.old_draft = True
        rules: tuple[tuple[tuple[str, ...], Callable[[JSON], JSON]], ...] = (
            (NUMBERS, repair_number), (COUNTS, repair_count), (FLAGS, repair_flag), (TEXTS, repair_text), (("pattern",), repair_pattern),
        )  # fmt: skip
        for keys, read in rules:
            for key in [key for key in node if key in keys]:
                found = read(node[key])
                if found is None or (key == "multipleOf" and found <= 0):
                    self._remove(node, key, place)
                elif found != node[key] or isinstance(found, bool) is not isinstance(node[key], bool):
                    self._set(node, key, found, place)

    def _repair_old_keywords(self, node: dict[str, JSON], place: str) -> None:
        """Rewrite keywords of drafts before 2020-12: tuples in `items`, and `dependencies`."""
        items = node.get("items")
        if isinstance(items, list):
            del node["items"]
            if items:
                node["prefixItems"] = items
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
            self._note(place, "items became prefixItems")
            self.old_draft = True
        if isinstance(node.get("dependencies"), dict):
            rows = node.pop("dependencies")
            for key, kind in (("dependentRequired", list), ("dependentSchemas", dict)):
                if found := {name: each for name, each in rows.items() if isinstance(each, kind)}:
                    node[key] = found
            self._note(place, "dependencies became dependentRequired or dependentSchemas")
            self.old_draft = True

    def _repair_reference(self, node: dict[str, JSON], place: str) -> None:
        target = node.get("$ref")
        if target is None and "$ref" not in node:
            return
        if not isinstance(target, str):
            self._remove(node, "$ref", place)
        elif target.startswith("#/") and not self._resolves(target):
            name = target.rpartition("/")[2]
            other = next((f"#/{key}/{name}" for key in DEFINITIONS if self._resolves(f"#/{key}/{name}")), None)
            if other:
                self._set(node, "$ref", other, place)
            else:
                self._remove(node, "$ref", place)

    def _resolves(self, pointer: str) -> bool:
        where: JSON = self.root
        for step in pointer[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(where, list) and step.isdecimal() and int(step) < len(where):
                where = where[int(step)]
            elif isinstance(where, dict) and step in where:
                where = where[step]
            else:
                return "%" in pointer  # an escaped pointer is left to the validator
        return True

    def _repair_properties(self, node: dict[str, JSON], place: str) -> list[str]:
        """Repair the maps of schemas. Returns the properties with `required: true` of their own."""
        rows = node.get("properties")
        if isinstance(rows, list) and all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
            self._note(place, "properties: the list became an object")
            node["properties"] = {row["name"]: {key: row[key] for key in row if key != "name"} for row in rows}
        for key in [key for key in PLACES if key in node and not isinstance(node[key], dict)]:
            self._remove(node, key, place)
        needed = []
        for name, inner in node.get("properties", {}).items():
            flag = WORDS.get(str(inner.get("required")).lower()) if isinstance(inner, dict) else None
            if flag is not None:
                self._note(
                    join(place, name), f"required: {shorten_json(inner['required'])} moved to the object's required"
                )
                node["properties"] = {**node["properties"], name: {k: v for k, v in inner.items() if k != "required"}}
                needed += [name] if flag else []
        return needed

    def _repair_required(self, node: dict[str, JSON], needed: list[str], place: str) -> None:
        given = node.get("required", [])
        names: list[str] = []
        if isinstance(given, str) and given in node.get("properties", {}):
            names = [given]
        elif isinstance(given, dict):
            names = [name for name, flag in given.items() if flag is True]
        elif isinstance(given, list):
            names = list(dict.fromkeys(name for name in given if isinstance(name, str)))
        if names != given:
            self._note(place, f"required: {shorten_json(given)} became {shorten_json(names)}")
        names += [name for name in needed if name not in names]
        if names != given:
            node["required"] = names
            if not names:
                del node["required"]

    def _repair_values(self, node: dict[str, JSON], place: str) -> None:
        """Repair `enum`, `examples` and `default`, and values that the type excludes."""
        if "examples" in node and not isinstance(node["examples"], list):
            self._set(node, "examples", [node["examples"]], place)
        if "enum" not in node:
            return
        values = list(node["enum"]) if isinstance(node["enum"], dict | list) else [node["enum"]]
        if values in ([], [None]):
            self._remove(node, "enum", place)
            return
        kind = node.get("type")
        if kind == "array" and not any(isinstance(value, list) for value in values):
            del node["enum"]
            inner = node.get("items")
            node["items"] = {**(inner if isinstance(inner, dict) else {}), "enum": values}
            self._note(place, "enum: moved to the items")
            return
        if None in values and isinstance(kind, str) and kind != "null":
            self._set(node, "type", [kind, "null"], place)
        values = [convert_value(value, kind) for value in values]
        if shorten_json(values, most=None) != shorten_json(node["enum"], most=None):
            self._set(node, "enum", values, place)
        if "default" in node and node["default"] not in values:
            default = convert_value(node["default"], kind)
            if default in values:
                self._set(node, "default", default, place)
            else:
                self._remove(node, "default", place)

    def _set(self, node: dict[str, JSON], key: str, value: JSON, place: str) -> None:
        self._note(place, f"{key}: {shorten_json(node.get(key))} became {shorten_json(value)}")
        node[key] = value

    def _remove(self, node: dict[str, JSON], key: str, place: str) -> None:
        self._note(place, f"{key}: {shorten_json(node.pop(key))} removed")

    def _note(self, place: str, text: str) -> None:
        self.notes.append(f"{place}: {text}" if place else text)


def convert_value(value: JSON, kind: JSON) -> JSON:
    """Convert a value of an `enum` to the type that the schema states, if it is such a value in another form ("5" for 5)."""
    if kind == "string" and isinstance(value, bool | int | float):
        return json.dumps(value)
    if kind in ("integer", "number") and isinstance(value, str):
        return value if (number := repair_number(value)) is None else number
    return WORDS.get(value.lower(), value) if kind == "boolean" and isinstance(value, str) else value


def repair_number(value: JSON) -> JSON:
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return None
        return int(number) if number.is_integer() else number if math.isfinite(number) else None
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def repair_count(value: JSON) -> JSON:
    number = repair_number(value)
    return number if number is not None and number >= 0 and number == int(number) else None


def repair_flag(value: JSON) -> JSON:
    return WORDS.get(value.lower()) if isinstance(value, str) else value if isinstance(value, bool) else None


def repair_text(value: JSON) -> JSON:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else None


def repair_pattern(value: JSON) -> JSON:
    """Return a pattern that the linear-time engine can run; None for another one, such as one with a lookahead."""
    try:
        compile_schema({"pattern": value})
    except SchemaError:
        return None
    return value


def join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def shorten_json(value: JSON, most: int | None = 60) -> str:
    """Return a value as JSON, cut to a length."""
    text = json.dumps(value, ensure_ascii=False)
    return text if most is None or len(text) <= most else f"{text[:most]}…"
