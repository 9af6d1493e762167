"""Bytes that repeat: office files and PDFs without the moment at which they were written.

A .docx or .xlsx is a zip archive whose entries carry dates, and its properties name the time of the last change. Both are
taken from the episode's clock.
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
MOST = 64 << 20  # bytes that an archive may hold unpacked: the folder's own size


def fix_archive_dates(data: bytes, now: datetime) -> bytes:
    """The same zip archive with every date set to `now`."""
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
    """A PDF of another program without dates and identifiers; offsets stay, since nothing changes its length."""
    for pattern, sign in MOMENTS:
        data = pattern.sub(lambda found, sign=sign: found[1] + sign * len(found[2]), data)  # type: ignore[misc]
    return data


def check_unpacked_size(data: bytes) -> bytes:
    """The archive itself. Raises `ValueError` for one that would unpack to more than the episode's folder holds."""
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        size = sum(entry.file_size for entry in held.infolist())
    if size > MOST:
        raise ValueError(f"it unpacks to {size:,} bytes, more than {MOST:,}")
    return data
