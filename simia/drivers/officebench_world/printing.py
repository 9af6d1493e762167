"""Convert to PDF with LibreOffice if it is installed, else with reportlab, which lays out only text and tables.

OfficeBench starts LibreOffice and always reports success, and it names the PDF after the document. Here the PDF is written
to the requested path, and failures are reported.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from .programs import run_program

BY_LIBREOFFICE, BY_REPORTLAB = "by LibreOffice", "plain text and tables, by reportlab"
WIDE = 8  # columns of a page; further columns follow below
MOST_ROWS = 5_000
TRUETYPE = Path("/usr/share/fonts/truetype")
FONTS = (  # Vera is part of reportlab
    "Vera.ttf", "dejavu/DejaVuSans.ttf", "liberation/LiberationSans-Regular.ttf", "liberation2/LiberationSans-Regular.ttf",
    "freefont/FreeSans.ttf", "noto/NotoSans-Regular.ttf",
)  # fmt: skip
PATIENCE = 9.0  # seconds; it starts in one or two on an idle machine
MOMENTS = (  # dates and identifiers in a PDF
    re.compile(rb"(/(?:CreationDate|ModDate)\s*\(D:)(\d{14})"),
    re.compile(rb"(/DocChecksum\s*/)([0-9A-Fa-f]+)"),
    re.compile(rb"(/ID\s*\[\s*<)([0-9A-Fa-f]+)"),
    re.compile(rb"(/ID\s*\[\s*<0+>\s*<)([0-9A-Fa-f]+)"),
)


def print_file(path: Path, story: Iterable[Any]) -> tuple[bytes, str]:
    """Convert a .docx or .xlsx to PDF; return it with the name of the converter. `story`: its content, laid out for reportlab.

    Only a file that its library opened may come here: LibreOffice converts anything.
    """
    program = find_libreoffice()
    if program is not None:
        return print_with_libreoffice(program, path), BY_LIBREOFFICE
    return render_pdf(list(story)), BY_REPORTLAB


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
        code, _ = run_program(command, folder, seconds=PATIENCE)
        made = Path(folder) / f"{path.stem}.pdf"
        data = made.read_bytes() if made.is_file() else b""
    if code is None or not data.startswith(b"%PDF"):
        raise ValueError("LibreOffice took too long" if code is None else "LibreOffice made no PDF of it")
    for pattern in MOMENTS:  # offsets stay valid, since lengths do not change
        data = pattern.sub(lambda found: found[1] + b"0" * len(found[2]), data)
    return data


def render_pdf(story: list[Any]) -> bytes:
    """Render a story as PDF, without dates, so that equal stories give equal bytes."""
    platypus, sizes = import_module("reportlab.platypus"), import_module("reportlab.lib.pagesizes")
    made = io.BytesIO()
    page = platypus.SimpleDocTemplate(made, pagesize=sizes.A4, invariant=1)
    page.build(story or [platypus.Spacer(1, 1)])
    return made.getvalue()


def make_paragraph(text: str, style: str = "BodyText") -> Any:
    """Make a paragraph in Helvetica, or in a font that has all its characters."""
    platypus, styles = import_module("reportlab.platypus"), import_module("reportlab.lib.styles")
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
    metrics, fonts = import_module("reportlab.pdfbase.pdfmetrics"), import_module("reportlab.pdfbase.ttfonts")
    letters = {ord(letter) for letter in text if not letter.isspace()}
    for number, file in enumerate(FONTS):
        name = f"wide-{number}"
        if name not in metrics.getRegisteredFontNames():
            if number and not (TRUETYPE / file).is_file():
                continue
            metrics.registerFont(fonts.TTFont(name, str(TRUETYPE / file) if number else file))
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


def lay_out_workbook(book: Any, open_formulas: Callable[[], Any]) -> Iterator[Any]:
    """Lay out a workbook that was opened with the results of formulas. A formula without a result is shown itself."""
    formulas = open_formulas()
    for sheet in book.worksheets:
        if len(book.worksheets) > 1:
            yield make_paragraph(sheet.title, "Heading2")
        if sheet.max_row > MOST_ROWS:
            raise ValueError(f"sheet {sheet.title!r} has more than {MOST_ROWS:,} rows")
        rows = []
        for row, written in zip(sheet.iter_rows(), formulas[sheet.title].iter_rows(), strict=False):
            values = [b.value if a.value is None else a.value for a, b in zip(row, written, strict=False)]
            rows.append(["" if value is None else str(value) for value in values])
        yield from make_tables(rows)


def make_tables(rows: Sequence[Sequence[str]]) -> Iterator[Any]:
    """Make a table with lines; a table too wide for a page is split into several, below each other."""
    platypus, colors = import_module("reportlab.platypus"), import_module("reportlab.lib.colors")
    most = max((len(row) for row in rows), default=0)
    for first in range(0, most, WIDE):
        part = [[make_paragraph(text) for text in row[first : first + WIDE]] for row in rows]
        style = [("GRID", (0, 0), (-1, -1), 0.5, colors.grey), ("VALIGN", (0, 0), (-1, -1), "TOP")]
        yield platypus.LongTable(part, style=platypus.TableStyle(style))
        yield platypus.Spacer(1, 12)
