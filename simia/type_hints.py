"""Types as Python, docstrings and other languages write them (`dict`, `List[int]`, `str, optional`), as JSON Schema."""

from __future__ import annotations

import re
from typing import Any

ALIASES = {
    "string": ("str", "text", "date", "datetime", "date-time", "uuid", "url", "uri", "file"),
    "integer": ("int", "int32", "int64", "long"),
    "number": ("float", "double", "decimal"),
    "boolean": ("bool",),
    "object": ("dict", "map", "json", "mapping", "hashmap"),
    "array": ("list", "tuple", "set", "sequence", "iterable", "arraylist"),
    "null": ("none", "nil"),
}
TYPE_NAMES = {alias: kind for kind, aliases in ALIASES.items() for alias in (kind, *aliases)}
ANY = ("any", "*", "mixed", "")
HINT = re.compile(r"(\w+)\s*\[(.*)\]", re.DOTALL)  # a type of Python with arguments: List[int]
OPTIONAL = re.compile(r"\s*,\s*(?:optional|required)\s*\Z", re.IGNORECASE)  # as docstrings have it: int, optional
MOST_DEPTH = 32


def read_type_hint(text: str, depth: int = 0) -> dict[str, Any] | None:
    """Return the schema of a type as Python, docstrings or other languages write it: `List[int]`, `str, optional`; None for no type."""
    text = OPTIONAL.sub("", text.strip())
    parts = split_outside_brackets(text, "|")
    if depth > MOST_DEPTH:
        return None
    if len(parts) > 1:
        return join_types([read_type_hint(part, depth + 1) for part in parts])
    name, inner = text.lower(), ""
    if found := HINT.fullmatch(text):
        name, inner = found[1].lower(), found[2]
    if name in ANY:
        return {}
    if name in ("optional", "union"):
        members = [read_type_hint(part, depth + 1) for part in split_outside_brackets(inner, ",")]
        return join_types([*members, *([{"type": "null"}] if name == "optional" else [])])
    kind = TYPE_NAMES.get(name)
    if kind is None:
        return None
    if kind == "array" and inner:
        items = [read_type_hint(part, depth + 1) for part in split_outside_brackets(inner, ",") if part != "..."]
        same = items[0] if items and all(item == items[0] for item in items) else None
        return {"type": "array", **({"items": same} if same else {})}
    return {"type": kind}


def join_types(members: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the schema of any of these; None if one is no type."""
    known = [member for member in members if member is not None]
    if len(known) < len(members) or not known:
        return None
    if {} in known:
        return {}
    kinds = list(dict.fromkeys(str(member["type"]) if "type" in member else "" for member in known))
    merged = {key: value for member in known for key, value in member.items()}
    return {**merged, "type": kinds if len(kinds) > 1 else kinds[0]} if "" not in kinds else {}


def split_outside_brackets(text: str, mark: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == mark and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]
