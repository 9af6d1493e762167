"""Convert to PDF with LibreOffice if it is installed, else with reportlab, which lays out only text and tables.

OfficeBench starts LibreOffice and always reports success, and it names the PDF after the document. Here the PDF is written
to the requested path, and failures are reported.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from . import stable
from .programs import run_program
from .testbed import import_library

BY_LIBREOFFICE, BY_REPORTLAB = "by LibreOffice", "plain text and tables, by reportlab"
WIDE = 8  # columns of a page; further columns follow below
MOST_ROWS = 5_000
TRUETYPE = "/usr/share/fonts/truetype"
FONTS = (
    "Vera.ttf",  # part of reportlab
    f"{TRUETYPE}/dejavu/DejaVuSans.ttf",
    f"{TRUETYPE}/liberation/LiberationSans-Regular.ttf",
    f"{TRUETYPE}/liberation2/LiberationSans-Regular.ttf",
    f"{TRUETYPE}/freefont/FreeSans.ttf",
    f"{TRUETYPE}/noto/NotoSans-Regular.ttf",
)
PATIENCE = 9.0  # seconds; it starts in one or two on an idle machine

Story = list[Any]


def print_document(path: Path, opened: Callable[[], Any]) -> tuple[bytes, str]:
    """Convert a .docx to PDF; return it with the name of the converter."""
    document = opened()  # checks the file also for LibreOffice, which converts anything
    program = find_libreoffice()
    if program is not None:
        return print_with_libreoffice(program, path), BY_LIBREOFFICE
    return render_pdf(list(lay_out_document(document))), BY_REPORTLAB


def print_workbook(path: Path, values: Callable[[], Any], formulas: Callable[[], Any]) -> tuple[bytes, str]:
    """Convert a .xlsx to PDF; return it with the name of the converter. Formulas without a computed value are shown as formulas."""
    book = values()
    program = find_libreoffice()
    if program is not None:
        return print_with_libreoffice(program, path), BY_LIBREOFFICE
    return render_pdf(list(lay_out_workbook(book, formulas()))), BY_REPORTLAB


def find_libreoffice() -> str | None:
    """Find the program if it can start: Debian's has its settings in /etc, which the pack must request (`needs`)."""
    program = shutil.which("soffice") or shutil.which("libreoffice")
    if program is None:
        return None
    home = Path(program).resolve().parents[1]
    return program if (home / "share" / "registry").is_dir() else None


def print_with_libreoffice(program: str, path: Path) -> bytes:
    """Convert with LibreOffice. Raises `ValueError` if it fails: falling back to another layout would not be reproducible."""
    with tempfile.TemporaryDirectory() as folder:
        profile = f"-env:UserInstallation=file://{folder}/profile"
        command = [program, profile, "--headless", "--norestore", "--convert-to", "pdf", "--outdir", folder, str(path)]
        ran = run_program(command, folder=folder, seconds=PATIENCE)
        made = Path(folder) / f"{path.stem}.pdf"
        data = made.read_bytes() if made.is_file() else b""
    if ran.code is None or not data.startswith(b"%PDF"):
        raise ValueError("LibreOffice took too long" if ran.code is None else "LibreOffice made no PDF of it")
    return stable.fix_pdf_dates(data)


def render_pdf(story: Story) -> bytes:
    """Render a story as PDF, without dates, so that equal stories give equal bytes."""
    platypus, sizes = import_library("reportlab.platypus"), import_library("reportlab.lib.pagesizes")
    made = io.BytesIO()
    page = platypus.SimpleDocTemplate(made, pagesize=sizes.A4, invariant=1)
    page.build(story or [platypus.Spacer(1, 1)])
    return made.getvalue()


def make_paragraph(text: str, style: str = "BodyText") -> Any:
    """Make a paragraph in Helvetica, or in a font that has all its characters."""
    platypus, styles = import_library("reportlab.platypus"), import_library("reportlab.lib.styles")
    look = styles.getSampleStyleSheet()[style]
    if not is_latin(text):
        look = look.clone(f"{style}-wide", fontName=find_font(text))
    return platypus.Paragraph(escape(text, quote=False).replace("\n", "<br/>"), look)


def is_latin(text: str) -> bool:
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def find_font(text: str) -> str:
    """Return the first font that has all characters of the text. Raises `ValueError` if there is none."""
    metrics, fonts = import_library("reportlab.pdfbase.pdfmetrics"), import_library("reportlab.pdfbase.ttfonts")
    letters = {ord(letter) for letter in text if not letter.isspace()}
    for number, file in enumerate(FONTS):
        name = f"wide-{number}"
        if name not in metrics.getRegisteredFontNames():
            if file.startswith("/") and not Path(file).is_file():
                continue
            metrics.registerFont(fonts.TTFont(name, file))
        if letters <= metrics.getFont(name).face.charToGlyph.keys():
            return name
    strange = next(letter for letter in text if not is_latin(letter))
    raise ValueError(f"no font here has the letter {strange!r}: install LibreOffice, or Debian's fonts-dejavu-core")


def lay_out_document(document: Any) -> Iterator[Any]:
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            yield from make_tables([[cell.text for cell in row.cells] for row in block.rows])
        elif block.text.strip():
            name = block.style.name if block.style is not None else ""
            yield make_paragraph(
                block.text, "Title" if name == "Title" else "Heading2" if "Heading" in name else "BodyText"
            )


def lay_out_workbook(book: Any, formulas: Any) -> Iterator[Any]:
    for sheet in book.worksheets:
        if len(book.worksheets) > 1:
            yield make_paragraph(sheet.title, "Heading2")
        if sheet.max_row > MOST_ROWS:
            raise ValueError(f"sheet {sheet.title!r} has more than {MOST_ROWS:,} rows")
        written = formulas[sheet.title]
        rows = [
            [format_cell(cell.value, written.cell(cell.row, cell.column).value) for cell in row]
            for row in sheet.iter_rows()
        ]
        yield from make_tables(rows)


def format_cell(value: Any, written: Any) -> str:
    found = written if value is None else value
    return "" if found is None else str(found)


def make_tables(rows: Sequence[Sequence[str]]) -> Iterator[Any]:
    """Make a table with lines; a table too wide for a page is split into several, below each other."""
    platypus, colors = import_library("reportlab.platypus"), import_library("reportlab.lib.colors")
    most = max((len(row) for row in rows), default=0)
    for first in range(0, most, WIDE):
        part = [[make_paragraph(text) for text in row[first : first + WIDE]] for row in rows]
        style = [("GRID", (0, 0), (-1, -1), 0.5, colors.grey), ("VALIGN", (0, 0), (-1, -1), "TOP")]
        yield platypus.LongTable(part, style=platypus.TableStyle(style))
        yield platypus.Spacer(1, 12)
