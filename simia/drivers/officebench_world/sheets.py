"""The app excel: workbooks by openpyxl. The actions use the active sheet, as OfficeBench's do."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from .printing import print_workbook
from .stable import check_unpacked_size, fix_archive_dates
from .testbed import ActionError, Testbed, answer_errors, import_library, register_action

NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*|(?:0|[1-9]\d*)?\.\d+|(?:0|[1-9]\d*)\.)(?:[eE][+-]?\d+)?")
ROWS, COLUMNS = 1 << 20, 1 << 14  # limits of an Excel workbook
CELLS = 200_000  # larger tables are refused, since an answer has a limited size
EMPTY = "[Empty Cell]"


def open_workbook(path: Path, *, values: bool = False) -> Any:
    """Open a workbook. `values`: read the stored results of formulas in place of the formulas."""
    return import_library("openpyxl").load_workbook(
        io.BytesIO(check_unpacked_size(path.read_bytes())), data_only=values
    )


def save_workbook(testbed: Testbed, book: Any, path: Path) -> None:
    made = io.BytesIO()
    book.save(made)
    testbed.save(path, fix_archive_dates(made.getvalue(), testbed.now))


def format_table(path: Path) -> str:
    """Format the active sheet, one line per row: `(row, column): value` and a tab for each cell."""
    sheet = open_workbook(path).active
    if sheet.max_row * sheet.max_column > CELLS:
        raise ValueError(f"its table has more than {CELLS:,} cells")
    rows = []
    for row in sheet.iter_rows():
        cells = (f"({c.row}, {c.column}): {EMPTY if c.value is None else c.value}\t" for c in row)
        rows.append("".join(cells) + "\n")
    return "".join(rows)


def parse_value(text: Any) -> Any:
    """Convert the text of a cell to a number if it is one."""
    if isinstance(text, str) and NUMBER.fullmatch(text):
        number = float(text)
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else number
    return text


def set_cell_value(testbed: Testbed, path: Path, row_idx: Any, column_idx: Any, value: Any) -> None:
    row, column = int(row_idx), int(column_idx)
    if not (1 <= row <= ROWS and 1 <= column <= COLUMNS):
        raise ValueError(f"rows are 1 to {ROWS} and columns 1 to {COLUMNS}")
    book = open_workbook(path)
    # Assigned, since `cell(value=None)` leaves a cell unchanged.
    book.active.cell(row=row, column=column).value = value
    save_workbook(testbed, book, path)


@register_action("excel.read_file")
def read_excel_file(testbed: Testbed, file_path: str) -> str:
    """Show the table in a workbook."""
    path = testbed.find(file_path)
    if path is None:
        raise ActionError(f"The file {file_path} does not exist. Failed to read the file.")
    with answer_errors(f"Failed to read the file {file_path}", why=True):
        return f"The following is the table from the excel file:\n{format_table(path)}"


@register_action("excel.set_cell", writes=True)
def set_cell(testbed: Testbed, file_path: str, row_idx: Any, column_idx: Any, text: Any) -> str:
    """Write a value into one cell of a workbook; rows and columns count from 1."""
    path = testbed.find(file_path)
    if path is None:
        raise ActionError(f"The file {file_path} does not exist. Failed to write to the file.")
    with answer_errors(f"Failed to write text to {file_path}", why=True):
        set_cell_value(testbed, path, row_idx, column_idx, parse_value(text))
    return f"Successfully write text to {file_path}"


@register_action("excel.delete_cell", writes=True)
def delete_cell(testbed: Testbed, file_path: str, row_idx: Any, column_idx: Any) -> str:
    """Empty one cell of a workbook; rows and columns count from 1."""
    path = testbed.find(file_path)
    if path is None:
        raise ActionError(f"The file {file_path} does not exist. Failed to delete the cell in the file.")
    with answer_errors(f"Failed to delete a cell in {file_path}", why=True):
        set_cell_value(testbed, path, row_idx, column_idx, None)
    return f"Successfully delete a cell in {file_path}"


@register_action("excel.create_new_file", writes=True)
def create_excel_file(testbed: Testbed, file_path: str) -> str:
    """Create an empty workbook."""
    if testbed.find(file_path):
        raise ActionError(f"File {file_path} already exists")
    with answer_errors(f"Failed to create new file {file_path}", why=True):
        save_workbook(testbed, import_library("openpyxl").Workbook(), testbed.locate(file_path))
    return f"Successfully create new file {file_path}"


@register_action("excel.convert_to_pdf", writes=True)
def convert_excel_to_pdf(testbed: Testbed, excel_file_path: str, pdf_file_path: str) -> str:
    """Save a workbook as a PDF."""
    path = testbed.find(excel_file_path)
    if path is None:
        raise ActionError(f"{excel_file_path} does not exist. Failed to convert {excel_file_path} to {pdf_file_path}")
    with answer_errors(f"Failed to convert {excel_file_path} to {pdf_file_path}", why=True):
        data, how = print_workbook(path, lambda: open_workbook(path, values=True), lambda: open_workbook(path))
        testbed.save(testbed.locate(pdf_file_path), data)
    return f"Successfully convert {excel_file_path} to {pdf_file_path} ({how})"
