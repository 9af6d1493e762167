"""The app pdf: text by pypdf, images by pypdfium2. The app ocr: by the program tesseract, if it is installed."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from importlib import import_module
from pathlib import Path

from .archives import save_archive
from .documents import make_document
from .programs import run_program
from .testbed import ActionError, Testbed, register_action

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")
SCALE = 2.0  # 144 dots per inch: text is readable
MOST_PIXELS = 40_000_000
LARGE = 3_000  # pixels of a side that suffice for OCR
FORMATS = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".gif": "GIF", ".tif": "TIFF", ".tiff": "TIFF",
    ".webp": "WEBP", ".ppm": "PPM",
}  # fmt: skip
NO_OCR = "there is no program that reads images here: install tesseract (Debian: apt-get install tesseract-ocr)"


def read_pdf_pages(path: Path) -> list[str]:
    reader = import_module("pypdf").PdfReader(io.BytesIO(path.read_bytes()))
    return [CONTROL.sub("", page.extract_text()) for page in reader.pages]


def read_pdf_text(path: Path) -> str:
    return "".join(read_pdf_pages(path))


@register_action("pdf.read_file", "Failed to read the file {pdf_file_path}: it is no PDF.", why=False)
def read_pdf_file(testbed: Testbed, pdf_file_path: str) -> str:
    """Show the text of a PDF."""
    path = testbed.require(pdf_file_path, f"The pdf file {pdf_file_path} does not exist. Failed to read the file.")
    return read_pdf_text(path).strip() or f"No text found in {pdf_file_path}: its pages are pictures."


@register_action("pdf.convert_to_word", "Failed: it cannot be converted", writes=True)
def convert_to_word(testbed: Testbed, pdf_file_path: str, word_file_path: str) -> str:
    """Save the text of a PDF as a Word document."""
    refusal = f"The pdf file {pdf_file_path} does not exist. Failed to convert the file to word."
    path = testbed.require(pdf_file_path, refusal)
    lines = [line for page in read_pdf_pages(path) for line in page.splitlines()]
    save_archive(testbed, make_document(lines), testbed.locate(word_file_path))
    return "Success"


@register_action("pdf.convert_to_image", "Failed: it cannot be converted", writes=True)
def convert_to_image(testbed: Testbed, pdf_file_path: str, image_file_path: str) -> str:
    """Save the first page of a PDF as an image."""
    path = testbed.require(pdf_file_path, f"The file {pdf_file_path} does not exist. Failed to convert pdf to image.")
    target = testbed.locate(image_file_path)
    form = FORMATS.get(target.suffix.lower())
    if form is None:
        raise ValueError(f"an image is one of {', '.join(FORMATS)}")
    testbed.save(target, render_first_page(path.read_bytes(), form))
    return "Success"


def render_first_page(data: bytes, form: str) -> bytes:
    """Render the first page as an image of that format."""
    document = import_module("pypdfium2").PdfDocument(data)
    try:
        page = document[0]
        width, height = page.get_size()
        scale = min(SCALE, (MOST_PIXELS / max(width * height, 1)) ** 0.5)
        made = io.BytesIO()
        page.render(scale=scale).to_pil().convert("RGB").save(made, form)
    finally:
        document.close()
    return made.getvalue()


@register_action("ocr.recognize_file", "Failed to recognize text from {file_path}")
def recognize_file(testbed: Testbed, file_path: str) -> str:
    """Read the text in an image."""
    path = testbed.require(file_path, f"The file {file_path} does not exist. Failed to recognize text.")
    with import_module("PIL.Image").open(path) as picture:
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError("the image is too large")
    text = recognize_text(path)
    if not text.strip():
        raise ActionError(f"Failed to recognize text from {file_path}")
    return f"The text from {file_path} is:\n{text}"


def recognize_text(path: Path) -> str:
    """Return the text that tesseract reads. Raises `ValueError` if it is not installed or fails."""
    program = shutil.which("tesseract")
    if program is None:
        raise ValueError(NO_OCR)
    with tempfile.TemporaryDirectory() as folder:
        picture, text = Path(folder) / "picture.png", Path(folder) / "text"
        enlarge_image(path, picture)
        code, _ = run_program([program, str(picture), str(text), "--dpi", "300"])
        if code != 0:
            raise ValueError("tesseract took too long" if code is None else "tesseract cannot read it")
        return text.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")


def enlarge_image(path: Path, target: Path) -> None:
    """Convert the image to grey on white, and enlarge a small one: OCR reads screen-size text badly."""
    images = import_module("PIL.Image")
    with images.open(path) as picture:
        paper = images.new("RGBA", picture.size, "white")
        paper.alpha_composite(picture.convert("RGBA"))
    times = max(1, min(3, LARGE // max(paper.size)))
    grey = paper.convert("L")
    grey.resize((grey.width * times, grey.height * times), images.Resampling.LANCZOS).save(target)
