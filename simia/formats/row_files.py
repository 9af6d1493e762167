"""Files of rows: JSON lines and JSON lists, every row read or refused with its line and the reason.

One bad row never costs another one. In JSON lines that is easy; in a JSON list the reader decodes value by value, and
steps over one that is broken as long as its brackets still balance. Where they do not, the rest is refused as one.
JSON lines are streamed; a `.json` file is held in memory whole.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from simia.errors import Code, UserError, explain_json_error
from simia.formats.dialect import Dialect, RefusedRow, RowError, RowLimits, find_fault
from simia.trajectory import VERSION, Trajectory

SAMPLE = 50
SHOWN = 200
SUFFIXES = (".jsonl", ".json")
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|["\[\]{}]', re.DOTALL)
BLANK = re.compile(r"\s*")
FOREIGN_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row as found in a file: its value, or why there is none."""

    line: int
    index: int
    shown: str
    value: Any = None
    error: RowError | None = None

    def refused(self, error: RowError) -> RefusedRow:
        shown = self.shown.encode("utf-8", "replace").decode("utf-8")
        return RefusedRow(line=self.line, index=self.index, code=error.code, detail=error.detail, row=shown)


def read_file(
    path: Path, dialects: Sequence[Dialect], chosen: Dialect | None, limits: RowLimits
) -> Iterator[Trajectory | RefusedRow]:
    """The rows of a file. Without a chosen dialect, the one that most of the first readable rows look like."""
    return read_rows(path, open_rows(path, limits), dialects, chosen)


def read_rows(
    path: Path, rows: Iterator[FileRow], dialects: Sequence[Dialect], chosen: Dialect | None
) -> Iterator[Trajectory | RefusedRow]:
    """These rows as trajectories; `path` is named in messages."""
    others: Sequence[Dialect] = dialects
    if chosen is None:
        first = list(islice(rows, SAMPLE))
        chosen = vote_dialect(path, [row.value for row in first if row.error is None], dialects)
        rows, others = chain(first, rows), ()
    return convert_rows(path, rows, chosen, others)


def convert_rows(
    path: Path, rows: Iterator[FileRow], dialect: Dialect | None, others: Sequence[Dialect] = ()
) -> Iterator[Trajectory | RefusedRow]:
    """The rows as trajectories. `others`: dialects that a row may have instead of the one that the caller chose."""
    for row in rows:
        if row.error is not None or dialect is None:
            yield row.refused(row.error or RowError(Code.BAD_ROW, "the row is not a JSON object"))
            continue
        try:
            if not isinstance(row.value, dict):
                raise RowError(Code.BAD_ROW, f"the row is a JSON {type(row.value).__name__}, not an object")
            trajectory = dialect.read(row.value)
            refuse_lost_calls(row.value, trajectory, dialect, others)
        except RowError as error:
            yield row.refused(error)
            continue
        if trajectory.provenance.source is None and dialect.name != "simia":
            trajectory.provenance.source = f"{path.name}:{row.line}"
        yield trajectory


def refuse_lost_calls(row: dict[str, Any], found: Trajectory, chosen: Dialect, others: Sequence[Dialect]) -> None:
    """Raise `RowError` for a row of another dialect whose calls the chosen one does not read: it would lose them silently.

    A row that looks like the chosen dialect keeps it, except a row of simia, whose messages also look like others'.
    """
    suspects = [other for other in others if other is not chosen and (other.name == "simia" or not chosen.sniff(row))]
    for other in suspects:
        if not other.sniff({"version": VERSION, **row}):
            continue
        try:
            calls = len(list(other.read(row).calls()))
        except RowError:
            continue
        read = len(list(found.calls()))
        if calls > read:
            detail = f"this row is in the {other.name} format, not {chosen.name}: {calls - read} of its {calls} calls would be lost"
            raise RowError(Code.BAD_ROW, detail)


def vote_dialect(path: Path, values: list[Any], dialects: Sequence[Dialect]) -> Dialect | None:
    """The dialect that most rows look like, the first of `dialects` where several do; None without a single object."""
    objects = [value for value in values if isinstance(value, dict)]
    if not objects:
        return None
    votes = Counter({d.name: sum(d.sniff(row) for row in objects) for d in dialects})
    best = max(dialects, key=lambda d: votes[d.name])
    if not votes[best.name]:
        names, keys = ", ".join(d.name for d in dialects), ", ".join(list(objects[0])[:8]) or "no keys"
        raise UserError(f"{path}: unknown format: the first row has {keys:.200}; known formats: {names}")
    return best


def open_rows(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """Opens at once, so that a wrong path is the user's error here and not at the first row."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: trajectories are read from {' and '.join(SUFFIXES)} files")
    if path.exists() and not path.is_file():  # a device or a pipe may never end, and is not there a second time
        raise UserError(f"{path} is no regular file: trajectories are read from {' and '.join(SUFFIXES)} files")
    with open_binary(path) as file:
        mark = file.read(2)
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
