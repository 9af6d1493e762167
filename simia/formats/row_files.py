"""Files of rows: JSON lines, JSON lists and Parquet, each recognised by its content and its suffix, and streamed."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from simia.errors import UserError
from simia.formats.dialect import RowLimits
from simia.formats.json_rows import open_binary, read_json_lines, read_json_values
from simia.formats.parquet_rows import open_parquet
from simia.formats.row_conversion import FileRow

SUFFIXES = (".jsonl", ".json", ".parquet")
KNOWN = ".jsonl, .json and .parquet"
FOREIGN_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LINES_SEARCHED = 1000
NEXT_LINES = 5
PROBE = 1 << 20  # bytes of the first line that are read to recognise JSON lines


def open_rows(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """Open a file of rows at once, so that a wrong path raises `UserError` here and not at the first row."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: trajectories are read from {KNOWN} files")
    if path.exists() and not path.is_file():  # a device or a pipe may never end, and cannot be read twice
        raise UserError(f"{path} is not a regular file: trajectories are read from {KNOWN} files")
    with open_binary(path) as file:
        mark = file.read(2)
        if mark in FOREIGN_MARKS or (
            b"\0" in mark and suffix != ".parquet"
        ):  # UTF-16 without a mark begins "{\0" or "\0{"
            raise UserError(f"{path} is UTF-16: save it as UTF-8")
        if suffix == ".parquet":
            return open_parquet(path, limits)
        file.seek(0)
        lines = holds_lines(file, named_so=suffix == ".jsonl")
    return read_json_lines(path, limits) if lines else read_json_values(path, limits)


def holds_lines(file: BinaryIO, *, named_so: bool) -> bool:
    """Whether a file is JSON lines, by its first line that is not blank, and not by its suffix alone.

    An open `[`, or an object followed by lines that are not objects, is JSON over several lines; a list that is alone on its line
    is the list of the whole file.
    """
    for _ in range(LINES_SEARCHED):
        if not (line := file.readline(PROBE)):
            return named_so
        if text := line.removeprefix(codecs.BOM_UTF8).strip():
            break
    else:
        return named_so
    if text[:1] not in b"[{" or (text[:1] == b"{" and not line.endswith(b"\n") and len(line) == PROBE):
        return named_so
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if text[:1] == b"[":
            return False
        return named_so and (
            error.pos < len(error.doc) or any(is_object(file.readline(PROBE)) for _ in range(NEXT_LINES))
        )
    except (ValueError, RecursionError):
        return named_so and text[:1] != b"["
    if isinstance(value, list):
        return any(file.readline(PROBE).strip() for _ in range(LINES_SEARCHED)) and named_so
    return True


def is_object(line: bytes) -> bool:
    """Whether a line is a JSON object of its own."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
