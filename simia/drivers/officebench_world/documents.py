"""The app word: documents by python-docx. It also makes documents from the text of PDFs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from .archives import open_archive, save_archive
from .printing import lay_out_document, print_file
from .testbed import ActionError, Testbed, register_action


def open_document(path: Path) -> Any:
    data = open_archive(path)
    try:
        return import_module("docx").Document(data)
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


def make_document(paragraphs: list[str]) -> Any:
    document = import_module("docx").Document()
    for text in paragraphs:
        document.add_paragraph(text)
    return document


@register_action("word.convert_to_pdf", "Failed to convert {word_file_path} to {pdf_file_path}", writes=True)
def convert_word_to_pdf(testbed: Testbed, word_file_path: str, pdf_file_path: str) -> str:
    """Save a Word document as a PDF."""
    refusal = f"The word file {word_file_path} does not exist. Failed to convert the file to pdf."
    path = testbed.require(word_file_path, refusal)
    data, how = print_file(path, lay_out_document(open_document(path)))
    testbed.save(testbed.locate(pdf_file_path), data)
    return f"Successfully convert {word_file_path} to {pdf_file_path} ({how})"


@register_action("word.create_new_file", "Failed to create new file {file_path}", writes=True)
def create_word_file(testbed: Testbed, file_path: str) -> str:
    """Create an empty Word document."""
    if testbed.find(file_path):
        raise ActionError(f"File {file_path} already exists")
    save_archive(testbed, make_document([]), testbed.locate(file_path))
    return f"Successfully create new file {file_path}"


@register_action("word.read_file", "Failed to read the file {file_path}: it is no Word document.", why=False)
def read_word_file(testbed: Testbed, file_path: str) -> str:
    """Show the text of a Word document."""
    path = testbed.require(file_path, f"The file {file_path} does not exist. Failed to read the file.")
    return f"The following is the content from the word file:\n{read_document_text(path)}"


@register_action("word.write_to_file", "Failed to write contents to {file_path}", writes=True)
def write_to_file(testbed: Testbed, file_path: str, contents: str) -> str:
    """Append text to a Word document that exists."""
    path = testbed.require(file_path, f"The file {file_path} does not exist. Failed to write to the file.")
    document = open_document(path)
    document.add_paragraph(contents)
    save_archive(testbed, document, path)
    return f"Successfully write contents to {file_path}"
