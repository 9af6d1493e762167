"""Contacts: one address book, `contacts/contacts.vcf`, in vCard 3.0. A person is known by the mail address."""

from __future__ import annotations

import re
from typing import Any

from office_calendar import filled
from office_desk import CONTACTS, DOMAIN, Desk
from office_mail import ADDRESS, plain

from simia.kit import ToolError, read, write

FIELDS = {"FN": "name", "ORG": "organisation", "TITLE": "role", "TEL": "phone"}
ESCAPES = (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\n", "\\n"))


class Contacts(Desk):
    """The tools of the address book."""

    @read
    def find_contact(self, query: str) -> dict[str, Any]:
        words = [plain(word) for word in re.findall(r"\w[\w.@'-]*", query)]
        if not words:
            raise ToolError("the query has no words: give a name, a firm or a role")
        found = [
            {"name": row["name"], "email": email, **{key: row[key] for key in row if key != "name"}}
            for email, row in self._people().items()
            if all(word in plain(" ".join([email, *row.values()])) for word in words)
        ]
        return {"found": len(found), "contacts": found[:20]}

    @write
    def add_contact(
        self, name: str, email: str, organisation: str | None = None, role: str | None = None, phone: str | None = None
    ) -> dict[str, Any]:
        email = email.strip().casefold()
        if not ADDRESS.fullmatch(email):
            raise ToolError(f"{email!r} is no address")
        if email in self._people():
            raise ToolError(
                f"{email} is in the contacts already, as {self._people()[email]['name']}: see update_contact"
            )
        if not name.strip():
            raise ToolError("a name is needed")
        row = {"name": name.strip(), **filled(organisation=organisation, role=role, phone=phone)}
        self._write_people({**self._people(), email: row})
        return {"email": email, **row}

    @write
    def update_contact(
        self, email: str, organisation: str | None = None, role: str | None = None, phone: str | None = None
    ) -> dict[str, Any]:
        email = email.strip().casefold()
        people = self._people()
        if email not in people:
            raise ToolError(f"{email} is not in the contacts: see find_contact")
        if email.endswith(f"@{DOMAIN}"):
            raise ToolError(f"{email} is staff: HR keeps their entries, hana.kobayashi@{DOMAIN}")
        row = {**people[email], **filled(organisation=organisation, role=role, phone=phone)}
        if row == people[email]:
            raise ToolError("nothing would change: give an organisation, a role or a phone number")
        self._write_people({**people, email: row})
        return {"email": email, **row}

    def _people(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = self.memory["text"].get(CONTACTS, {}).get("people", {})
        return found

    def _write_people(self, people: dict[str, dict[str, str]]) -> None:
        self.store(CONTACTS, cards(people))


def people_of(data: bytes) -> dict[str, dict[str, str]]:
    """Address → name and what else is known, in the order of the addresses."""
    found: dict[str, dict[str, str]] = {}
    text = re.sub(r"\r?\n[ \t]", "", data.decode())
    for card in re.findall(r"BEGIN:VCARD\r?\n(.*?)END:VCARD", text, re.S):
        row, email = {}, ""
        for line in card.splitlines():
            key, _, value = line.partition(":")
            key = key.split(";")[0].upper()
            if key == "EMAIL":
                email = value.strip().casefold()
            elif key in FIELDS:
                row[FIELDS[key]] = unescaped(value)
        if email and "name" in row:
            found[email] = row
    return dict(sorted(found.items()))


def cards(people: dict[str, dict[str, str]]) -> bytes:
    """The address book's bytes."""
    lines = []
    for email, row in sorted(people.items()):
        lines += ["BEGIN:VCARD", "VERSION:3.0", f"FN:{escaped(row['name'])}", f"N:{escaped(row['name'])};;;;"]
        lines.append(f"EMAIL;TYPE=INTERNET:{email}")
        lines += [f"{key}:{escaped(row[field])}" for key, field in FIELDS.items() if key != "FN" and row.get(field)]
        lines.append("END:VCARD")
    return ("\r\n".join(lines) + "\r\n").encode()


def escaped(text: str) -> str:
    for plain_text, code in ESCAPES:
        text = text.replace(plain_text, code)
    return text


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] in "nN" else found[1], text)
