"""Spreadsheets: .xlsx by openpyxl. Values only: numbers, texts, yes or no, days; a formula is neither written nor worked out."""

from __future__ import annotations

import io
import re
from datetime import date, datetime
from pathlib import PurePosixPath
from typing import Any

from office_desk import Desk, repeatable

from simia.kit import ToolError, read, write

Value = str | float | int | bool | None
MOST_CELLS = 400  # that one call returns
MOST_ROWS, MOST_COLUMNS = 2000, 52  # of a sheet
RANGE = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})(?::([A-Z]{1,3})([1-9][0-9]{0,6}))?")
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
TITLE = re.compile(r"[^\[\]:*?/\\]{1,31}")


class Sheets(Desk):
    """The tools of spreadsheets. Without the name of a sheet the first one of the file is meant."""

    @read
    def list_sheets(self, path: str) -> dict[str, Any]:
        book = self._book(path)
        rows = [
            {"sheet": sheet.title, "rows": sheet.max_row, "columns": sheet.max_column, "header": row_of(sheet, 1)}
            for sheet in book
        ]
        return {"path": path, "sheets": rows}

    @read
    def read_cells(self, path: str, range: str | None = None, sheet: str | None = None) -> dict[str, Any]:
        page = named(self._book(path), sheet)
        left, top, right, bottom = bounds(range) if range else (1, 1, page.max_column, page.max_row)
        if (right - left + 1) * (bottom - top + 1) > MOST_CELLS:
            raise ToolError(f"{range or 'the sheet'} has more than {MOST_CELLS} cells: read it in smaller ranges")
        cells = page.iter_rows(min_row=top, max_row=bottom, min_col=left, max_col=right, values_only=True)
        rows = [[plain(value) for value in row] for row in cells]
        return {"path": path, "sheet": page.title, "range": spelled(left, top, right, bottom), "rows": rows}

    @read
    def find_rows(self, path: str, column: str, value: str | float, sheet: str | None = None) -> dict[str, Any]:
        page = named(self._book(path), sheet)
        header = row_of(page, 1)
        at = column_of(header, column)
        found = []
        for number in range_of_rows(page):
            row = row_of(page, number)
            if alike(row[at], value):
                found.append({"row": number, "values": row})
        return {"path": path, "sheet": page.title, "header": header, "rows": found[:50]}

    @write
    def set_cells(self, path: str, cells: list[dict[str, Any]], sheet: str | None = None) -> dict[str, Any]:
        name, book = self._for_change(path)
        page, done = named(book, sheet), []
        for each in cells:
            left, top, right, bottom = bounds(each["cell"])
            if (left, top) != (right, bottom):
                raise ToolError(f"{each['cell']} is a range: give one cell after the other")
            cell = page.cell(top, left)
            old = plain(cell.value)
            put(cell, each["value"])
            done.append({"cell": each["cell"], "old": old, "new": plain(cell.value)})
        self._save_book(name, book)
        return {"path": path, "sheet": page.title, "cells": done}

    @write
    def append_rows(self, path: str, rows: list[list[Value]], sheet: str | None = None) -> dict[str, Any]:
        name, book = self._for_change(path)
        page = named(book, sheet)
        header = row_of(page, 1)
        last = max(
            (number for number in range_of_rows(page) if any(v is not None for v in row_of(page, number))), default=1
        )
        first = last + 1 if any(v is not None for v in header) or last > 1 else 1
        for offset, row in enumerate(rows):
            if first > 1 and len(row) > len(header):
                raise ToolError(f"a row has {len(row)} values and the sheet {len(header)} columns: {header}")
            fill(page, first + offset, row)
        self._save_book(name, book)
        return {"path": path, "sheet": page.title, "first_row": first, "added": len(rows)}

    @write
    def sort_rows(self, path: str, column: str, descending: bool = False, sheet: str | None = None) -> dict[str, Any]:
        name, book = self._for_change(path)
        page = named(book, sheet)
        at = column_of(row_of(page, 1), column)
        rows = [row_of(page, number) for number in range_of_rows(page)]
        full = [row for row in rows if row[at] is not None]
        full.sort(key=lambda row: order(row[at]), reverse=descending)
        for number, row in enumerate([*full, *(row for row in rows if row[at] is None)], start=2):
            fill(page, number, row)
        self._save_book(name, book)
        return {"path": path, "sheet": page.title, "column": column, "descending": descending, "rows": len(rows)}

    @write
    def add_sheet(self, path: str, sheet: str, rows: list[list[Value]] | None = None) -> dict[str, Any]:
        name, book = self._for_change(path)
        if not TITLE.fullmatch(sheet) or sheet.casefold() in (each.casefold() for each in book.sheetnames):
            raise ToolError(f"{sheet!r} is no free name for a sheet here: there are {', '.join(book.sheetnames)}")
        page = book.create_sheet(sheet)
        for number, row in enumerate(rows or [], start=1):
            fill(page, number, row)
        self._save_book(name, book)
        return {"path": path, "sheet": sheet, "rows": len(rows or [])}

    @write
    def create_workbook(self, path: str, sheet: str, rows: list[list[Value]]) -> dict[str, Any]:
        from openpyxl import Workbook

        name = self.vacant(workbook(path))
        if not TITLE.fullmatch(sheet):
            raise ToolError(f"{sheet!r} is no name for a sheet: up to 31 characters, without []:*?/\\")
        book = Workbook()
        book.properties.created = self.now
        book.active.title = sheet
        for number, row in enumerate(rows, start=1):
            fill(book.active, number, row)
        self._save_book(name, book)
        return {"path": path, "sheet": sheet, "rows": len(rows)}

    # -- what several tools do --------------------------------------------------------------------------------------

    def _book(self, path: str) -> Any:
        return loaded(self.load(self.present(workbook(path))), path)

    def _for_change(self, path: str) -> tuple[str, Any]:
        book = self._book(path)
        return self.changeable(path), book

    def _save_book(self, name: str, book: Any) -> None:
        self.store(name, saved(book, self.now.isoformat()))


