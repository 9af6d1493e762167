"""Rows of Parquet and Arrow files as JSON values, read in batches.

Arrow gives every struct all the fields that any row has, with null for those that a row lacks: a call's `arguments` would get
the arguments of other tools. A null in a struct is therefore a field that is not there. Rows that `simia export` wrote as a
table become simia's own rows again, without a loss.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from simia.errors import Code, UserError
from simia.formats.dialect import RowError

BATCH = 256  # rows that are held at once
BUFFER = 1 << 20  # bytes of a column that are read at once
TEXTS = ("pack", "task_id", "split", "system")
MESSAGE = ("role", "content", "reasoning", "call_id", "name", "error")
TABLE = {"version", "id", *TEXTS, "tools", "messages", "end", "more"}
"""Columns of a table that simia wrote."""


def import_arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UserError("parquet needs the package pyarrow: pip install 'simia[datasets]'") from None


def iterate_arrow_rows(path: Path) -> Iterator[dict[str, Any] | RowError]:
    """Yield the rows of a `.parquet` or `.arrow` file as JSON values, or why there is none. Raises `UserError` for a bad file."""
    pa, parquet = import_arrow()
    try:
        with contextlib.ExitStack() as stack:
            if path.suffix.lower() == ".parquet":
                file = stack.enter_context(parquet.ParquetFile(path, buffer_size=BUFFER))
                batches, names = file.iter_batches(batch_size=BATCH), file.schema_arrow.names
            else:
                source = stack.enter_context(pa.memory_map(str(path)))
                names, batches = open_arrow_file(pa, source)
            own = set(names) >= TABLE
            for batch in batches:
                for row in slice_batch(batch):
                    yield read_table_row(row) if own else read_foreign_row(row)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read: {reason}; write the file again, or leave it out") from None


def open_arrow_file(pa: Any, source: Any) -> tuple[list[str], Iterator[Any]]:
    """Return the columns and the record batches of an Arrow file: a stream, as `datasets` writes it, or a file with a footer."""
    try:
        reader = pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        file = pa.ipc.open_file(source)
        return file.schema.names, (file.get_batch(i) for i in range(file.num_record_batches))
    return reader.schema.names, iter(reader)


def slice_batch(batch: Any) -> Iterator[dict[str, Any]]:
    for start in range(0, batch.num_rows, BATCH):
        yield from batch.slice(start, BATCH).to_pylist()


def read_foreign_row(row: dict[str, Any]) -> dict[str, Any] | RowError:
    try:
        return {name: to_json_value(value) for name, value in row.items() if value is not None}
    except RowError as error:
        return error


def read_table_row(row: dict[str, Any]) -> dict[str, Any] | RowError:
    try:
        return from_table_columns(row)
    except (ValueError, TypeError, KeyError) as error:
        return RowError(Code.BAD_ROW, f"a column of simia's table cannot be read: {error!r:.100}")


def to_json_value(value: Any) -> Any:
    """Return a value of Arrow as JSON: without the nulls of structs, times as text. Raises `RowError` for bytes."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, dict):
        kept = ("content",) if "role" in value else ()  # in a message, null content is content
        return {name: to_json_value(inner) for name, inner in value.items() if inner is not None or name in kept}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):  # a map column
            return {str(name): to_json_value(inner) for name, inner in value}
        return [to_json_value(each) for each in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise RowError(Code.BAD_ROW, f"a column holds {type(value).__name__}, which a conversation cannot hold")


def from_table_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return simia's own row of a row of its table."""
    made = {name: row[name] for name in ("version", *TEXTS) if row[name] is not None}
    made["tools"] = json.loads(row["tools"])
    made |= json.loads(row["more"]) if row["more"] else {}
    made["messages"] = []
    for columns in row["messages"]:
        message = {name: columns[name] for name in MESSAGE if columns[name] is not None}
        message |= json.loads(columns["more"]) if columns["more"] else {}
        message["calls"] = [
            {"id": call["id"], "name": call["name"]}
            | ({"arguments": json.loads(call["arguments"])} if call["arguments"] is not None else {})
            | (json.loads(call["more"]) if call["more"] else {})
            for call in columns["calls"] or []
        ]
        made["messages"].append(message)
    return made
