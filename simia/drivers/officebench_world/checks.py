"""OfficeBench's checks on the final files (`root`), the initial files (`before`) and the benchmark's references.

The checks have OfficeBench's meaning. Where its code has a bug, the check here is correct; docs/officebench.md lists these
differences. A check that cannot read its file fails.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from . import calendars, documents, mail, pages, sheets

PACK = Path(__file__).parents[1]
BEFORE, REFERENCES = "before/", "references/"
WORD = re.compile(r"\w+")


def reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def contains_all(content: str, keywords: Sequence[str]) -> bool:
    """Check that every keyword occurs, ignoring case; for a number and the keywords after it, ignore commas in the text."""
    content = content.lower()
    for keyword in keywords:
        if reads_as_number(keyword):
            content = content.replace(",", "")
        if keyword.lower() not in content:
            return False
    return True


READERS: dict[str, Callable[[Path], str]] = {
    "xlsx": sheets.format_table,
    "txt": lambda path: path.read_text(encoding="utf-8", errors="replace"),
    "ics": lambda path: path.read_bytes().decode(errors="replace"),
    "doc": documents.read_document_text,
    "docx": documents.read_document_text,
    "pdf": pages.read_pdf_text,
}


class OfficeChecks:
    """The checks of one finished episode."""

    def __init__(self, root: Path, before: Path, pack: Path = PACK) -> None:
        self.root, self.before, self.pack = root, before, pack

    def find_checked_file(self, name: str) -> Path:
        """Resolve a file of the testbed, or below `before/` or `references/`, as the importer maps paths outside of the testbed."""
        for start, folder in ((BEFORE, self.before), (REFERENCES, self.pack / "references")):
            if name.startswith(start):
                return resolve_within(folder, name[len(start) :])
        return resolve_within(self.root, name)

    def contain(self, doc_type: str, keywords: Sequence[str], file: str = "", username: str = "") -> bool:
        """Check that a file, or all mails of a user together, contain every keyword."""
        if doc_type == "email":
            return contains_all(self.read_mails(username), keywords)
        path = self.find_checked_file(file)
        return path.is_file() and contains_all(READERS[doc_type](path), keywords)

    def not_contain(self, doc_type: str, keywords: Sequence[str], file: str = "", username: str = "") -> bool:
        """Check that a keyword is missing; also true for a missing file."""
        return not self.contain(doc_type, keywords, file, username)

    def read_mails(self, username: str) -> str:
        """Return all mails of a user: by name, by lower-case name, or by an account that contains the name."""
        folder = self.root / "emails"
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        near = [name for name in names if username.lower() in name.lower()]
        found = next((name for name in (username, username.lower(), *near) if name in names), None)
        return mail.format_mailbox(folder / found, None) if found else ""

    def file_exist(self, file: str) -> bool:
        return self.find_checked_file(file).exists()

    def file_not_exist(self, file: str) -> bool:
        return not self.find_checked_file(file).exists()

    def exact_match(self, doc_type: str, result_file: str, expected_file: str) -> bool:
        """Check for equal text, or equal cells of the active sheets."""
        result, expected = self.find_checked_file(result_file), self.find_checked_file(expected_file)
        if doc_type != "xlsx":
            return READERS[doc_type](result) == READERS[doc_type](expected)
        return read_cells(result) == read_cells(expected)

    def diff_contain_text(self, doc_type: str, input_file: str, output_file: str, keywords: Sequence[str]) -> bool:
        """Check that every keyword occurs in the removed or added lines."""
        old, new = (READERS[doc_type](self.find_checked_file(name)).split("\n") for name in (input_file, output_file))
        diff = list(difflib.unified_diff(old, new, n=0))[2:]  # without the two lines that name the files
        changed = [line for line in diff if line[:1] in "+-"]
        return bool(changed) and all(keyword in "\n".join(changed) for keyword in keywords)

    def excel_cell_value(self, file: str, matches: Sequence[dict[str, Any]]) -> bool:
        """Check that every cell shows its value. Text may follow that does not continue the last word or number."""
        cells = read_cells(self.find_checked_file(file))
        return all(
            cell_shows(cells.get((int(match["row"]), int(match["col"]))), str(match["value"])) for match in matches
        )

    def excel_cell_comparator(self, file: str, matches: Sequence[dict[str, Any]]) -> bool:
        """Check the task's expression on the text of every cell. It is code of the benchmark and runs only in the sandbox."""
        cells = read_cells(self.find_checked_file(file))
        for match in matches:
            text = str(cells.get((int(match["row"]), int(match["col"])), ""))
            if not WORD.fullmatch(text) or not eval(match["comparator"], {})(text):
                return False
        return True

    def calendar_no_overlap(self, username: str) -> bool:
        """Check that no two events of a user's calendar overlap."""
        calendar = calendars.open_calendar(self.find_checked_file(f"calendar/{username}.ics"))
        spans = sorted(calendars.compute_span(event) for event in calendars.list_calendar_events(calendar))
        return all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def resolve_within(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} is outside of the files that a check may read")
    return path


def read_cells(path: Path) -> dict[tuple[int, int], Any]:
    """Return the non-empty cells of the active sheet."""
    if not path.is_file():
        raise FileNotFoundError(path.name)
    return {(cell.row, cell.column): cell.value for cell in list_filled_cells(sheets.open_workbook(path).active)}


def list_filled_cells(sheet: Any) -> list[Any]:
    return [cell for row in sheet.iter_rows() for cell in row if cell.value is not None]


def cell_shows(value: Any, wanted: str) -> bool:
    text = sheets.EMPTY if value is None else str(value)
    if text == wanted:
        return True
    if reads_as_number(wanted) and reads_as_number(text):
        return float(wanted) == float(text)
    rest = text[len(wanted) :]
    return (
        text.startswith(wanted) and bool(rest) and not (rest[0].isalnum() or (rest[0] in ".," and rest[1:2].isdigit()))
    )


def describe_file(path: Path) -> Any:
    """Describe an office file for an episode's evidence: paragraphs, cells by sheet, text."""
    match path.suffix.lower():
        case ".docx":
            return {"paragraphs": documents.list_paragraphs(documents.open_document(path))}
        case ".xlsx":
            book = sheets.open_workbook(path)
            return {
                sheet.title: {cell.coordinate: cell_to_json(cell.value) for cell in list_filled_cells(sheet)}
                for sheet in book.worksheets
            }
        case ".pdf":
            return {"pages": pages.read_pdf_pages(path)}
        case ".png" | ".jpg" | ".jpeg":
            with import_module("PIL.Image").open(path) as picture:
                return {"image": [picture.width, picture.height]}
    return None


def cell_to_json(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)
