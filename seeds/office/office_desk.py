"""What all apps of the office share: the folder they work in, how a file is read as JSON, and how bytes are made to repeat.

    files/      documents, sheets and whatever else people keep; the only part that the file tools see
    mail/       one folder a mailbox, one .eml a mail       calendar/   one .ics a person or room
    contacts/   contacts.vcf

The state of an episode is these files. What a text file *says* (a mail, a calendar) is kept in `memory` as JSON beside them,
so that two states are compared by what they say, not by their headers and time stamps; for other files `describe` does that.
Libraries are imported where they are used: most episodes need few of them.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from simia.kit import FileTools, ToolError

FILES, MAIL, CALENDAR, CONTACTS = "files", "mail", "calendar", "contacts/contacts.vcf"
OWNER, DOMAIN = "maeve.obrien@tolvane.example.com", "tolvane.example.com"
READ_ONLY, CONFIDENTIAL = ("company",), ("hr",)  # folders of `files`
TEXTS = (".eml", ".ics", ".vcf", ".txt", ".md")
MOST_BYTES = 2 << 20  # of one file
MOST_FILES = 500
NAME = re.compile(r"[^\x00-\x1f/\\:*?\"<>|]{1,120}")
MODIFIED = re.compile(rb"(<dcterms:modified[^>]*>)[^<]*(<)")
ZIP_DAY = (1980, 1, 1, 0, 0, 0)


class Desk(FileTools):
    """Base of the apps. Names of files that an agent gives are relative to `files/`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._said: dict[bytes, Any] = {}

    def ready(self) -> None:
        """Read what the text files say; the same bytes are read once."""
        self.memory = {"text": {}}
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                self.note(path.relative_to(self.root).as_posix())

    def describe(self, path: Path) -> Any:
        return said(path.suffix.lower(), path.read_bytes())

    def note(self, name: str) -> None:
        """Bring what is remembered of a file up to date, or forget it when it is gone."""
        path = self.root / name
        if not path.is_file() or path.is_symlink():
            self.memory["text"].pop(name, None)
        elif path.suffix.lower() in TEXTS:
            data = path.read_bytes()
            mark = hashlib.blake2b(data + path.suffix.encode(), digest_size=16).digest()
            if mark not in self._said:
                self._said[mark] = said(path.suffix.lower(), data)
            self.memory["text"][name] = self._said[mark]

    # -- files by their names from the root: of the apps themselves ------------------------------------------------

    def load(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def store(self, name: str, data: bytes) -> None:
        """Write a file. Raises `ToolError` for one that is too large."""
        if len(data) > MOST_BYTES:
            raise ToolError(f"{name} would have {len(data):,} bytes: {MOST_BYTES:,} are the most")
        path = self.root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise ToolError(f"{name!r} cannot be made: a file or folder of that name is in its way") from None
        self.note(name)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()
        self.note(name)

    # -- files by the names that an agent gives --------------------------------------------------------------------

    def place(self, name: str) -> str:
        """The name from the root of a file or folder below `files/`, whether it is there or not. Raises `ToolError`."""
        parts = PurePosixPath(name.strip()).parts
        if not parts or any(part == ".." or part.startswith(".") or not NAME.fullmatch(part) for part in parts):
            raise ToolError(f"{name!r} is no path of a file here: give one like projects/quay-house/brief.docx")
        found = f"{FILES}/{'/'.join(parts)}"
        self.path(found)  # a link that leads out of the folder is refused
        return found

    def present(self, name: str) -> str:
        """The name from the root of a file that is there. Raises `ToolError` with the nearest name that is."""
        found = self.place(name)
        if (self.root / found).is_file():
            return found
        if (self.root / found).is_dir():
            raise ToolError(f"{name} is a folder: see list_files")
        wanted = PurePosixPath(name).name.casefold()
        near = [each for each in self.names() if PurePosixPath(each).name.casefold() == wanted]
        hint = f"did you mean {near[0]}?" if near else "see search_files"
        raise ToolError(f"there is no file {name}: {hint}")

    def changeable(self, name: str) -> str:
        """Like `place`. Raises `ToolError` for what nobody but its keeper changes."""
        found = self.place(name)
        if found.split("/")[1] in READ_ONLY:
            raise ToolError(f"{name} is read-only: its keeper is Hana Kobayashi, hana.kobayashi@{DOMAIN}")
        return found

    def vacant(self, name: str) -> str:
        """The name from the root of a file that can be made. Raises `ToolError` where something is already."""
        found = self.changeable(name)
        if (self.root / found).exists():
            raise ToolError(f"{name} exists already: choose another name")
        if len(self.names()) >= MOST_FILES:
            raise ToolError(f"there are {MOST_FILES} files already: delete some first")
        return found

    def names(self) -> list[str]:
        """All files below `files/`, as an agent names them."""
        base = self.root / FILES
        return sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())


def said(suffix: str, data: bytes) -> Any:
    """What a file says, as JSON; a digest for one that is not read here, a word for one that cannot be."""
    try:
        reader = READERS.get(suffix)
        return reader(data) if reader else {"digest": digest(data)}
    except Exception as error:
        return {"unreadable": type(error).__name__, "digest": digest(data)}


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def repeatable(data: bytes, stamp: str) -> bytes:
    """An office file (zip) as its calls alone decide: without the machine's clock. `stamp`: ISO time of the last change."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            body = old.read(info)
            if info.filename == "docProps/core.xml":
                body = MODIFIED.sub(rb"\g<1>" + stamp.encode() + rb"Z\g<2>", body)
            entry = zipfile.ZipInfo(info.filename, ZIP_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            new.writestr(entry, body)
    return out.getvalue()


def of_docx(data: bytes) -> Any:
    from office_documents import lines_of

    return {"lines": lines_of(data, ".docx")}


def of_text(data: bytes) -> Any:
    return {"lines": data.decode().splitlines()}


def of_xlsx(data: bytes) -> Any:
    from office_sheets import cells_of

    return {"sheets": cells_of(data)}


def of_eml(data: bytes) -> Any:
    from office_mail import content_of

    return content_of(data)


def of_ics(data: bytes) -> Any:
    from office_calendar import events_of

    return {"events": events_of(data)}


def of_vcf(data: bytes) -> Any:
    from office_contacts import people_of

    return {"people": people_of(data)}


READERS: dict[str, Callable[[bytes], Any]] = {
    ".docx": of_docx,
    ".txt": of_text,
    ".md": of_text,
    ".xlsx": of_xlsx,
    ".eml": of_eml,
    ".ics": of_ics,
    ".vcf": of_vcf,
}
