"""Derive the state model of an environment, pydantic source, from its design, so that schema and code agree (ScaleEnv §3.1).

Each table is a mapping of row ids to rows, and each column has the type of its JSON Schema. This needs no language model.
"""

from __future__ import annotations

import json
from typing import Any

from simia.state_schema import ColumnSpec, StateSchema, TableSpec

SIMPLE_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
ROW_BASE = "TableRow"
STATE = "State"
KIT_NAMES = frozenset({"ToolError", "Tools", "Any", "Literal", "BaseModel", "ConfigDict", ROW_BASE, STATE})


def write_state_model(schema: StateSchema) -> str:
    """Return the source of the models: a class for the rows of each table, and `State` with one mapping for each table."""
    lines = [
        f"class {ROW_BASE}(BaseModel):",
        '    """Base of all rows: unknown columns and values of another type are refused."""',
        "",
        '    model_config = ConfigDict(extra="forbid", validate_assignment=True)',
    ]
    names = name_row_classes(schema)
    for table, spec in schema.tables.items():
        lines += [
            "",
            "",
            f"class {names[table]}({ROW_BASE}):",
            f'    """A row of `{table}`; its key is the row\'s id."""',
            "",
        ]
        lines += [f"    {column}: {write_column(each)}" for column, each in order_columns(spec)] or ["    pass"]
    lines += ["", "", f"class {STATE}(BaseModel):", '    """All tables: row id → row."""', ""]
    lines += [f"    {table}: dict[str, {names[table]}] = {{}}" for table in schema.tables]
    return "\n".join(lines) + "\n"


def order_columns(table: TableSpec) -> list[tuple[str, ColumnSpec]]:
    """The columns as the class has them: required ones first, each kind in the order of the design."""
    return sorted(table.columns.items(), key=lambda pair: not pair[1].required)


def write_column(column: ColumnSpec) -> str:
    """The annotation of a column, with its default unless it is required."""
    kind = write_type(column.values)
    if column.required:
        return kind
    if column.default is None and "None" not in kind.split(" | ") and kind != "Any":
        kind += " | None"
    return f"{kind} = {write_default(column.default)}"


def write_default(value: Any) -> str:
    """A default as Python; a collection is copied by pydantic for each row."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def write_type(schema: Any) -> str:
    """Return the Python type of a JSON Schema; `Any` for a schema that Python types cannot express."""
    if not isinstance(schema, dict):
        return "Any"
    if "const" in schema:
        return write_literals([schema["const"]])
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return write_literals(schema["enum"])
    members = schema.get("anyOf") or schema.get("oneOf")
    if members:
        return join_type_names([write_type(member) for member in members])
    kind = schema.get("type")
    if isinstance(kind, list):
        return join_type_names([write_type({**schema, "type": each}) for each in kind])
    if kind == "array":
        return f"list[{write_type(schema.get('items'))}]"
    if kind == "object":
        return f"dict[str, {write_type(schema.get('additionalProperties'))}]"
    return SIMPLE_TYPES.get(str(kind), "Any")


def write_literals(values: list[Any]) -> str:
    """`Literal[…]` for texts, integers, truth values and None; `Any` if there is another value among them."""
    if not all(value is None or isinstance(value, str | int | bool) for value in values):
        return "Any"
    named = [
        json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
        for value in values
        if value is not None
    ]
    parts = [f"Literal[{', '.join(named)}]"] if named else []
    return join_type_names([*parts, *(["None"] if None in values else [])])


def join_type_names(names: list[str]) -> str:
    """Write a union of types, each once; `Any` if one of them is `Any`."""
    return "Any" if "Any" in names or not names else " | ".join(dict.fromkeys(names))


def name_row_classes(schema: StateSchema) -> dict[str, str]:
    """Return table → name of its row class: the singular in capitals, followed by `Row` if that name is taken."""
    found: dict[str, str] = {}
    for table in schema.tables:
        name = "".join(word.capitalize() for word in find_singular(table).split("_"))
        while name in KIT_NAMES or name in found.values():
            name += "Row"
        found[table] = name
    return found


def find_singular(word: str) -> str:
    """The singular of an English plural, by its ending."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def describe_row_schema(table: TableSpec) -> dict[str, Any]:
    """Return the JSON Schema of a row. It accepts the same rows as the class of the state model."""
    return {
        "type": "object",
        "properties": {name: column.values for name, column in table.columns.items()},
        "required": [name for name, column in table.columns.items() if column.required],
        "additionalProperties": False,
    }


def fill_defaults(schema: StateSchema, state: dict[str, Any]) -> dict[str, Any]:
    """Return a valid state as the state model writes it: all tables, all columns, defaults filled in."""
    return {
        name: {
            key: {column: row.get(column, each.default) for column, each in order_columns(table)}
            for key, row in state.get(name, {}).items()
        }
        for name, table in schema.tables.items()
    }
