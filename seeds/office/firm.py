"""Writes the files that every episode starts from: `python firm.py FOLDER`, with the interpreter of the `office` recipe.

No part of the world: it is needed only when the firm itself changes, and then writes `start/` anew, byte for byte the same
for the same tables (`firm_people.py`, `firm_mails.py`, `firm_files.py`). The firm and its people are made up.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import types
from datetime import datetime
from pathlib import Path
from typing import Any

from firm_files import DOCUMENTS, PDFS, SHEETS, TEXTS
from firm_mails import MAILS
from firm_people import EVENTS, OTHERS, ROOMS, STAFF

HERE = "tolvane.example.com"
STAMP = datetime(2025, 9, 15, 17, 0)


def everything() -> dict[str, bytes]:
    """Name → bytes of every file of the firm."""
    found = {"contacts/contacts.vcf": contacts()}
    found |= calendars()
    found |= mails()
    for name, lines in DOCUMENTS.items():
        found[f"files/{name}"] = document(lines)
    for name, sheets in SHEETS.items():
        found[f"files/{name}"] = workbook(sheets)
    for name, lines in PDFS.items():
        found[f"files/{name}"] = pdf(lines)
    for name, text in TEXTS.items():
        found[f"files/{name}"] = (text.strip("\n") + "\n").encode()
    return found


def contacts() -> bytes:
    from office_contacts import cards

    people = {
        f"{key}@{HERE}": {"name": name, "organisation": "Tolvane", "role": role, "phone": phone}
        for key, name, role, phone in STAFF
    }
    people |= {
        email: {"name": name, "organisation": firm, "role": role, **({"phone": phone} if phone else {})}
        for email, name, firm, role, phone in OTHERS
    }
    return cards(people)


def calendars() -> dict[str, bytes]:
    from icalendar import Calendar
    from office_calendar import component

    books: dict[str, Any] = {}
    for name in [*(row[0] for row in STAFF), *ROOMS]:
        book = books[name] = Calendar()
        book.add("prodid", "-//Tolvane//Office//EN")
        book.add("version", "2.0")
        book.add("x-wr-calname", name)
    for key, title, start, end, organizer, attendees, place, notes in EVENTS:
        people = [each if "@" in each else f"{each}@{HERE}" for each in attendees.split()]
        event = {"event_id": key, "title": title, "start": start, "organizer": f"{organizer}@{HERE}"}
        event |= {"end": f"{start[:11]}{end}" if "T" in start else end, "all_day": "T" not in start}
        event |= {"attendees": sorted(people), "location": place, "notes": notes}
        for name in dict.fromkeys([organizer, *attendees.split(), place.casefold()]):
            if name in books:
                books[name].add_component(component(event, STAMP))
    return {f"calendar/{name}.ics": book.to_ical() for name, book in books.items()}


def mails() -> dict[str, bytes]:
    from office_mail import made

    found = {}
    for mail in MAILS:
        files = [(name, attached(name, lines)) for name, lines in mail.get("attachments", {}).items()]
        row = {**mail, "date": datetime.fromisoformat(mail["date"])}
        row["to"] = [each if "@" in each else f"{each}@{HERE}" for each in mail.get("to", "maeve.obrien").split()]
        row["cc"] = [each if "@" in each else f"{each}@{HERE}" for each in mail.get("cc", "").split()]
        row["from"] = mail["from"] if "@" in mail["from"] else f"{mail['from']}@{HERE}"
        data = made(row, mail["id"], files, unread=mail.get("unread", False))
        found[f"mail/{mail.get('folder', 'inbox')}/{mail['id']}.eml"] = data
    return found


def attached(name: str, lines: Any) -> bytes:
    if name.endswith(".pdf"):
        return pdf(lines)
    if name.endswith(".docx"):
        return document(lines)
    return workbook(lines) if name.endswith(".xlsx") else ("\n".join(lines) + "\n").encode()


def document(lines: Any) -> bytes:
    """A line is a paragraph; a list of lists is a table."""
    from office_documents import blank, opened, saved, styled

    made = opened(blank(STAMP.isoformat()))
    for line in lines:
        if isinstance(line, str):
            styled(made.add_paragraph(), line)
        else:
            table = made.add_table(len(line), len(line[0]))
            for row, values in zip(table.rows, line, strict=True):
                for cell, value in zip(row.cells, values, strict=True):
                    cell.text = str(value)
    return saved(made, STAMP.isoformat())


def workbook(sheets: dict[str, list[list[Any]]]) -> bytes:
    from office_sheets import fill, saved
    from openpyxl import Workbook

    book = Workbook()
    book.properties.created = STAMP
    book.remove(book.active)
    for title, rows in sheets.items():
        page = book.create_sheet(title)
        for number, row in enumerate(rows, start=1):
            fill(page, number, row)
    return saved(book, STAMP.isoformat())


def pdf(lines: list[str]) -> bytes:
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    page = Canvas(out, pagesize=A4, invariant=1)
    for number, line in enumerate(lines):
        page.setFont("Helvetica-Bold" if number == 0 else "Helvetica", 14 if number == 0 else 11)
        page.drawString(60, 780 - 20 * number, line)
    page.save()
    return out.getvalue()


def main(folder: Path) -> None:
    for name, data in everything().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    if importlib.util.find_spec("orjson") is None:  # the recipe has no more of simia's own needs than its kit
        package = types.ModuleType("simia")
        package.__path__ = [str(Path(__file__).parents[2] / "simia")]
        sys.modules["simia"] = package
    main(Path(sys.argv[1]))
