"""Infer undeclared tools from the calls in seed trajectories: names, arguments, types.

The description of such a tool says that it was inferred. An argument is required if every call in the seeds has it; its type is that
of the values in the seeds. The result is a draft that a person corrects; it is enough for a simulated world.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from simia.terminal import write_count
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

MARK = "Inferred from"
DEEP, MANY = 6, 40  # an object with more keys than that is a map, not a record


def infer_tools(seeds: Iterable[Trajectory], known: Iterable[str] = ()) -> list[ToolSpec]:
    """Infer a tool for each called name that neither its seed nor `known` lists, in the order of the first calls."""
    listed = set(known)
    seen: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        own = {tool.name for tool in seed.tools}
        for _, _, call in seed.calls():
            if call.name and call.name not in own | listed:
                seen.setdefault(call.name, []).extend([call.arguments] if call.arguments is not None else [])
    return [infer_tool(name, calls) for name, calls in seen.items()]


def infer_tool(name: str, calls: Sequence[dict[str, Any]]) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=f"{MARK} {write_count(len(calls), 'call')} in the seeds; what it does, and any other argument, is not written down.",
        parameters=infer_object_schema(calls, 0),
    )


def infer_object_schema(rows: Sequence[dict[str, Any]], depth: int) -> dict[str, Any]:
    """Infer the schema of objects: it has every key of any object; keys that all objects have are required."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if depth and (len(keys) > MANY or depth >= DEEP):
        return {"type": "object"}
    required = [key for key in keys if all(key in row for row in rows)]
    properties = {key: infer_value_schema([row[key] for row in rows if key in row], depth + 1) for key in keys}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def infer_value_schema(values: Sequence[Any], depth: int) -> dict[str, Any]:
    """Infer the schema of values seen in one place; it lists all their types if they have several."""
    kinds = list(dict.fromkeys(json_type_of(value) for value in values))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    made: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
    if "object" in kinds:
        made |= {
            **infer_object_schema([value for value in values if isinstance(value, dict)], depth),
            "type": made["type"],
        }
    if "array" in kinds and depth < DEEP:
        inner = [each for value in values if isinstance(value, list) for each in value]
        made |= {"items": infer_value_schema(inner, depth + 1)} if inner else {}
    return made


def json_type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    for name, types in KINDS.items():
        if isinstance(value, types):
            return name
    return "null"


KINDS: dict[str, type] = {"string": str, "integer": int, "number": float, "array": list, "object": dict}


def merge_seed_tools(seeds: Iterable[Trajectory]) -> tuple[list[ToolSpec], list[str]]:
    """Return the first tool of each name that the seeds list, and the names for which seeds have different schemas."""
    found: dict[str, ToolSpec] = {}
    texts: dict[str, str] = {}
    differ: dict[str, None] = {}
    for seed in seeds:
        for spec in seed.tools:
            text = json.dumps(spec.parameters, sort_keys=True)
            if spec.name not in found:
                found[spec.name], texts[spec.name] = spec, text
            elif texts[spec.name] != text:
                differ[spec.name] = None
    return list(found.values()), list(differ)
