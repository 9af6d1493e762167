"""Rows of Parquet files, streamed by batches of a row group; also simia's own tables (`simia export --to parquet`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from simia.errors import Code, UserError
from simia.formats.dialect import RowError, RowLimits
from simia.formats.row_conversion import SHOWN, FileRow, number_rows

BATCH = 200  # rows that are held at once
TABLE_TEXTS = ("pack", "task_id", "split", "system")
TABLE_MESSAGE = ("role", "content", "reasoning", "call_id", "name", "error")
TABLE = {"version", "id", *TABLE_TEXTS, "tools", "messages", "end", "more"}


def import_arrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet reader. Raises `UserError` where they are not installed."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UserError("parquet needs the package pyarrow: pip install 'simia[datasets]'") from None


def open_parquet(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """Open the rows of a Parquet file. Raises `UserError` at once if the file is not Parquet or pyarrow is not installed."""
    pa, parquet = import_arrow()
    try:
        file = parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]:.200}") from None
    return read_table(pa, file, limits)


def read_table(pa: Any, file: Any, limits: RowLimits) -> Iterator[FileRow]:
    own = set(file.schema_arrow.names) == TABLE
    done = 0
    try:
        for batch in file.iter_batches(batch_size=BATCH):
            for row in number_rows(batch.to_pylist(), limits, from_columns=not own):
                at = done + row.index
                yield FileRow(at, at, row.shown, *(convert_own(row) if own else (row.value, row.error)))
            done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        detail = f"from here on the file cannot be read: {str(error).splitlines()[0]:.200}"
        yield FileRow(done + 1, done + 1, "", error=RowError(Code.BAD_ROW, detail))


def convert_own(row: FileRow) -> tuple[Any, RowError | None]:
    """(row of the `simia` dialect, None) of a row of simia's own table, or (None, why not)."""
    if row.error is not None:
        return None, row.error
    try:
        return from_table_row(row.value), None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return None, RowError(Code.BAD_ROW, f"not a row of simia's table: {error}"[:SHOWN])


def from_table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `simia` row that a row of simia's own table holds."""
    made = {name: row[name] for name in ("version", *TABLE_TEXTS) if row[name] is not None}
    made["tools"] = json.loads(row["tools"])
    made |= json.loads(row["more"]) if row["more"] else {}
    made["messages"] = []
    for told in row["messages"]:
        message = {name: told[name] for name in TABLE_MESSAGE if told[name] is not None}
        message |= json.loads(told["more"]) if told["more"] else {}
        message["calls"] = [
            {"id": call["id"], "name": call["name"]}
            | ({"arguments": json.loads(call["arguments"])} if call["arguments"] is not None else {})
            | (json.loads(call["more"]) if call["more"] else {})
            for call in told["calls"] or []
        ]
        made["messages"].append(message)
    return made
