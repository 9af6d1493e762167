"""Documents: .docx, .txt and .md are read and written, .pdf is read.

To an agent every document is lines of text: `# ` and `## ` begin headings, `- ` an item of a list; a row of a table stands
between bars. A .docx is written with a few plain styles of our own, 3 KB where the library's template has 36.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from office_desk import Desk, repeatable

from simia.kit import ToolError, read, write

WRITABLE = (".docx", ".txt", ".md")
MOST_CHARACTERS = 20_000
STYLES = (("# ", "Heading 1"), ("## ", "Heading 2"), ("- ", "List Bullet"))
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
TYPES = "application/vnd.openxmlformats-officedocument.wordprocessingml"


class Documents(Desk):
    """The tools of documents."""

    @read
    def read_document(self, path: str) -> dict[str, Any]:
        name = self.present(path)
        suffix = PurePosixPath(name).suffix.lower()
        if suffix not in (*WRITABLE, ".pdf"):
            hint = "see read_cells" if suffix == ".xlsx" else "only .docx, .txt, .md and .pdf can be read"
            raise ToolError(f"{path} is no document: {hint}")
        text = "\n".join(self._lines(name))
        if len(text) > MOST_CHARACTERS:
            return {"path": path, "text": text[:MOST_CHARACTERS], "cut": True}
        return {"path": path, "text": text}

    @write
    def create_document(self, path: str, text: str) -> dict[str, Any]:
        name = self.vacant(writable(path))
        lines = text.strip("\n").splitlines()
        if not any(line.strip() for line in lines):
            raise ToolError("a document needs text")
        self._write_lines(name, lines)
        return {"path": path, "lines": len(lines)}

    @write
    def append_document(self, path: str, text: str) -> dict[str, Any]:
        name = self._changeable(path)
        lines = text.strip("\n").splitlines()
        if not any(line.strip() for line in lines):
            raise ToolError("give the text that is to be added")
        if name.endswith(".docx"):
            document = opened(self.load(name))
            for line in lines:
                styled(document.add_paragraph(), line)
            self._save_document(name, document)
        else:
            self._write_lines(name, [*self._lines(name), *lines])
        return {"path": path, "added": "\n".join(lines)}

    @write
    def replace_in_document(self, path: str, old: str, new: str) -> dict[str, Any]:
        name = self._changeable(path)
        if not old.strip() or "\n" in old or "\n" in new:
            raise ToolError("old and new are words within one line")
        if name.endswith(".docx"):
            document = opened(self.load(name))
            count = 0
            for paragraph in all_paragraphs(document):
                if old in paragraph.text:
                    count += paragraph.text.count(old)
                    rewrite(paragraph, paragraph.text.replace(old, new))
            if count:
                self._save_document(name, document)
        else:
            text = "\n".join(self._lines(name))
            count = text.count(old)
            self._write_lines(name, text.replace(old, new).splitlines())
        if not count:
            raise ToolError(f"{path} has no {old!r}: read it and give the words as they stand there")
        return {"path": path, "replaced": count}

    # -- what several tools do --------------------------------------------------------------------------------------

    def _changeable(self, path: str) -> str:
        self.present(path)
        return self.changeable(writable(path))

    def _lines(self, name: str) -> list[str]:
        try:
            return lines_of(self.load(name), PurePosixPath(name).suffix.lower())
        except Exception:
            raise ToolError(f"{name.partition('/')[2]} cannot be read: the file is damaged") from None

    def _write_lines(self, name: str, lines: list[str]) -> None:
        if name.endswith(".docx"):
            document = opened(blank(self.now.isoformat()))
            for line in lines:
                styled(document.add_paragraph(), line)
            self._save_document(name, document)
        else:
            self.store(name, ("\n".join(lines) + "\n").encode())

    def _save_document(self, name: str, document: Any) -> None:
        self.store(name, saved(document, self.now.isoformat()))


def writable(path: str) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in WRITABLE:
        raise ToolError(f"{path} cannot be written as a document: its name must end in .docx, .txt or .md")
    return path


def lines_of(data: bytes, suffix: str) -> list[str]:
    """The lines of a document. Raises whatever its library does for a broken one."""
    if suffix == ".docx":
        return list(lines_of_docx(opened(data)))
    if suffix == ".pdf":
        from pypdf import PdfReader

        pages = PdfReader(io.BytesIO(data)).pages
        return [line.rstrip() for page in pages for line in page.extract_text().splitlines()]
    return data.decode().splitlines()


def lines_of_docx(document: Any) -> Iterator[str]:
    """Paragraphs and rows of tables in their order."""
    marks = {style: mark for mark, style in STYLES}
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                yield "| " + " | ".join(cell.text for cell in row.cells) + " |"
        else:
            yield marks.get(block.style.name if block.style is not None else "", "") + block.text


def all_paragraphs(document: Any) -> Iterator[Any]:
    yield from document.paragraphs
    for table in document.tables:
        for row in table.rows:
            for cell in row.cells:
                yield from cell.paragraphs


def opened(data: bytes) -> Any:
    """Raises `ToolError` for what is no Word file."""
    from docx import Document

    try:
        return Document(io.BytesIO(data))
    except Exception:
        raise ToolError("the file is no Word document that can be opened: it is damaged") from None


def styled(paragraph: Any, line: str) -> None:
    """Put a line into an empty paragraph, in the style that its first characters ask for."""
    mark, style = next(((mark, style) for mark, style in STYLES if line.startswith(mark)), ("", None))
    if style is not None:
        try:
            paragraph.style = style
        except KeyError:  # somebody else's document, without that style: the mark stays as text
            mark = ""
    paragraph.add_run("".join(c for c in line[len(mark) :] if c >= " " or c == "\t"))


def rewrite(paragraph: Any, text: str) -> None:
    """Another text for a paragraph, in the look of its first words."""
    first, *others = paragraph.runs or [paragraph.add_run()]
    for link in paragraph.hyperlinks:  # their words are part of the text, and stand in it once
        paragraph._p.remove(link._hyperlink)
    for run in others:
        run.text = ""
    first.text = text


def saved(document: Any, stamp: str) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return repeatable(out.getvalue(), stamp)


def blank(stamp: str) -> bytes:
    """An empty Word document with our few styles."""

    def style(name: str, word: str, kind: str = "paragraph", look: str = "", first: str = "") -> str:
        based = "" if name == "Normal" else '<w:basedOn w:val="Normal"/>'
        return f'<w:style w:type="{kind}"{first} w:styleId="{name}"><w:name w:val="{word}"/>{based}<w:qFormat/>{look}</w:style>'

    def heading(size: int) -> str:
        return f'<w:pPr><w:keepNext/><w:spacing w:before="240"/></w:pPr><w:rPr><w:b/><w:sz w:val="{size}"/></w:rPr>'

    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    styles = (
        style("Normal", "Normal", first=' w:default="1"')
        + style("Heading1", "heading 1", look=heading(32))
        + style("Heading2", "heading 2", look=heading(26))
        + style("ListBullet", "List Bullet", look='<w:pPr><w:ind w:left="360" w:hanging="360"/></w:pPr>')
        + '<w:style w:type="table" w:default="1" w:styleId="TableNormal"><w:name w:val="Normal Table"/></w:style>'
    )
    page = '<w:sectPr><w:pgSz w:w="11906" w:h="16838"/><w:pgMar w:top="1440" w:right="1440" w:bottom="1440" w:left="1440"/></w:sectPr>'
    core = (
        f'<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" xmlns:dcterms="http://purl.org/dc/terms/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        + "".join(
            f'<dcterms:{when} xsi:type="dcterms:W3CDTF">{stamp}Z</dcterms:{when}>' for when in ("created", "modified")
        )
        + "</cp:coreProperties>"
    )
    files = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{TYPES}.document.main+xml"/>'
        f'<Override PartName="/word/styles.xml" ContentType="{TYPES}.styles+xml"/>'
        '<Override PartName="/docProps/core.xml" ContentType="application/vnd.openxmlformats-package.core-properties+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="word/document.xml"/>'
        f'<Relationship Id="rId2" Type="{PACKAGE}/relationships/metadata/core-properties" Target="docProps/core.xml"/></Relationships>',
        "docProps/core.xml": core,
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "word/document.xml": f"<w:document {W}><w:body>{page}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {W}>{styles}</w:styles>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in files.items():
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), head + body)
    return out.getvalue()
