"""Check a design by code: names, references, schemas, tables of operations (EnvScaler §2: logic planning)."""

from __future__ import annotations

import keyword
import re
from typing import Any

from simia.kit import Tools
from simia.state_schema import ColumnSpec, StateSchema, TableSpec
from simia.synthesis.design import ToolDesign
from simia.tool import SchemaError, compile_schema

NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
KIT_MEMBERS = frozenset(name for name in dir(Tools) if not name.startswith("_")) | {"state", "now", "ended", "State"}
RESERVED = frozenset({"copy", "json", "schema", "dict", "construct", "validate"})  # members of pydantic models
FORMS = ("string", "integer", "number", "boolean", "array", "object")


def normalize_state(schema: StateSchema) -> StateSchema:
    """Return the tables in the form of synthesized states: rows are keyed by id, and columns that may be left out may also be null.

    If the key of a table is listed as a column, this column is removed.
    """
    tables = {}
    for name, table in schema.tables.items():
        columns = {
            column: spec
            if spec.required or spec.default is not None
            else spec.model_copy(update={"values": allow_null(spec.values)})
            for column, spec in table.columns.items()
            if column != table.key
        }
        tables[name] = TableSpec(columns=columns, match=table.match)
    return StateSchema(tables=tables)


def allow_null(values: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema that allows null too."""
    if not values or compile_schema(values).valid(None):
        return values
    changed = dict(values)
    if isinstance(kind := changed.get("type"), str | list):
        changed["type"] = [*([kind] if isinstance(kind, str) else kind), "null"]
    if isinstance(changed.get("enum"), list):
        changed["enum"] = [*changed["enum"], None]
    return changed if compile_schema(changed).valid(None) else {"anyOf": [values, {"type": "null"}]}


def find_table_faults(schema: StateSchema) -> list[str]:
    """What is wrong with the tables, one line each."""
    found = [] if schema.tables else ["there is no table"]
    for name, table in schema.tables.items():
        if not is_name(name):
            found.append(f"table {name!r}: names are lower case with underscores, and no words of Python")
        if table.path is not None:
            found.append(f"table {name}: leave out `path`: a table lies under its name")
        if not table.columns:
            found.append(f"table {name} has no columns")
        for column, spec in table.columns.items():
            if not is_name(column) or column in RESERVED or column.startswith("model_"):
                found.append(f"{name}.{column}: choose another name")
            found += [f"{name}.{column}: {fault}" for fault in find_column_faults(spec)]
    return [*found, *find_cycles(schema)]


def find_column_faults(column: ColumnSpec) -> list[str]:
    """What is wrong with one column."""
    if not column.values:
        return ["`values` is missing: give its JSON Schema"]
    if column.required or column.default is None:
        return []
    errors = compile_schema(column.values).errors(column.default)
    return [f"its default breaks its schema: {errors[0][1]}"] if errors else []


def find_cycles(schema: StateSchema) -> list[str]:
    """List cycles of required references: they lead back to their own table, so no row could be the first one."""
    needs = {
        name: {
            column.references
            for column in table.columns.values()
            if column.references is not None and column.required and not allows_empty(column)
        }
        for name, table in schema.tables.items()
    }
    free: set[str] = set()
    while ready := [name for name in needs if name not in free and needs[name] <= free]:
        free |= set(ready)
    stuck = [name for name in needs if name not in free]
    words = "their required references form a cycle, so no first row can exist: make one of them optional"
    return [f"{', '.join(stuck)}: {words}"] if stuck else []


def allows_empty(column: ColumnSpec) -> bool:
    """Whether a reference may be null or an empty collection."""
    schema = compile_schema(column.values)
    empty: tuple[Any, ...] = (None, [], {})
    return any(schema.valid(value) for value in empty)


def find_tool_faults(tools: list[ToolDesign], schema: StateSchema, least: int) -> list[str]:
    """List what is wrong with the operations, one line each. `least`: fewest operations; at most twice as many are accepted, since each
    costs questions."""
    names = [tool.name for tool in tools]
    found = [f"{name}: two operations have this name" for name in dict.fromkeys(names) if names.count(name) > 1]
    if len(tools) < least:
        found.append(f"{len(tools)} operations, and at least {least} are needed")
    if len(tools) > 2 * least:
        found.append(f"{len(tools)} operations are more than {2 * least}: leave out the least important ones")
    for kind, there in (
        ("reads", not all(tool.writes for tool in tools)),
        ("writes", any(tool.writes for tool in tools)),
    ):
        if tools and not there:
            found.append(f"no operation {kind}")
    for tool in tools:
        if tool.name in KIT_MEMBERS or not (tool.given or is_name(tool.name)):
            found.append(f"{tool.name}: the name is taken or a word of Python: choose another one")
        unknown = [table for table in tool.tables if table not in schema.tables]
        if unknown:
            found.append(f"{tool.name}: there is no table {unknown[0]!r}")
        if not tool.tables:
            found.append(f"{tool.name}: `tables` is empty: name the tables that it reads or changes")
        if not tool.given:
            found += [f"{tool.name}: {fault}" for fault in find_parameter_faults(tool.parameters)]
    return found


def find_parameter_faults(parameters: dict[str, Any]) -> list[str]:
    """What is wrong with the schema of an operation's arguments."""
    try:
        compile_schema(parameters)
    except SchemaError as error:
        return [str(error)]
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    if parameters.get("type") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        return ["`parameters` is a JSON Schema of an object with properties"]
    found = [f"required names {name!r}, which is no argument" for name in required if name not in properties]
    for name, schema in properties.items():
        if not is_name(name) or name in ("self", "by"):
            found.append(f"argument {name!r}: choose another name")
        if not isinstance(schema, dict) or not ({"type", "enum", "anyOf", "oneOf"} & schema.keys()):
            found.append(f"argument {name}: give its type, one of {', '.join(FORMS)}")
    return found


def is_name(name: str) -> bool:
    """Whether a name can be a table, column, method or argument."""
    return NAME.fullmatch(name) is not None and not keyword.iskeyword(name)
