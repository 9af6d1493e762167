"""Mail: a folder a mailbox, an .eml a mail, its identifier the file's name. What was read says `Status: RO`, as mbox does."""

from __future__ import annotations

import base64
import re
import unicodedata
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import format_datetime, getaddresses, parsedate_to_datetime
from pathlib import PurePosixPath
from typing import Any

from office_calendar import filled
from office_desk import DOMAIN, MAIL, OWNER, Desk, said

from simia.kit import ToolError, read, write

RULES = policy.default.clone(utf8=True, cte_type="8bit")
BOXES = ("inbox", "sent", "archive", "trash")
MOST_FOUND = 20
MOST_ATTACHED = 512 << 10  # bytes of one mail's attachments
ADDRESS = re.compile(r"[^@\s,;<>\"]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")


class Mails(Desk):
    """The tools of the mailbox. To read a mail does not mark it as read."""

    @read
    def list_mails(self, folder: str = "inbox", unread_only: bool = False, limit: int = 20) -> dict[str, Any]:
        found = [row for row in self._mails(folder) if row["unread"] or not unread_only]
        return {"folder": folder, "found": len(found), "mails": [brief(row) for row in found[: int(limit)]]}

    @read
    def search_mails(self, query: str, folder: str | None = None) -> dict[str, Any]:
        words = [plain(word) for word in re.findall(r"\w[\w.@-]*", query)]
        if not words:
            raise ToolError("the query has no words: give a word of the subject, the text or the sender")
        rows = [row for box in ([folder] if folder else BOXES) for row in self._mails(box)]
        found = [row for row in rows if all(word in plain(haystack(row)) for word in words)]
        return {"found": len(found), "mails": [brief(row) for row in found[:MOST_FOUND]]}

    @read
    def read_mail(self, mail_id: str) -> dict[str, Any]:
        row = dict(self._mail(mail_id))
        row["attachments"] = [{"name": name} for name in row.pop("attachments", {})]
        return {key: value for key, value in row.items() if key not in ("unread", "in_reply_to") and value}

    @write
    def send_mail(
        self,
        to: list[str],
        subject: str,
        body: str,
        cc: list[str] | None = None,
        attachments: list[str] | None = None,
    ) -> dict[str, Any]:
        if not subject.strip():
            raise ToolError("a subject is needed")
        return self._send(to, cc, subject, body, self._files(attachments))

    @write
    def reply_mail(
        self, mail_id: str, body: str, reply_all: bool = False, attachments: list[str] | None = None
    ) -> dict[str, Any]:
        row = self._mail(mail_id)
        others = [each for each in [*row["to"], *row.get("cc", [])] if each not in (OWNER, row["from"])]
        to = [row["from"]] if row["from"] != OWNER else row["to"]
        cc = others if reply_all and row["from"] != OWNER else []
        return self._send(to, cc, again("Re", row["subject"]), body, self._files(attachments), mail_id)

    @write
    def forward_mail(self, mail_id: str, to: list[str], body: str = "") -> dict[str, Any]:
        row = self._mail(mail_id)
        quoted = f"---- Forwarded: {row['from']}, {row['date']} ----\n{row['body']}"
        files = parts_of(self.load(f"{MAIL}/{row['folder']}/{mail_id}.eml"))
        return self._send(to, None, again("Fwd", row["subject"]), f"{body}\n\n{quoted}".strip(), files)

    @write
    def move_mail(self, mail_id: str, folder: str) -> dict[str, Any]:
        row = self._mail(mail_id)
        if row["folder"] == folder:
            raise ToolError(f"{mail_id} lies in {folder} already")
        data = self.load(f"{MAIL}/{row['folder']}/{mail_id}.eml")
        self.remove(f"{MAIL}/{row['folder']}/{mail_id}.eml")
        self.store(f"{MAIL}/{folder}/{mail_id}.eml", data)
        return {"mail_id": mail_id, "from_folder": row["folder"], "folder": folder}

    @write
    def save_attachment(self, mail_id: str, name: str, path: str) -> dict[str, Any]:
        row = self._mail(mail_id)
        files = parts_of(self.load(f"{MAIL}/{row['folder']}/{mail_id}.eml"))
        data = next((data for each, data in files if each == name), None)
        if data is None:
            there = ", ".join(each for each, _ in files) or "none at all"
            raise ToolError(f"{mail_id} has no attachment {name!r}: it has {there}")
        self.store(self.vacant(path), data)
        return {"mail_id": mail_id, "name": name, "path": path, "bytes": len(data)}

    # -- what several tools do --------------------------------------------------------------------------------------

    def _mails(self, folder: str) -> list[dict[str, Any]]:
        """The newest first."""
        start = f"{MAIL}/{folder}/"
        held = {name: row for name, row in self.memory["text"].items() if name.startswith(start)}
        rows = [
            {"mail_id": PurePosixPath(name).stem, "folder": folder, **row}
            for name, row in held.items()
            if name.endswith(".eml") and "unreadable" not in row
        ]
        return sorted(rows, key=lambda row: (row["date"], row["mail_id"]), reverse=True)

    def _mail(self, mail_id: str) -> dict[str, Any]:
        for box in BOXES:
            row = self.memory["text"].get(f"{MAIL}/{box}/{mail_id}.eml")
            if row is not None:
                if "unreadable" in row:
                    raise ToolError(f"{mail_id} cannot be read: its file is damaged")
                return {"mail_id": mail_id, "folder": box, **row}
        raise ToolError(f"there is no mail {mail_id}: see list_mails and search_mails")

    def _files(self, names: list[str] | None) -> list[tuple[str, bytes]]:
        found = [self.present(name) for name in names or []]
        return [(PurePosixPath(name).name, self.load(name)) for name in found]

    def _send(
        self,
        to: list[str],
        cc: list[str] | None,
        subject: str,
        body: str,
        files: list[tuple[str, bytes]],
        answers: str | None = None,
    ) -> dict[str, Any]:
        wrong = next((each for each in [*to, *(cc or [])] if not ADDRESS.fullmatch(each.strip())), None)
        if wrong is not None:
            raise ToolError(f"{wrong!r} is no address: see find_contact")
        if not body.strip():
            raise ToolError("the mail has no text")
        if sum(len(data) for _, data in files) > MOST_ATTACHED:
            raise ToolError(f"the attachments have more than {MOST_ATTACHED >> 10} KB: send fewer")
        taken = {path.stem for path in (self.root / MAIL).rglob("*.eml")}
        mail_id = self.new_id("MSG-", 4, taken=taken)
        to, cc = unique(to), [each for each in unique(cc or []) if each not in unique(to)]
        message = made(
            {
                "from": OWNER,
                "to": to,
                "cc": cc,
                "subject": subject,
                "date": self.now,
                "body": body,
                "in_reply_to": answers,
            },
            mail_id,
            files,
        )
        self.store(f"{MAIL}/sent/{mail_id}.eml", message)
        return {"mail_id": mail_id, "status": "sent", **filled(to=to, cc=cc, attachments=[name for name, _ in files])}


