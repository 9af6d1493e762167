"""Parquet files of rows: nested columns, columns of JSON text, simia's own table; streamed; broken files are one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.errors import Code, UserError
from simia.formats import RefusedRow
from simia.formats.parquet_rows import BATCH
from simia.pack import Pack
from simia.trajectory import Trajectory

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
SEEDS = Pack.load("customer_service").seeds
ROWS = list(formats.write(SEEDS, "openai"))


def save(path: Path, rows: list[dict[str, Any]], **settings: Any) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), path, **settings)
    return path


def ids(path: Path) -> list[str]:
    return [row.id for row in formats.read(path) if isinstance(row, Trajectory)]


def test_nested_columns_are_read(tmp_path: Path) -> None:
    """Arguments are JSON text, as in OpenAI's rows; tools are text, since their schemas differ."""
    rows = [{**row, "tools": json.dumps(row["tools"])} for row in ROWS]
    assert ids(save(tmp_path / "rows.parquet", rows)) == [seed.id for seed in SEEDS]


def test_columns_of_json_text_are_read(tmp_path: Path) -> None:
    rows = [{key: json.dumps(value) for key, value in row.items()} for row in ROWS]
    path = save(tmp_path / "rows.parquet", rows)
    assert ids(path) == [seed.id for seed in SEEDS]
    first = next(formats.read(path))
    assert isinstance(first, Trajectory)
    assert first.provenance.source == "rows.parquet:1"


def test_arguments_as_columns_lose_the_nulls_of_other_rows(tmp_path: Path) -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]}
    other = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "g", "arguments": {"b": "x"}}}]}
    rows = [{"messages": [{"role": "user", "content": "go"}, turn]} for turn in (call, other)]
    found = list(formats.read(save(tmp_path / "rows.parquet", rows)))
    arguments = [row.messages[1].calls[0].arguments for row in found if isinstance(row, Trajectory)]
    assert arguments == [{"a": 1}, {"b": "x"}]


def test_a_bad_row_costs_no_other_row(tmp_path: Path) -> None:
    texts = [json.dumps(row["messages"]) for row in ROWS]
    texts.insert(1, '[{"role": "user"')
    rows = list(formats.read(save(tmp_path / "rows.parquet", [{"messages": text} for text in texts])))
    (bad,) = [row for row in rows if isinstance(row, RefusedRow)]
    assert (bad.line, bad.code, len(rows)) == (2, Code.BAD_ROW, len(ROWS) + 1)


def test_row_groups_are_streamed(tmp_path: Path) -> None:
    """A file whose last row group is damaged is read up to there: nothing is read ahead of time."""
    row = {"messages": json.dumps(ROWS[0]["messages"]), "weight": 1}
    rows = [{**row, "id": str(n)} for n in range(4 * BATCH)]
    path = save(tmp_path / "rows.parquet", rows, row_group_size=BATCH, compression="zstd")
    start = parquet.ParquetFile(path).metadata.row_group(3).column(0).data_page_offset
    body = bytearray(path.read_bytes())
    body[start : start + 60] = b"\xff" * 60
    path.write_bytes(body)
    found = list(formats.read(path))
    assert [type(row) for row in found] == [Trajectory] * (3 * BATCH) + [RefusedRow]
    assert isinstance(found[-1], RefusedRow)
    assert found[-1].line == 3 * BATCH + 1
    assert "cannot be read" in found[-1].detail


def test_a_file_that_is_no_parquet_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(UserError, match=r"rows\.parquet cannot be read as Parquet: "):
        formats.read(path)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "rows.parquet", [{"messages": "[]"}])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'simia\[datasets\]'"):
        formats.read(path)
