"""A small folder in OfficeBench's form, all of it ours: every app and every check can be tried without the benchmark's data."""

import json
from pathlib import Path
from typing import Any

CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//simia//tests//EN
BEGIN:VEVENT
SUMMARY:standup
DTSTART:20240506T090000Z
DTEND:20240506T091500Z
LOCATION:Room 2
END:VEVENT
BEGIN:VEVENT
SUMMARY:review
DTSTART:20240506T150000
DTEND:20240506T160000
DESCRIPTION:of the quarter
END:VEVENT
END:VCALENDAR
"""
MAIL = """From: carl@example.com
To: ann@example.com
Subject: keys
Content-Type: multipart/mixed; boundary="=="
MIME-Version: 1.0

--==
Content-Type: text/plain; charset="us-ascii"

The keys of the archive are with Dora.
--==--
"""
FILES = {
    "calendar/Ann.ics": CALENDAR.replace("\n", "\r\n"),
    "emails/Ann/keys.eml": MAIL,
    "data/notes.txt": "buy paper\ncall Dora\n",
}


def subtask(task: str, *evaluation: dict[str, Any], user: str = "Ann") -> dict[str, Any]:
    when = {"date": "2024-05-06", "weekday": "Monday", "time": "08:30 AM"}
    return {"username": user, **when, "task": task, "evaluation": list(evaluation)}


def check(name: str, **args: Any) -> dict[str, Any]:
    return {"function": f"evaluate_{name}", "args": args}


SUBTASKS = {
    "1-1/0": subtask(
        "Put lunch with Dora into Ann's calendar, 6 May 2024, 12:00 to 13:00",
        check("contain", doc_type="ics", file="./calendar/Ann.ics", keywords=["lunch", "DTSTART:20240506T120000"]),
        check("calendar_no_overlap", username="Ann"),
    ),
    "1-1/1": subtask(
        "Who has the keys of the archive?",
        check("contain", doc_type="txt", file="data/answer.txt", keywords=["Dora"]),
    ),
    "1-1/2": subtask(
        "Delete notes.txt",
        check("file_not_exist", file="./data/notes.txt"),
    ),
    "2-1/0": subtask(
        "Make stock.xlsx with a row for paper, 12, and mail Dora about it",
        {**check("excel_cell_value", matches=[{"row": "1", "col": "2", "value": "12"}]), "file": "data/stock.xlsx"},
        check("excel_cell_comparator", file="data/stock.xlsx", matches=[{"row": 1, "col": 2, "comparator": "lambda x: int(x) > 10"}]),
        check("contain", doc_type="email", username="dora", keywords=["paper", "12"]),
    ),
    "3-1/0": subtask(
        "Write the notes into notes.docx and notes.pdf, and save the page as notes.png",
        check("contain", doc_type="docx", file="data/notes.docx", keywords=["buy paper"]),
        check("contain", doc_type="pdf", file="data/notes.pdf", keywords=["call Dora"]),
        check("file_exist", file="data/notes.png"),
        check("not_contain", doc_type="pdf", file="data/notes.pdf", keywords=["lunch"]),
    ),
}  # fmt: skip


def folder(root: Path) -> Path:
    """Write it below `root` and return it."""
    for name, content in SUBTASKS.items():
        group, _, number = name.partition("/")
        path = root / group / "subtasks" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        for place, text in FILES.items():
            file = root / group / "testbed" / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
    return root
