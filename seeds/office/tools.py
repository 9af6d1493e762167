"""The office of Tolvane: calendars, mail, documents, spreadsheets, files and contacts on real files.

Each app is a module of its own; here they become one world, with the file tools and the checks that tasks ask for. What
only a conversation can show, such as Maeve's yes, and what is confidential, is left to the policy; a refusal says what
would do.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from office_calendar import Calendars
from office_contacts import Contacts
from office_desk import CONFIDENTIAL, FILES, MAIL, READ_ONLY, said
from office_documents import Documents
from office_mail import Mails, plain
from office_sheets import Sheets

from simia.kit import ToolError, read, write

MOST_LISTED = 50


class Office(Calendars, Mails, Documents, Sheets, Contacts):
    """All tools of the agent."""

    @read
    def list_files(self, folder: str = "") -> dict[str, Any]:
        start = "" if folder.strip(" ./") == "" else f"{self.place(folder).partition('/')[2]}/"
        names = [name for name in self.names() if name.startswith(start)]
        if start and not (self.root / FILES / start).is_dir():
            raise ToolError(f"there is no folder {folder}: see list_files without a folder")
        rest = [name[len(start) :] for name in names]
        folders = sorted({name.split("/")[0] for name in rest if "/" in name})
        return {"folder": start.rstrip("/"), "folders": folders, "files": [name for name in rest if "/" not in name]}

    @read
    def search_files(self, query: str) -> dict[str, Any]:
        words = [plain(word) for word in re.findall(r"\w+", query)]
        if not words:
            raise ToolError("the query has no words: give a word of the file's name or folder")
        found = [name for name in self.names() if all(word in plain(name) for word in words)]
        return {"found": len(found), "files": [marked(name) for name in found[:MOST_LISTED]]}

    @write
    def move_file(self, path: str, folder: str) -> dict[str, Any]:
        return self._move(path, f"{folder.rstrip('/')}/{PurePosixPath(path).name}")

    @write
    def rename_file(self, path: str, name: str) -> dict[str, Any]:
        if "/" in name:
            raise ToolError(f"{name!r} is no file name: to put it elsewhere use move_file")
        return self._move(path, str(PurePosixPath(path).with_name(name.strip() or "?")))

    @write
    def copy_file(self, path: str, new_path: str) -> dict[str, Any]:
        source = self.present(path)
        self._same_kind(path, new_path)
        self.store(self.vacant(new_path), self.load(source))
        return {"path": path, "copy": new_path}

    @write
    def delete_file(self, path: str) -> dict[str, Any]:
        self.present(path)
        self.remove(self.changeable(path))
        return {"path": path, "status": "deleted"}

    def _move(self, path: str, new_path: str) -> dict[str, Any]:
        source = self.present(path)
        self.changeable(path)
        self._same_kind(path, new_path)
        target = self.vacant(new_path)
        data = self.load(source)
        self.remove(source)
        self.store(target, data)
        return {"path": path, "new_path": new_path}

    def _same_kind(self, path: str, new_path: str) -> None:
        old, new = PurePosixPath(path).suffix.lower(), PurePosixPath(new_path).suffix.lower()
        if old != new:
            raise ToolError(f"{new_path} must go on ending in {old or 'no suffix'}: a file's kind is not changed here")

    # -- checks of tasks ----------------------------------------------------------------------------------------------

    def check_mail_says(self, to: str, words: list[str], attached: list[str] | None = None) -> bool:
        """A mail sent in this episode to that address holds all the words, and those attachments."""
        before = {path.name for path in (self.before / MAIL / "sent").glob("*.eml")}
        for path in sorted((self.root / MAIL / "sent").glob("*.eml")):
            mail = said(".eml", path.read_bytes())
            if path.name not in before and to in [*mail.get("to", []), *mail.get("cc", [])]:
                held = set(mail.get("attachments", {}))
                if has_all(mail["body"], words) and held >= set(attached or []):
                    return True
        return False

    def check_document_says(self, path: str, words: list[str]) -> bool:
        """A document is there and holds all the words."""
        file = self.root / FILES / path
        content = said(file.suffix.lower(), file.read_bytes()) if file.is_file() else {}
        return has_all("\n".join(content.get("lines", [])), words)

    def check_mailed_nothing(self, words: list[str]) -> bool:
        """No mail sent in this episode holds any of the words."""
        before = {path.name for path in (self.before / MAIL / "sent").glob("*.eml")}
        sent = [path for path in (self.root / MAIL / "sent").glob("*.eml") if path.name not in before]
        texts = [normal(str(said(".eml", path.read_bytes()))) for path in sent]
        return not any(normal(word) in text for text in texts for word in words)


def has_all(text: str, words: list[str]) -> bool:
    """Each of them stands there as a whole, whatever its case, accents and grouping of digits."""
    held = normal(text)
    return all(re.search(rf"(?<![\w.,]){re.escape(normal(word))}(?![\w]|[.,]\d)", held) for word in words)


def normal(text: str) -> str:
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", plain(text))
    text = re.sub(r"(\d\.\d*?)0+(?!\d)", r"\1", text)
    return " ".join(re.sub(r"(?<=\d)\.(?!\d)", "", text).split())


def marked(name: str) -> dict[str, Any]:
    top = name.split("/")[0]
    found: dict[str, Any] = {"path": name}
    if top in CONFIDENTIAL:
        found["confidential"] = True
    if top in READ_ONLY:
        found["read_only"] = True
    return found
