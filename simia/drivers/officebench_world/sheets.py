"""The app excel: workbooks by openpyxl. The actions use the active sheet, as OfficeBench's do."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from .archives import open_archive, save_archive
from .printing import lay_out_workbook, print_file
from .testbed import ActionError, Testbed, register_action

NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*|(?:0|[1-9]\d*)?\.\d+|(?:0|[1-9]\d*)\.)(?:[eE][+-]?\d+)?")
ROWS, COLUMNS = 1 << 20, 1 << 14  # limits of an Excel workbook
CELLS = 200_000  # larger tables are refused, since an answer has a limited size
EMPTY = "[Empty Cell]"


def open_workbook(path: Path, *, values: bool = False) -> Any:
    """Open a workbook. `values`: read the stored results of formulas in place of the formulas."""
    return import_module("openpyxl").load_workbook(open_archive(path), data_only=values)


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
    save_archive(testbed, book, path)


@register_action("excel.read_file", "Failed to read the file {file_path}")
def read_excel_file(testbed: Testbed, file_path: str) -> str:
    """Show the table in a workbook."""
    path = testbed.require(file_path, f"The file {file_path} does not exist. Failed to read the file.")
    return f"The following is the table from the excel file:\n{format_table(path)}"


@register_action("excel.set_cell", "Failed to write text to {file_path}", writes=True)
def set_cell(testbed: Testbed, file_path: str, row_idx: Any, column_idx: Any, text: Any) -> str:
    """Write a value into one cell of a workbook; rows and columns count from 1."""
    path = testbed.require(file_path, f"The file {file_path} does not exist. Failed to write to the file.")
    set_cell_value(testbed, path, row_idx, column_idx, parse_value(text))
    return f"Successfully write text to {file_path}"


@register_action("excel.delete_cell", "Failed to delete a cell in {file_path}", writes=True)
def delete_cell(testbed: Testbed, file_path: str, row_idx: Any, column_idx: Any) -> str:
    """Empty one cell of a workbook; rows and columns count from 1."""
    path = testbed.require(file_path, f"The file {file_path} does not exist. Failed to delete the cell in the file.")
    set_cell_value(testbed, path, row_idx, column_idx, None)
    return f"Successfully delete a cell in {file_path}"


@register_action("excel.create_new_file", "Failed to create new file {file_path}", writes=True)
def create_excel_file(testbed: Testbed, file_path: str) -> str:
    """Create an empty workbook."""
    if testbed.find(file_path):
        raise ActionError(f"File {file_path} already exists")
    save_archive(testbed, import_module("openpyxl").Workbook(), testbed.locate(file_path))
    return f"Successfully create new file {file_path}"


@register_action("excel.convert_to_pdf", "Failed to convert {excel_file_path} to {pdf_file_path}", writes=True)
def convert_excel_to_pdf(testbed: Testbed, excel_file_path: str, pdf_file_path: str) -> str:
    """Save a workbook as a PDF."""
    refusal = f"{excel_file_path} does not exist. Failed to convert {excel_file_path} to {pdf_file_path}"
    path = testbed.require(excel_file_path, refusal)
    data, how = print_file(path, lay_out_workbook(open_workbook(path, values=True), lambda: open_workbook(path)))
    testbed.save(testbed.locate(pdf_file_path), data)
    return f"Successfully convert {excel_file_path} to {pdf_file_path} ({how})"
