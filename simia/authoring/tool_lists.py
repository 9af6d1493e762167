"""Read lists of tools in common forms: simia's, OpenAI's, Anthropic's, MCP's, Gemini's, or one bare JSON Schema per function.

`read_tool_list` accepts a JSON value only if all of it is tools: a row of a trajectory that also has tools is no list of tools.
`make_tool_specs` leaves out a tool whose schema cannot be compiled, and returns a line about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simia.tool import SchemaError, ToolSpec, compile_schema

SCHEMA_FIELDS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
NAMED = ("name", "title", "description", *SCHEMA_FIELDS)
WRAPPERS = ("tools", "functions", "functionDeclarations", "function_declarations")
CONVERSATIONS = ("messages", "conversations", "conversation", "turns")
KEPT = ("annotations", "outputSchema", "strict")  # further fields of some forms that are kept
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


def read_tool_list(value: Any) -> list[dict[str, Any]] | None:
    """The items of a list of tools, each `{name, description, parameters, extra}`; None if the value is no such list."""
    rows = list(iterate_tool_candidates(value))
    read = [tool for row in rows if (tool := flatten_tool(row)) is not None]
    return read if read and len(read) == len(rows) else None


def iterate_tool_candidates(value: Any) -> Iterator[Any]:
    """Yield the values that may be tools, without the objects and lists around them."""
    if isinstance(value, list):
        for each in value:
            yield from iterate_tool_candidates(each) if unwrap_tools(each) else [each]
    elif isinstance(value, dict):
        found = unwrap_tools(value)
        if found is not None:
            yield from iterate_tool_candidates(found)
        elif flatten_tool(value) is not None or not value:
            yield value
        else:
            for name, row in value.items():
                yield name_tool_row(name, row)


def name_tool_row(name: str, row: Any) -> Any:
    """A tool from its name and its schema, or from its name and the rest of it."""
    if not isinstance(row, dict):
        return None
    if any(isinstance(row.get(field), dict) for field in SCHEMA_FIELDS):
        return {"name": name, **row}
    return (
        {"name": name, "description": row.get("description"), "parameters": read_bare_schema(row)}
        if is_schema(row)
        else None
    )


def unwrap_tools(value: Any) -> list[Any] | None:
    if not isinstance(value, dict) or any(key in value for key in CONVERSATIONS):
        return None
    inner = value.get("result") if isinstance(value.get("result"), dict) else value  # an answer of JSON-RPC
    return next((inner[key] for key in WRAPPERS if isinstance(inner, dict) and isinstance(inner.get(key), list)), None)


def flatten_tool(row: Any) -> dict[str, Any] | None:
    """Return one tool of any form as `{name, description, parameters, extra}`; None if the value is no tool."""
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("function"), dict) and row.get("type", "function") == "function":
        row = {**row["function"]}
    schema = next((row[field] for field in SCHEMA_FIELDS if row.get(field) is not None), None)
    name = row.get("name")
    if schema is None and is_schema(row):
        name, schema = name if isinstance(name, str) else row.get("title"), read_bare_schema(row)
    if not isinstance(name, str) or not name.strip():
        return None
    if not is_schema(schema) and not (schema is None and row.keys() <= {*NAMED, *KEPT, "type", "returns", "response"}):
        return None
    description = row.get("description")
    return {
        "name": name.strip(),
        "description": description if isinstance(description, str) else "",
        "parameters": lower_schema_types(schema) if schema is not None else EMPTY,
        "extra": {field: row[field] for field in KEPT if row.get(field) is not None},
    }


def is_schema(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return (
        (isinstance(kind, str) and kind.lower() == "object") or isinstance(value.get("properties"), dict) or not value
    )


def read_bare_schema(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("title", "description", "name", "$schema", "$id")}


def lower_schema_types(schema: Any) -> Any:
    """Write types in lower case (Gemini has capitals); a schema without a type becomes that of an object."""
    schema = is_shallow(schema)
    return schema if "type" in schema or not isinstance(schema, dict) else {"type": "object", **schema}


def is_shallow(value: Any, depth: int = 0) -> Any:
    if depth > 100:
        return value
    if isinstance(value, list):
        return [is_shallow(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each.lower() if key == "type" and isinstance(each, str) and each.isupper() else is_shallow(each, depth + 1)
        for key, each in value.items()
    }


def make_tool_specs(rows: list[dict[str, Any]]) -> tuple[list[ToolSpec], list[str]]:
    """The tools that can be used, each name once, and a line for each one left out."""
    found: dict[str, ToolSpec] = {}
    lines: list[str] = []
    for row in rows:
        name = row["name"]
        if name in found:
            lines.append(f"tool {name!r} is listed twice: the first one is kept")
            continue
        try:
            compile_schema(row["parameters"])
        except (SchemaError, RecursionError) as error:
            lines.append(f"tool {name!r} is left out: {str(error) or 'its schema nests too deep'}")
            continue
        found[name] = ToolSpec.model_validate(row)
    return list(found.values()), lines