def made(mail: dict[str, Any], mail_id: str, files: list[tuple[str, bytes]], *, unread: bool = False) -> bytes:
    """The bytes of a mail, in UTF-8 as it is, with nothing in it that the machine decides."""
    message = EmailMessage(policy=RULES)
    message["From"] = mail["from"]
    message["To"] = ", ".join(mail["to"])
    if mail.get("cc"):
        message["Cc"] = ", ".join(mail["cc"])
    message["Subject"] = " ".join(mail["subject"].split())
    message["Date"] = format_datetime(mail["date"])
    message["Message-ID"] = f"<{mail_id}@{DOMAIN}>"
    if mail.get("in_reply_to"):
        message["In-Reply-To"] = f"<{mail['in_reply_to']}@{DOMAIN}>"
    message["Status"] = "O" if unread else "RO"
    text = mail["body"].strip().replace("\r\n", "\n").replace("\r", "\n") + "\n"
    message.set_content(text, charset="utf-8", cte="base64" if any(len(x) > 900 for x in text.split("\n")) else "8bit")
    for name, data in files:
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    if files:
        message.set_boundary(f"=_{mail_id}")
    return message.as_bytes(policy=RULES)


def content_of(data: bytes) -> dict[str, Any]:
    """What a mail says: addresses in the order of the alphabet, the text, and what each attachment says."""
    message = message_from_bytes(data, policy=policy.default)
    plain_part = message.get_body(("plain", "html"))  # type: ignore[attr-defined]
    reply = str(message.get("In-Reply-To", "")).strip("<> ").split("@")[0]
    day = parsedate_to_datetime(str(message["Date"])).strftime("%Y-%m-%dT%H:%M:%S")
    return {
        "from": first(message, "From"),
        "to": people(message, "To"),
        "subject": str(message.get("Subject", "")),
        "date": day,
        "body": plain_part.get_content().strip() if plain_part else "",
        "unread": "R" not in str(message.get("Status", "RO")),
        **filled(
            cc=people(message, "Cc"),
            in_reply_to=reply,
            attachments={name: said(PurePosixPath(name).suffix.lower(), body) for name, body in parts(message)},
        ),
    }


def parts_of(data: bytes) -> list[tuple[str, bytes]]:
    return parts(message_from_bytes(data, policy=policy.default))


def parts(message: Any) -> list[tuple[str, bytes]]:
    """Name and bytes of each attachment. A name is a file's name only, whatever path the sender put before it."""
    found = []
    for number, part in enumerate(message.iter_attachments(), start=1):
        name = re.split(r"[/\\]", part.get_filename() or "")[-1].strip() or f"attachment-{number}"
        content = part.get_payload(decode=True)
        found.append((name, content if isinstance(content, bytes) else base64.b64decode("")))
    return found


def people(message: Any, header: str) -> list[str]:
    return unique([address for _, address in getaddresses([str(each) for each in message.get_all(header, [])])])


def first(message: Any, header: str) -> str:
    return next(iter(people(message, header)), "")


def unique(given: list[str]) -> list[str]:
    return sorted({each.strip().casefold() for each in given if each.strip()})


def again(word: str, subject: str) -> str:
    return subject if subject.casefold().startswith(f"{word.casefold()}:") else f"{word}: {subject}"


def brief(row: dict[str, Any]) -> dict[str, Any]:
    found = {key: row[key] for key in ("mail_id", "folder", "from", "to", "subject", "date", "unread")}
    if row["folder"] == "sent":
        del found["from"]
    else:
        del found["to"]
    return {**found, "date": row["date"][:10], **filled(attachments=list(row.get("attachments", {})))}


def haystack(row: dict[str, Any]) -> str:
    return " ".join([row["subject"], row["body"], row["from"], *row["to"], *row.get("attachments", {})])


def plain(text: str) -> str:
    """Lower case, without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
