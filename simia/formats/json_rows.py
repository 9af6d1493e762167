"""Rows of JSON text: JSON lines, JSON lists, and JSON values after one another. All are streamed.

A bad row does not affect other rows. In JSON lines a row is a line. In a list, reading continues after a broken row at the next
object with the members of a row: those that all previous rows have in common. Memory is bounded by the size of the largest
accepted row.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from simia.errors import Code, UserError, explain_json_error
from simia.formats.dialect import RowError, RowLimits, find_fault
from simia.formats.row_conversion import SHOWN, TURN_COLUMNS, FileRow

CHUNK = 1 << 18  # characters read at once
MARGIN = 16  # an error this near to the end of what was read may come from a value that is cut there
BLANK = re.compile(r"\s*")
ROW_MEMBERS = frozenset((*TURN_COLUMNS, "version"))  # every row has one of these
# How a row begins, also one that is broken itself.
ROW_START = re.compile(r'\{\s*"(?:tools|system)"\s*:|\{[^{}\[\]]{0,500}?"(?:messages|conversations)"\s*:')
DECODER = json.JSONDecoder()


def open_binary(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def open_text(path: Path) -> TextIO:
    """Open a file as UTF-8; other bytes become surrogates."""
    try:
        return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def read_json_lines(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """The rows of a JSON Lines file; blank lines count as lines and not as rows."""
    line = index = 0
    with open_binary(path) as file:
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
                yield FileRow(
                    line,
                    index,
                    shown,
                    error=RowError(Code.BAD_JSON, f"not UTF-8 at byte {error.start + 1}: save the file as UTF-8"),
                )
            except (ValueError, RecursionError) as error:
                yield FileRow(line, index, shown, error=explain_broken_row(error))
            else:
                yield FileRow(line, index, shown, value, find_fault(value, limits.depth))


def read_json_values(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """The rows of a JSON file: a list, or values after one another. Bytes that are not UTF-8 refuse their row only."""
    with open_text(path) as file:
        yield from ValueReader(TextWindow(file, limits.row_bytes), limits).read()


class TextWindow:
    """A text of any length, of which a part is in memory. `at` is the place in `text` that is being read."""

    def __init__(self, file: TextIO, largest: int) -> None:
        self._file, self._largest = file, largest
        self.text, self.at, self.ended = "", 0, False
        self._line, self._counted = 1, 0

    @property
    def line(self) -> int:
        """Line of the place that is being read, from 1."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def extend(self, start: int) -> bool:
        """Read more, so that the part from `start` on doubles; False at the end, or if that part has the largest size of a row."""
        have = len(self.text) - start
        if self.ended or have > self._largest:
            return False
        more = self._file.read(max(CHUNK, have))
        self.ended = not more
        self.text += more
        return bool(more)

    def forget(self) -> int:
        """Drop the text before the place that is being read; returns how many characters."""
        dropped = self.at if self.line else 0
        self.text = self.text[dropped:]
        self.at = self._counted = 0
        return dropped

    def skip_blank(self) -> str:
        """Move to the next character that is no space; returns it, or nothing at the end."""
        if self.at > CHUNK:
            self.forget()
        while True:
            self.at = end_of_blank(self.text, self.at)
            if self.at < len(self.text) or not self.extend(self.at):
                return self.text[self.at : self.at + 1]


class ValueReader:
    """Reads values, and finds the next row after a broken one."""

    def __init__(self, window: TextWindow, limits: RowLimits) -> None:
        self._window, self._limits = window, limits
        self._common: frozenset[str] = frozenset()
        """Members that all rows so far have."""

    def read(self) -> Iterator[FileRow]:
        window, index = self._window, 0
        listed = window.skip_blank() == "["
        window.at += listed
        while (first := window.skip_blank()) and not (listed and first == "]" and self.at_end()):
            index += 1
            line, shown, start = window.line, window.text[window.at : window.at + SHOWN], window.at
            value, end, error = self.decode(start)
            if error is not None:
                if not self.find_next_row():
                    yield FileRow(line, index, shown, error=refuse_rest(error))
                    return
            else:
                window.at = end
                if end - start > self._limits.row_bytes:
                    value, error = None, refuse_large_row(self._limits)
                else:
                    self.note(value)
                    error = find_fault(value, self._limits.depth)
            yield FileRow(line, index, shown, value, error)
            if listed and window.skip_blank() == ",":
                window.at += 1
        if listed and not first:
            yield FileRow(
                window.line, index + 1, "", error=RowError(Code.BAD_JSON, "the file ends before its list does")
            )

    def note(self, value: Any) -> None:
        if isinstance(value, dict):
            self._common = self._common & value.keys() if self._common else frozenset(value)

    def decode(self, start: int) -> tuple[Any, int, RowError | None]:
        """(value, its end, None) or (None, 0, why not) at a place of the window."""
        window = self._window
        while True:
            try:
                value, end = DECODER.raw_decode(window.text, start)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(window.text) - MARGIN or error.msg.startswith("Unterminated string")
                if cut and window.extend(start):
                    continue
                if cut and not window.ended:
                    return None, 0, refuse_large_row(self._limits)
                return None, 0, explain_broken_row(shift_error(error, start))
            except (ValueError, RecursionError) as error:
                return None, 0, explain_broken_row(error)
            if end < len(window.text) or window.ended or not window.extend(start):
                return value, end, None

    def find_next_row(self) -> bool:
        """Move the window from a broken row to the next object that is a row, or that begins like one."""
        window = self._window
        start = window.at + 1
        while True:
            start = window.text.find("{", start)
            if start < 0:
                window.at = len(window.text)
                start = 0
                window.forget()
                if not window.extend(0):
                    return False
                continue
            if start > CHUNK:
                window.at = start
                start -= window.forget()
            value, end, _ = self.decode(start)
            if self.is_row(value) or (not end and ROW_START.match(window.text, start)):
                window.at = start
                return True
            start = max(end, start + 1)

    def at_end(self) -> bool:
        """Whether nothing follows the list's bracket."""
        window = self._window
        while (end := end_of_blank(window.text, window.at + 1)) == len(window.text) and window.extend(window.at):
            pass
        return end == len(window.text)

    def is_row(self, value: Any) -> bool:
        if not isinstance(value, dict) or not value.keys() >= self._common:
            return False
        no_turns = bool(self._common) and self._common.isdisjoint(ROW_MEMBERS)  # the rows so far are no trajectories
        return no_turns or not value.keys().isdisjoint(ROW_MEMBERS)


def end_of_blank(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return found.end() if found else at


def shift_error(error: json.JSONDecodeError, start: int) -> json.JSONDecodeError:
    """Convert the error's position to one within the row."""
    return json.JSONDecodeError(error.msg, error.doc[start:], max(0, error.pos - start)) if start else error


def explain_broken_row(error: ValueError | RecursionError) -> RowError:
    if isinstance(error, RecursionError):
        return RowError(Code.TOO_LARGE, "the row nests too deep to be read")
    if isinstance(error, json.JSONDecodeError):
        return RowError(Code.BAD_JSON, explain_json_error(error))
    return RowError(Code.BAD_JSON, str(error))


def refuse_rest(why: RowError) -> RowError:
    return RowError(why.code, f"{why.detail}; no row follows that can be read")


def refuse_large_row(limits: RowLimits) -> RowError:
    return RowError(Code.TOO_LARGE, f"the row is larger than {limits.row_bytes} bytes")
