"""Open and save .docx and .xlsx files, zip archives, within a bound on their size and with the dates of the episode's clock."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

from .testbed import Testbed

CHANGED = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*(<)")
MOST = 64 << 20  # maximal unpacked size in bytes: the size of the folder


def open_archive(path: Path) -> io.BytesIO:
    """Read a zip archive. Raises `ValueError` if its unpacked size exceeds the episode's folder."""
    data = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(data) as held:
        size = sum(entry.file_size for entry in held.infolist())
    if size > MOST:
        raise ValueError(f"it unpacks to {size:,} bytes, more than {MOST:,}")
    data.seek(0)
    return data


def save_archive(testbed: Testbed, document: Any, path: Path) -> None:
    """Save a document or workbook with the episode's time in the dates of its entries and properties."""
    now = testbed.now
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    saved, made = io.BytesIO(), io.BytesIO()
    document.save(saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            body = old.read(entry)
            if entry.filename == "docProps/core.xml":
                body = CHANGED.sub(rb"\g<1>" + stamp + rb"\g<2>", body)
            fresh = zipfile.ZipInfo(entry.filename, (max(now.year, 1980), now.month, now.day, 0, 0, 0))
            fresh.compress_type = zipfile.ZIP_DEFLATED
            fresh.external_attr = 0o644 << 16
            new.writestr(fresh, body)
    testbed.save(path, made.getvalue())
