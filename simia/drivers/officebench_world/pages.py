"""pdf: reading by pypdf, pictures by pypdfium2; ocr: by the program tesseract, where the system has it."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from pathlib import Path

from .desk import Desk, Failed, action, answering, library
from .documents import document_of, put
from .programs import run

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")
SCALE = 2.0  # 144 dots per inch: letters can be read
MOST_PIXELS = 40_000_000
LARGE = 3_000  # pixels of a side that are enough for reading letters
FORMATS = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".gif": "GIF", ".tif": "TIFF", ".tiff": "TIFF",
    ".webp": "WEBP", ".ppm": "PPM",
}  # fmt: skip
NO_OCR = "there is no program that reads images here: install tesseract (Debian: apt-get install tesseract-ocr)"


def pages_of(path: Path) -> list[str]:
    reader = library("pypdf").PdfReader(io.BytesIO(path.read_bytes()))
    return [CONTROL.sub("", page.extract_text()) for page in reader.pages]


def text_of(path: Path) -> str:
    return "".join(pages_of(path))


@action("pdf.read_file")
def read_file(desk: Desk, pdf_file_path: str) -> str:
    """Show the text of a PDF."""
    path = desk.find(pdf_file_path)
    if path is None:
        raise Failed(f"The pdf file {pdf_file_path} does not exist. Failed to read the file.")
    with answering(f"Failed to read the file {pdf_file_path}: it is no PDF."):
        return text_of(path).strip() or f"No text found in {pdf_file_path}: its pages are pictures."


@action("pdf.convert_to_word", writes=True)
def convert_to_word(desk: Desk, pdf_file_path: str, word_file_path: str) -> str:
    """Save the text of a PDF as a Word document."""
    path = desk.find(pdf_file_path)
    if path is None:
        raise Failed(f"The pdf file {pdf_file_path} does not exist. Failed to convert the file to word.")
    with answering("Failed: it cannot be converted", why=True):
        put(
            desk,
            document_of([line for page in pages_of(path) for line in page.splitlines()]),
            desk.locate(word_file_path),
        )
    return "Success"


@action("pdf.convert_to_image", writes=True)
def convert_to_image(desk: Desk, pdf_file_path: str, image_file_path: str) -> str:
    """Save the first page of a PDF as an image."""
    path = desk.find(pdf_file_path)
    if path is None:
        raise Failed(f"The file {pdf_file_path} does not exist. Failed to convert pdf to image.")
    with answering("Failed: it cannot be converted", why=True):
        target = desk.locate(image_file_path)
        form = FORMATS.get(target.suffix.lower())
        if form is None:
            raise ValueError(f"an image is one of {', '.join(FORMATS)}")
        desk.save(target, drawn(path.read_bytes(), form))
    return "Success"


def drawn(data: bytes, form: str) -> bytes:
    """The first page as an image of that format."""
    document = library("pypdfium2").PdfDocument(data)
    try:
        page = document[0]
        width, height = page.get_size()
        scale = min(SCALE, (MOST_PIXELS / max(width * height, 1)) ** 0.5)
        made = io.BytesIO()
        page.render(scale=scale).to_pil().convert("RGB").save(made, form)
    finally:
        document.close()
    return made.getvalue()


@action("ocr.recognize_file")
def recognize_file(desk: Desk, file_path: str) -> str:
    """Read the text in an image."""
    path = desk.find(file_path)
    if path is None:
        raise Failed(f"The file {file_path} does not exist. Failed to recognize text.")
    with answering(f"Failed to recognize text from {file_path}", why=True):
        with library("PIL.Image").open(path) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError("the image is too large")
        text = recognized(path)
    if not text.strip():
        raise Failed(f"Failed to recognize text from {file_path}")
    return f"The text from {file_path} is:\n{text}"


def recognized(path: Path) -> str:
    """What tesseract reads. Raises `ValueError` where it is not there, or gives up."""
    program = shutil.which("tesseract")
    if program is None:
        raise ValueError(NO_OCR)
    with tempfile.TemporaryDirectory() as folder:
        picture, text = Path(folder) / "picture.png", Path(folder) / "text"
        enlarged(path, picture)
        ran = run([program, str(picture), str(text), "--dpi", "300"])
        if ran.code != 0:
            raise ValueError("tesseract took too long" if ran.code is None else "tesseract cannot read it")
        return text.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")


def enlarged(path: Path, target: Path) -> None:
    """The image in grey on white; a small one larger, since letters of a screen's size are read badly."""
    images = library("PIL.Image")
    with images.open(path) as picture:
        paper = images.new("RGBA", picture.size, "white")
        paper.alpha_composite(picture.convert("RGBA"))
    times = max(1, min(3, LARGE // max(paper.size)))
    grey = paper.convert("L")
    grey.resize((grey.width * times, grey.height * times), images.Resampling.LANCZOS).save(target)
