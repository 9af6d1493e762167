"""The app word: documents by python-docx. It also makes documents from the text of PDFs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from .printing import print_document
from .stable import check_unpacked_size, fix_archive_dates
from .testbed import ActionError, Testbed, answer_errors, import_library, register_action


def open_document(path: Path) -> Any:
    data = check_unpacked_size(path.read_bytes())
    try:
        return import_library("docx").Document(io.BytesIO(data))
    except (ValueError, KeyError):  # another kind of archive
        raise ValueError("it is no Word document") from None


def list_paragraphs(document: Any) -> list[str]:
    """List the paragraphs of a document; a table row is one line."""
    found: list[str] = []
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            found += ["\t".join(cell.text for cell in row.cells) for row in block.rows]
        else:
            found.append(block.text)
    return found


def read_document_text(path: Path) -> str:
    return "\n".join(list_paragraphs(open_document(path)))


def save_document(testbed: Testbed, document: Any, path: Path) -> None:
    made = io.BytesIO()
    document.save(made)
    testbed.save(path, fix_archive_dates(made.getvalue(), testbed.now))


def make_document(paragraphs: list[str]) -> Any:
    document = import_library("docx").Document()
    for text in paragraphs:
        document.add_paragraph(text)
    return document


@register_action("word.convert_to_pdf", writes=True)
def convert_word_to_pdf(testbed: Testbed, word_file_path: str, pdf_file_path: str) -> str:
    """Save a Word document as a PDF."""
    path = testbed.find(word_file_path)
    if path is None:
        raise ActionError(f"The word file {word_file_path} does not exist. Failed to convert the file to pdf.")
    with answer_errors(f"Failed to convert {word_file_path} to {pdf_file_path}", why=True):
        data, how = print_document(path, lambda: open_document(path))
        testbed.save(testbed.locate(pdf_file_path), data)
    return f"Successfully convert {word_file_path} to {pdf_file_path} ({how})"


@register_action("word.create_new_file", writes=True)
def create_word_file(testbed: Testbed, file_path: str) -> str:
    """Create an empty Word document."""
    if testbed.find(file_path):
        raise ActionError(f"File {file_path} already exists")
    with answer_errors(f"Failed to create new file {file_path}", why=True):
        save_document(testbed, make_document([]), testbed.locate(file_path))
    return f"Successfully create new file {file_path}"


@register_action("word.read_file")
def read_word_file(testbed: Testbed, file_path: str) -> str:
    """Show the text of a Word document."""
    path = testbed.find(file_path)
    if path is None:
        raise ActionError(f"The file {file_path} does not exist. Failed to read the file.")
    with answer_errors(f"Failed to read the file {file_path}: it is no Word document."):
        return "\n".join(["The following is the content from the word file:", *list_paragraphs(open_document(path))])


@register_action("word.write_to_file", writes=True)
def write_to_file(testbed: Testbed, file_path: str, contents: str) -> str:
    """Append text to a Word document that exists."""
    path = testbed.find(file_path)
    if path is None:
        raise ActionError(f"The file {file_path} does not exist. Failed to write to the file.")
    with answer_errors(f"Failed to write contents to {file_path}", why=True):
        document = open_document(path)
        document.add_paragraph(contents)
        save_document(testbed, document, path)
    return f"Successfully write contents to {file_path}"
