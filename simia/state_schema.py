"""The schema of a world's state: tables with keys, references between them, values of columns, and constraints (pack format 2).

A table is a mapping or a list of rows at a dotted path of the state. `find_violations` checks a state against the schema: keys
that are missing or occur twice, references to rows that do not exist, values that break a column's JSON Schema. The schema also
tells the state reward how columns are compared (ScaleEnv §3.1 and §3.4, EnvScaler §3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from simia.reward_spec import Match
from simia.tool import compile_schema

MOST_VIOLATIONS = 100


class ColumnSpec(BaseModel):
    """One column of a table."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    values: dict[str, Any] = Field(default_factory=dict)
    """JSON Schema of the column's values; empty: any value."""
    required: bool = False
    """Whether every row has the column."""
    default: Any = None
    """The column's value in a new row that does not set it."""
    unique: bool = False
    """Whether no value occurs in two rows."""
    references: str | None = None
    """Table whose keys the values refer to (foreign key). Null is no reference; each element of a list is a reference."""
    match: Match | None = None
    """How the state reward compares the values. null: exactly, or as the pack's `match` says."""


class TableSpec(BaseModel):
    """One table of the state."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    path: str | None = None
    """Dotted path of the table in the state. null: the table's name."""
    key: str | None = None
    """Column with a row's primary key. null: the keys of the mapping of rows."""
    columns: dict[str, ColumnSpec] = Field(default_factory=dict)
    """Columns by name. Columns that are not listed may occur."""
    match: Match | None = None
    """How the state reward compares the whole table; a column's own `match` takes precedence."""


class StateSchema(BaseModel):
    """Tables of the state, and constraints that hold in every state."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    tables: dict[str, TableSpec] = Field(default_factory=dict)
    """Tables by name."""
    constraints: list[str] = Field(default_factory=list)
    """Integrity constraints over several tables: names of functions `check(final, initial) -> bool` in the pack's checks file,
    which hold in every state that an episode can reach."""

    @model_validator(mode="after")
    def check_tables(self) -> StateSchema:
        """Refuse references to tables that do not exist, and schemas that cannot be compiled."""
        for name, table in self.tables.items():
            for column, spec in table.columns.items():
                if spec.references is not None and spec.references not in self.tables:
                    raise ValueError(f"{name}.{column} references {spec.references!r}, which is no table")
                compile_schema(spec.values)
        return self

    def list_policies(self) -> dict[str, Match]:
        """Dotted paths of the state → how their values are compared, as `match` in pack.yaml has them."""
        found: dict[str, Match] = {}
        for name, table in self.tables.items():
            path = table.path or name
            if table.match is not None:
                found[path] = table.match
            found |= {f"{path}.*.{column}": spec.match for column, spec in table.columns.items() if spec.match}
        return found

    def find_table(self, path: list[str]) -> str | None:
        """The table that a path of the state lies in; None: it lies in none."""
        for name, table in self.tables.items():
            steps = (table.path or name).split(".")
            if path[: len(steps)] == steps:
                return name
        return None

    def find_violations(self, state: Any) -> list[str]:
        """Check a state, one line for each violation, `MOST_VIOLATIONS` at most."""
        found: list[str] = []
        for line in self._iterate_violations(state):
            found.append(line)
            if len(found) == MOST_VIOLATIONS:
                break
        return found

    def _iterate_violations(self, state: Any) -> Iterator[str]:
        keys = {name: {key for key, _ in list_rows(state, name, table)} for name, table in self.tables.items()}
        for name, table in self.tables.items():
            rows = list_rows(state, name, table)
            if read_path(state, table.path or name) is None:
                yield f"{name}: the state has no such table"
            if len(keys[name]) < len(rows):
                yield f"{name}: {len(rows) - len(keys[name])} rows have a key that another row has"
            for column, spec in table.columns.items():
                yield from check_column(f"{name}.{column}", column, spec, rows, keys)


def check_column(
    place: str, column: str, spec: ColumnSpec, rows: list[tuple[str, Any]], keys: dict[str, set[str]]
) -> Iterator[str]:
    """Check one column of all rows."""
    schema = compile_schema(spec.values) if spec.values else None
    seen: dict[str, str] = {}
    for key, row in rows:
        if not isinstance(row, dict) or column not in row:
            if spec.required:
                yield f"{place}: row {key} lacks it"
            continue
        value = row[column]
        if schema is not None and (errors := schema.errors(value)):
            yield f"{place}: row {key}: {errors[0][1]}"[:300]
        if spec.unique and (other := seen.setdefault(repr(value), key)) != key:
            yield f"{place}: rows {other} and {key} have the same value"
        if spec.references is not None:
            targets = value if isinstance(value, list) else list(value) if isinstance(value, dict) else [value]
            for target in targets:
                if target is not None and str(target) not in keys[spec.references]:
                    yield f"{place}: row {key} refers to {str(target)[:80]!r}, which is not in {spec.references}"


def list_rows(state: Any, name: str, table: TableSpec) -> list[tuple[str, Any]]:
    """(key, row) of each row of a table; empty if the state has no such table."""
    rows = read_path(state, table.path or name)
    if isinstance(rows, dict) and table.key is None:
        return [(str(key), row) for key, row in rows.items()]
    found = list(rows.values()) if isinstance(rows, dict) else rows if isinstance(rows, list) else []
    key = table.key
    return [
        (str(row.get(key, number)) if key and isinstance(row, dict) else str(number), row)
        for number, row in enumerate(found)
    ]


def read_path(state: Any, path: str) -> Any:
    """The value at a dotted path of mappings; None if there is none."""
    for step in path.split("."):
        if not isinstance(state, dict) or step not in state:
            return None
        state = state[step]
    return state
