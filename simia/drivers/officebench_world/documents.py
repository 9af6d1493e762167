"""word: documents by python-docx. And what else becomes a document: the text of a PDF."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from .desk import Desk, Failed, action, answering, library
from .printing import print_document
from .stable import archive, unpacked


def opened(path: Path) -> Any:
    data = unpacked(path.read_bytes())
    try:
        return library("docx").Document(io.BytesIO(data))
    except (ValueError, KeyError):  # another kind of archive
        raise ValueError("it is no Word document") from None


def lines(document: Any) -> list[str]:
    """The text of a document, paragraph by paragraph; the cells of a table's row are in one line."""
    found: list[str] = []
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            found += ["\t".join(cell.text for cell in row.cells) for row in block.rows]
        else:
            found.append(block.text)
    return found


def text_of(path: Path) -> str:
    return "\n".join(lines(opened(path)))


def put(desk: Desk, document: Any, path: Path) -> None:
    made = io.BytesIO()
    document.save(made)
    desk.save(path, archive(made.getvalue(), desk.now))


def document_of(paragraphs: list[str]) -> Any:
    document = library("docx").Document()
    for text in paragraphs:
        document.add_paragraph(text)
    return document


@action("word.convert_to_pdf", writes=True)
def convert_to_pdf(desk: Desk, word_file_path: str, pdf_file_path: str) -> str:
    """Save a Word document as a PDF."""
    path = desk.find(word_file_path)
    if path is None:
        raise Failed(f"The word file {word_file_path} does not exist. Failed to convert the file to pdf.")
    with answering(f"Failed to convert {word_file_path} to {pdf_file_path}", why=True):
        data, how = print_document(path, lambda: opened(path))
        desk.save(desk.locate(pdf_file_path), data)
    return f"Successfully convert {word_file_path} to {pdf_file_path} ({how})"


@action("word.create_new_file", writes=True)
def create_new_file(desk: Desk, file_path: str) -> str:
    """Create an empty Word document."""
    if desk.find(file_path):
        raise Failed(f"File {file_path} already exists")
    with answering(f"Failed to create new file {file_path}", why=True):
        put(desk, document_of([]), desk.locate(file_path))
    return f"Successfully create new file {file_path}"


@action("word.read_file")
def read_file(desk: Desk, file_path: str) -> str:
    """Show the text of a Word document."""
    path = desk.find(file_path)
    if path is None:
        raise Failed(f"The file {file_path} does not exist. Failed to read the file.")
    with answering(f"Failed to read the file {file_path}: it is no Word document."):
        return "\n".join(["The following is the content from the word file:", *lines(opened(path))])


@action("word.write_to_file", writes=True)
def write_to_file(desk: Desk, file_path: str, contents: str) -> str:
    """Append text to a Word document that exists."""
    path = desk.find(file_path)
    if path is None:
        raise Failed(f"The file {file_path} does not exist. Failed to write to the file.")
    with answering(f"Failed to write contents to {file_path}", why=True):
        document = opened(path)
        document.add_paragraph(contents)
        put(desk, document, path)
    return f"Successfully write contents to {file_path}"
