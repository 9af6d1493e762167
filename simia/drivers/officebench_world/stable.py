"""Make office files and PDFs reproducible by fixing their dates.

A .docx or .xlsx is a zip archive whose entries have dates, and its properties contain the time of the last change. Both are
set from the episode's clock.
"""

from __future__ import annotations

import io
import re
import zipfile
from datetime import datetime

CHANGED = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*(<)")
MOMENTS = (
    (re.compile(rb"(/(?:CreationDate|ModDate)\s*\(D:)(\d{14})"), rb"0"),
    (re.compile(rb"(/DocChecksum\s*/)([0-9A-Fa-f]+)"), rb"0"),
    (re.compile(rb"(/ID\s*\[\s*<)([0-9A-Fa-f]+)"), rb"0"),
    (re.compile(rb"(/ID\s*\[\s*<0+>\s*<)([0-9A-Fa-f]+)"), rb"0"),
)
MOST = 64 << 20  # maximal unpacked size in bytes: the size of the folder


def fix_archive_dates(data: bytes, now: datetime) -> bytes:
    """Return the zip archive with every date set to `now`."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            body = old.read(entry)
            if entry.filename == "docProps/core.xml":
                body = CHANGED.sub(rb"\g<1>" + stamp + rb"\g<2>", body)
            fresh = zipfile.ZipInfo(entry.filename, (max(now.year, 1980), now.month, now.day, 0, 0, 0))
            fresh.compress_type = zipfile.ZIP_DEFLATED
            fresh.external_attr = 0o644 << 16
            new.writestr(fresh, body)
    return made.getvalue()


def fix_pdf_dates(data: bytes) -> bytes:
    """Return a PDF with dates and identifiers zeroed; offsets stay valid, since lengths do not change."""
    for pattern, sign in MOMENTS:
        data = pattern.sub(lambda found, sign=sign: found[1] + sign * len(found[2]), data)  # type: ignore[misc]
    return data


def check_unpacked_size(data: bytes) -> bytes:
    """Return the archive. Raises `ValueError` if its unpacked size exceeds the episode's folder."""
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        size = sum(entry.file_size for entry in held.infolist())
    if size > MOST:
        raise ValueError(f"it unpacks to {size:,} bytes, more than {MOST:,}")
    return data
