"""`simia pack upgrade`: rewrite a pack of format 1 as format 2, with a schema inferred from its state."""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

from simia.errors import UserError
from simia.pack import Pack
from simia.pack_files import read_state
from simia.state_schema import ColumnSpec, StateSchema, TableSpec

FORMAT = re.compile(r"^format:\s*1\b", re.MULTILINE)
FEWEST = 2  # values of a column from which a reference is inferred


def upgrade_pack(pack: Pack) -> list[str]:
    """Rewrite `pack.yaml`; comments and other keys stay as they are.

    Returns:
        What was changed, one line each; empty for a pack of format 2.

    Raises:
        UserError: The file has no plain `format: 1` line, or cannot be written.
    """
    assert pack.root is not None
    assert pack.file is not None
    if pack.file.format == 2:
        return []
    path = pack.root / "pack.yaml"
    text = path.read_text(encoding="utf-8")
    changed, count = FORMAT.subn("format: 2", text, count=1)
    if not count:
        raise UserError(f"{path}: no line `format: 1` to change: write format: 2 yourself")
    done = ["format: 2"]
    state = pack.path_of("state")
    if state is not None and state.suffix == ".json":
        schema = infer_schema(read_state(state))
        if schema.tables:
            body = {"schema": schema.model_dump(exclude_defaults=True)}
            changed = f"{changed.rstrip()}\n{yaml.safe_dump(body, sort_keys=False, allow_unicode=True)}"
            done += describe_schema(schema)
    draft = path.with_name("pack.yaml.tmp")
    try:
        draft.write_text(changed, encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): copy the pack to a folder of yours") from None
    return done


def describe_schema(schema: StateSchema) -> list[str]:
    """One line for each table, with its references."""
    found = []
    for name, table in schema.tables.items():
        references = [f"{column} → {spec.references}" for column, spec in table.columns.items() if spec.references]
        found.append(f"schema: table {name}" + (f" ({', '.join(references)})" if references else ""))
    return found


def infer_schema(state: Any) -> StateSchema:
    """Infer tables, keys and references from a state: a table is a mapping of objects, or a list of objects with an `id`; a column is a
    reference if all its values are keys of one other table."""
    tables: dict[str, TableSpec] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    keys: dict[str, set[str]] = {}
    for name, value in state.items() if isinstance(state, dict) else ():
        if isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
            tables[name], rows[name], keys[name] = TableSpec(), list(value.values()), set(value)
        elif isinstance(value, list) and value and all(isinstance(row, dict) and "id" in row for row in value):
            tables[name], rows[name] = TableSpec(key="id"), value
            keys[name] = {str(row["id"]) for row in value}
    for name, table in tables.items():
        for column in sorted({column for row in rows[name] for column in row} - {table.key}):
            values = [row[column] for row in rows[name] if row.get(column) is not None]
            texts = [str(each) for value in values for each in (value if isinstance(value, list) else [value])]
            if len(texts) < FEWEST or not all(isinstance(value, str | int | list) for value in values):
                continue
            targets = [other for other, known in keys.items() if other != name and set(texts) <= known]
            if len(targets) == 1:
                table.columns[column] = ColumnSpec(references=targets[0])
    return StateSchema(tables=tables)
