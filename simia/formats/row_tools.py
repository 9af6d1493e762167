"""Read and write the tool lists of files: JSON text or a list, each tool flat or OpenAI-style under `function`.

`detect_tool_style` returns which of these a list used, so that it is written in the same way even after a tool was edited.
Our own annotation (`ToolSpec.identifiers`) is never written, since a model or an endpoint would see it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import orjson

from simia.errors import Code
from simia.formats.dialect import RowError, dump_json, parse_json, take_carried, take_unknown
from simia.schema_repair import is_foreign, repair_schema
from simia.tool import SchemaError, ToolSpec

FIELDS = ("name", "description", "parameters")
OUTER = ("type", "function")


def read_tools(value: Any) -> list[ToolSpec]:
    """The specs of a tool list. Raises `RowError` with `bad_tools`."""
    if isinstance(value, str):
        if not value.strip():
            return []
        try:
            value = parse_json(value)
        except ValueError as error:
            raise RowError(Code.BAD_TOOLS, f"tools is not JSON: {error}") from None
    if value is None:
        return []
    return [read_tool(item) for item in (value if isinstance(value, list) else [value])]


def read_tool(item: Any) -> ToolSpec:
    """One tool. Raises `RowError`."""
    if isinstance(item, str):
        try:
            item = parse_json(item)
        except ValueError as error:
            raise RowError(Code.BAD_TOOLS, f"a tool is text that is not JSON: {error}") from None
    if not isinstance(item, dict):
        raise RowError(Code.BAD_TOOLS, "a tool is not an object")
    inner = item.get("function")
    outer: dict[str, Any] = {}
    if isinstance(inner, dict):
        outer = take_unknown(item, OUTER if item.get("type") == "function" else ("function",))
    else:
        inner = item
    name, description, parameters = (inner.get(field) for field in FIELDS)
    if not isinstance(name, str) or not name:
        raise RowError(Code.BAD_TOOLS, "a tool has no name")
    if description is not None and not isinstance(description, str):
        raise RowError(Code.BAD_TOOLS, f"the description of tool {name!r} is not text")
    if parameters is not None and not isinstance(parameters, dict):
        raise RowError(Code.BAD_TOOLS, f"the parameters of tool {name!r} are not a JSON Schema object")
    own = take_unknown(inner, (*FIELDS, "type") if inner.get("type") == "function" else FIELDS)
    spec = ToolSpec(name=name, description=description or "", extra={**outer, **own})
    if parameters is None:
        return spec
    required = own.get("required")
    if (
        is_foreign(parameters) and isinstance(required, list) and "required" not in parameters
    ):  # beside them, as some files have it
        parameters = {**parameters, "required": required}
    return spec.model_copy(update={"parameters": convert_parameters(parameters)})


def convert_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with types of Python or BFCL (`dict`, `float`, `List[int]`) as JSON Schema; any other one as it is.

    A schema that cannot be converted is returned as it is: the checks refuse its calls. The file's schema stays in the row's memory.
    """
    try:
        key = orjson.dumps(parameters)
    except TypeError:  # an integer beyond 64 bits
        return convert_foreign_schema(parameters) or parameters
    made = convert_schema_text(key)
    return parameters if made is None else dict(orjson.loads(made))


@lru_cache(maxsize=4096)
def convert_schema_text(text: bytes) -> bytes | None:
    made = convert_foreign_schema(orjson.loads(text))
    return None if made is None else orjson.dumps(made)


def convert_foreign_schema(parameters: dict[str, Any]) -> dict[str, Any] | None:
    """The converted schema; None for one that needs no conversion or cannot be converted."""
    try:
        return repair_schema(parameters)[0] if is_foreign(parameters) else None
    except (SchemaError, TypeError, ValueError, RecursionError):
        return None


def write_tool(spec: ToolSpec, *, nested: bool) -> dict[str, Any]:
    flat = {**spec.flat(), **take_carried(spec.extra, FIELDS)}
    return {"type": "function", "function": flat} if nested else flat


def write_tools(specs: list[ToolSpec], *, text: bool, nested: bool) -> str | list[dict[str, Any]]:
    written = [write_tool(spec, nested=nested) for spec in specs]
    return dump_json(written) if text else written


def detect_tool_style(value: Any) -> tuple[bool, bool | None]:
    """Return (text, nested) of a readable tool list. `nested` is that of its first tool; None if it has no tool."""
    items = json.loads(value) if isinstance(value, str) and value.strip() else value
    first = items[0] if isinstance(items, list) and items else items
    return isinstance(value, str), isinstance(first.get("function"), dict) if isinstance(first, dict) else None
