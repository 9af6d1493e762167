"""Files of rows: JSON lines and JSON lists, every row read or refused with its line and the reason.

One bad row never costs another one. In JSON lines that is easy; in a JSON list the reader decodes value by value, and
steps over one that is broken as long as its brackets still balance. Where they do not, the rest is refused as one.
JSON lines are streamed; a `.json` file is held in memory whole.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from simia.errors import Code, UserError, explain_json_error
from simia.formats.dialect import RowError, RowLimits, find_fault
from simia.formats.parquet_rows import open_parquet
from simia.formats.row_conversion import SHOWN, FileRow

SUFFIXES = (".jsonl", ".json", ".parquet")
KNOWN = ".jsonl, .json and .parquet"
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|["\[\]{}]', re.DOTALL)
BLANK = re.compile(r"\s*")
FOREIGN_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_rows(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """Opens at once, so that a wrong path is the user's error here and not at the first row."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: trajectories are read from {KNOWN} files")
    if path.exists() and not path.is_file():  # a device or a pipe may never end, and is not there a second time
        raise UserError(f"{path} is no regular file: trajectories are read from {KNOWN} files")
    with open_binary(path) as file:
        mark = file.read(2)
    if path.suffix.lower() == ".parquet":
        return open_parquet(path, limits)
    if mark in FOREIGN_MARKS:
        raise UserError(f"{path} is UTF-16: save it as UTF-8")
    return read_json_lines(path, limits) if path.suffix.lower() == ".jsonl" else read_json_values(path, limits)


def open_binary(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def read_json_lines(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """The rows of a JSON Lines file; blank lines count as lines and not as rows."""
    line = index = 0
    with open_binary(path) as file:  # again, and it may be gone by now
        while chunk := file.readline(limits.row_bytes + 1):
            line += 1
            if line == 1:
                chunk = chunk.removeprefix(codecs.BOM_UTF8)
            if not chunk.strip():
                continue
            index += 1
            shown = chunk[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN].strip()
            if len(chunk) > limits.row_bytes and not chunk.endswith(b"\n"):
                while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
                    pass
                yield FileRow(line, index, shown, error=refuse_large_row(limits))
                continue
            try:
                text = chunk.decode("utf-8")
                value = json.loads(text.strip())
            except UnicodeDecodeError as error:
                yield FileRow(line, index, shown, error=RowError(Code.BAD_JSON, f"not UTF-8 at byte {error.start + 1}"))
            except (ValueError, RecursionError) as error:
                yield FileRow(line, index, shown, error=explain_broken_row(error))
            else:
                yield FileRow(line, index, shown, value, find_fault(value, limits.depth))


def read_json_values(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """The rows of a JSON file: a list, or objects after one another. Bytes that are not UTF-8 refuse their row only."""
    with open_binary(path) as file:
        text = file.read().decode("utf-8-sig", "surrogateescape")
    decoder = json.JSONDecoder()
    at = skip_blank(text, 0)
    listed = text.startswith("[", at)
    at = skip_blank(text, at + listed)
    line, counted, index = 1, 0, 0
    while at < len(text) and not (listed and text[at] == "]"):
        index += 1
        line += text.count("\n", counted, at)
        counted, start = at, at
        shown, end = text[start : start + SHOWN], None
        value, why = None, None
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            why, end = explain_broken_row(error), find_balanced_end(text, start)
        if end is None:
            yield FileRow(line, index, shown, error=refuse_rest(why, len(text) - start))
            return
        if end - start > limits.row_bytes:
            value, why = None, refuse_large_row(limits)
        yield FileRow(line, index, shown, value, why or find_fault(value, limits.depth))
        at = skip_blank(text, end)
        if listed and at < len(text) and text[at] == ",":
            at = skip_blank(text, at + 1)
        elif listed and at < len(text) and text[at] != "]":
            line += text.count("\n", counted, at)
            lost = RowError(Code.BAD_JSON, "a comma is missing after this row's predecessor")
            yield FileRow(line, index + 1, text[at : at + SHOWN], error=refuse_rest(lost, len(text) - at))
            return
    if listed and at >= len(text):
        line += text.count("\n", counted)
        yield FileRow(line, index + 1, "", error=RowError(Code.BAD_JSON, "the file ends before its list does"))


def skip_blank(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return found.end() if found else at


def find_balanced_end(text: str, start: int) -> int | None:
    """Where a broken object or list ends, going by its brackets; None when they, or its quotes, do not balance."""
    if text[start] not in "{[":
        return None
    depth = 0
    for token in TOKEN.finditer(text, start):
        if token[0] == '"':
            return None
        depth += (token[0] in "{[") - (token[0] in "]}")
        if depth == 0:
            return token.end()
    return None


def explain_broken_row(error: ValueError | RecursionError) -> RowError:
    if isinstance(error, RecursionError):
        return RowError(Code.TOO_LARGE, "the row nests too deep to be read")
    if isinstance(error, json.JSONDecodeError):
        return RowError(Code.BAD_JSON, explain_json_error(error))
    return RowError(Code.BAD_JSON, str(error))


def refuse_rest(why: RowError | None, characters: int) -> RowError:
    reason = why.detail if why else "broken"
    return RowError(Code.BAD_JSON, f"{reason}; from here on the file cannot be read ({characters} characters)")


def refuse_large_row(limits: RowLimits) -> RowError:
    return RowError(Code.TOO_LARGE, f"the row is larger than {limits.row_bytes} bytes")
