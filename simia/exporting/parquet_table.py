"""Write Parquet files: one row with columns for each trajectory, for `datasets`, a data warehouse, or a later simia.

Tools, arguments and fields without a column of their own are stored as JSON text: in Arrow columns each absent argument would become a
null, which changes the tool call. `simia.formats` reads a written trajectory back unchanged.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from simia.formats.parquet_rows import TABLE_MESSAGE, TABLE_TEXTS, import_arrow
from simia.trajectory import Trajectory

ROWS = 1000  # rows of a row group, which are held in memory


def build_arrow_schema(metadata: dict[str, str]) -> Any:
    pa, _ = import_arrow()
    text = pa.string()
    call = pa.struct([("id", text), ("name", text), ("arguments", text), ("more", text)])
    message = pa.struct([*((name, text) for name in TABLE_MESSAGE), ("calls", pa.list_(call)), ("more", text)])
    columns = [("version", pa.int32()), ("id", text), *((name, text) for name in TABLE_TEXTS), ("tools", text)]
    columns += [("messages", pa.list_(message)), ("end", text), ("more", text)]
    return pa.schema(columns, metadata={f"simia.{key}": value for key, value in metadata.items()})


class TableWriter:
    """Rows into one open file, a row group at a time."""

    def __init__(self, file: BinaryIO, metadata: dict[str, str]) -> None:
        self._pa, parquet = import_arrow()
        self._schema = build_arrow_schema(metadata)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, t: Trajectory) -> None:
        self._rows.append(to_table_row(t))
        if len(self._rows) >= ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


class TableFile:
    """The single table of `--to parquet`."""

    def __init__(self, file: BinaryIO, metadata: dict[str, str]) -> None:
        self._table = TableWriter(file, metadata)
        self.write = self._table.write

    def close(self) -> list[str]:
        self._table.close()
        return ["data.parquet"]


def to_table_row(t: Trajectory) -> dict[str, Any]:
    row = t.model_dump(mode="json", exclude_defaults=True)
    made: dict[str, Any] = {"version": t.version, "id": t.id, **{name: row.pop(name, None) for name in TABLE_TEXTS}}
    row.pop("version", None)
    made["tools"] = to_json(row.pop("tools", []))
    made["messages"] = [to_message_row(message) for message in row.pop("messages", [])]
    made["end"] = t.end.kind
    made["more"] = to_json(row) if row else None
    return made


def to_message_row(message: dict[str, Any]) -> dict[str, Any]:
    made = {name: message.pop(name, None) for name in TABLE_MESSAGE}
    if not isinstance(made["content"], str | None):  # a list of parts
        message["content"], made["content"] = made["content"], None
    made["calls"] = [
        {
            "id": call.pop("id"),
            "name": call.pop("name"),
            "arguments": to_json(call.pop("arguments")) if "arguments" in call else None,
            "more": to_json(call) if call else None,
        }
        for call in message.pop("calls", [])
    ]
    made["more"] = to_json(message) if message else None
    return made


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # not orjson: foreign rows may hold integers beyond 64 bits