def workbook(path: str) -> str:
    if PurePosixPath(path).suffix.lower() != ".xlsx":
        raise ToolError(f"{path} is no spreadsheet: its name must end in .xlsx")
    return path


def loaded(data: bytes, path: str) -> Any:
    from openpyxl import load_workbook

    try:
        return load_workbook(io.BytesIO(data))
    except Exception:
        raise ToolError(f"{path} cannot be read: the file is damaged") from None


def saved(book: Any, stamp: str) -> bytes:
    out = io.BytesIO()
    book.save(out)
    return repeatable(out.getvalue(), stamp)


def cells_of(data: bytes) -> dict[str, dict[str, Value]]:
    """Sheet → cell → value, of the cells that hold one."""
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data))
    return {
        page.title: {
            cell.coordinate: plain(cell.value) for row in page.iter_rows() for cell in row if cell.value is not None
        }
        for page in book
    }


def named(book: Any, sheet: str | None) -> Any:
    if sheet is None:
        return book.worksheets[0]
    for page in book.worksheets:
        if page.title.casefold() == sheet.strip().casefold():
            return page
    raise ToolError(f"there is no sheet {sheet!r}: there are {', '.join(book.sheetnames)}")


def bounds(text: str) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of `B2` or `A1:C4`, from 1 on."""
    found = RANGE.fullmatch(text.strip().upper().replace("$", ""))
    if not found:
        raise ToolError(f"{text!r} is no range: give one like A1:C10")
    a, b = number_of(found[1]), int(found[2])
    c, d = (number_of(found[3]), int(found[4])) if found[3] else (a, b)
    left, top, right, bottom = min(a, c), min(b, d), max(a, c), max(b, d)
    if right > MOST_COLUMNS or bottom > MOST_ROWS:
        raise ToolError(
            f"{text} reaches beyond column {letters(MOST_COLUMNS)} and row {MOST_ROWS}: give a smaller range"
        )
    return left, top, right, bottom


def number_of(column: str) -> int:
    found = 0
    for letter in column:
        found = found * 26 + ord(letter) - 64
    return found


def letters(number: int) -> str:
    found = ""
    while number:
        number, rest = divmod(number - 1, 26)
        found = chr(65 + rest) + found
    return found


def spelled(left: int, top: int, right: int, bottom: int) -> str:
    return f"{letters(left)}{top}:{letters(right)}{bottom}"


def row_of(page: Any, number: int) -> list[Value]:
    return [plain(page.cell(number, column).value) for column in range(1, page.max_column + 1)]


def range_of_rows(page: Any) -> Any:
    """The numbers of the rows below the header."""
    return range(2, page.max_row + 1)


def column_of(header: list[Value], name: str) -> int:
    for at, each in enumerate(header):
        if str(each).strip().casefold() == name.strip().casefold():
            return at
    if re.fullmatch(r"[A-Z]{1,2}", name) and number_of(name) <= len(header):
        return number_of(name) - 1
    raise ToolError(f"there is no column {name!r}: there are {', '.join(str(each) for each in header)}")


def alike(held: Value, value: Value) -> bool:
    if isinstance(held, int | float) and not isinstance(held, bool):
        try:
            return float(held) == float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
    return str(held).strip().casefold() == str(value).strip().casefold()


def order(value: Value) -> tuple[int, float, str]:
    """Numbers before texts, as spreadsheets sort."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value).casefold()


def plain(value: Any) -> Value:
    """A cell's value as JSON has it: a day in ISO form."""
    if isinstance(value, datetime):
        return (
            value.date().isoformat() if value.time().isoformat() == "00:00:00" else value.isoformat(timespec="minutes")
        )
    if isinstance(value, float):
        value = round(value, 10)
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value if value is None or isinstance(value, str | int) else str(value)


def fill(page: Any, number: int, row: list[Value]) -> None:
    if number > MOST_ROWS or len(row) > MOST_COLUMNS:
        raise ToolError(f"a sheet has at most {MOST_ROWS} rows and {MOST_COLUMNS} columns")
    for column, value in enumerate(row, start=1):
        put(page.cell(number, column), value)


def put(cell: Any, value: Value) -> None:
    """Write a value; a text like 2025-09-30 becomes a day."""
    if isinstance(value, str) and value.startswith("="):
        raise ToolError("formulas are not written here: work it out and give the value")
    if isinstance(value, str) and DAY.fullmatch(value):
        try:
            cell.value, cell.number_format = date.fromisoformat(value), "yyyy-mm-dd"
            return
        except ValueError:
            pass
    try:
        cell.value = value
        if isinstance(value, str):
            cell.data_type = "s"
        cell.number_format = "General"
    except Exception:
        raise ToolError(f"{str(value)[:40]!r} cannot stand in a cell: it has signs that no spreadsheet holds") from None
