"""The office pack: its tools keep their word on real files, and nothing hostile gets through them."""

from __future__ import annotations

import filecmp
import inspect
import io
import itertools
import json
import random
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.tool_tests import find_missing_value
from simia.envs.play.random_arguments import Sampler
from simia.sandbox.inside.files import read_files
from simia.task import Action
from simia.tool_test import ToolTest
from tests.packs.office import PACK, ROOT, SPECS, call, marks, office, opened, python, said

Opened = Callable[..., Any]
READ_ALONE = {"list_calendars"}  # it takes nothing, so there is nothing to refuse


@pytest.fixture(scope="module")
def cls(environments: Callable[[str], Path]) -> Iterator[Any]:
    with office() as found:
        yield found


@pytest.fixture
def world(cls: Any, tmp_path: Path) -> Any:
    return opened(cls, tmp_path / "root")


def do(world: Any, name: str, index: int = 0, /, **arguments: Any) -> Any:
    """A call that must succeed."""
    result, refusal = call(world, Action(name=name, arguments=arguments), index)
    assert refusal is None, refusal
    return result


def refused(world: Any, name: str, /, **arguments: Any) -> str:
    before = read_files(world.root)
    refusal = call(world, Action(name=name, arguments=arguments), 0)[1]
    assert refusal
    assert read_files(world.root) == before, "a refusal leaves the files alone"
    return refusal


# -- the files that every episode starts from ---------------------------------------------------------------------------


@pytest.mark.usefixtures("environments")
def test_the_firm_is_what_its_tables_say(tmp_path: Path) -> None:
    """`start/` is the generator's, to the byte, and small."""
    subprocess.run([python(), ROOT / "firm.py", tmp_path], check=True, capture_output=True)
    made, kept = read_files(tmp_path, modes=False), read_files(ROOT / "start", modes=False)
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name] != kept[name]] == []
    assert sum(len(data) for _, _, data in kept.values()) < 300_000
    whole = sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert whole < 1_000_000


def test_the_files_are_real_and_hold_together(world: Any) -> None:
    content = said(world)
    assert not [name for name, each in content["files"].items() if isinstance(each, dict) and "unreadable" in each]
    kinds = Counter(Path(name).suffix for name in content["files"])
    assert set(kinds) == {".docx", ".eml", ".ics", ".md", ".pdf", ".txt", ".vcf", ".xlsx"}
    events: dict[str, Any] = {}
    for name, each in content["memory"]["text"].items():
        for key, event in each.get("events", {}).items():
            assert events.setdefault(key, event) == event, f"{key} is told otherwise in {name}"
    staff = content["memory"]["text"]["contacts/contacts.vcf"]["people"]
    people = {person for event in events.values() for person in [event["organizer"], *event.get("attendees", [])]}
    assert people <= staff.keys()
    assert all(email.endswith(".example.com") for email in staff)
    for room in ("maple", "cedar", "fern", "attic", "maeve.obrien"):
        held = sorted(
            (e["start"], e["end"]) for e in content["memory"]["text"][f"calendar/{room}.ics"]["events"].values()
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(held)), f"{room} clashes"


def test_seeds_and_tools_need_no_office_library() -> None:
    code = (
        "import sys; from simia.pack import Pack; p = Pack.load('office'); print(len(p.seeds), len(p.tools), len(p.tasks));"
        "assert not {'openpyxl', 'docx', 'icalendar', 'pypdf'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stdout.split()] == [len(PACK.seeds), len(PACK.tools), len(PACK.tasks)]


# -- the tools against what is written of them --------------------------------------------------------------------------


def test_tools_json_agrees_with_the_methods(cls: Any) -> None:
    assert marks(cls).keys() == SPECS.keys()
    assert len(SPECS) >= 20
    for name, spec in SPECS.items():
        parameters = dict(inspect.signature(getattr(cls, name)).parameters)
        parameters.pop("self")
        assert list(parameters) == list(spec.parameters["properties"]), name
        required = [key for key, p in parameters.items() if p.default is p.empty]
        assert required == spec.parameters["required"], name
        assert spec.parameters["additionalProperties"] is False, name
        assert all(each.get("description") for each in spec.parameters["properties"].values()), name


def test_each_tool_has_tests_of_success_and_of_refusal(cls: Any) -> None:
    assert len(PACK.tests) >= 60
    seen = Counter((row.call.name, row.expect.outcome) for row in PACK.tests)
    followed = {action.name for row in PACK.tests for action in row.before if row.expect.outcome == "success"}
    for name, (_, writes) in marks(cls).items():
        assert seen[name, "success"] or name in followed, name
        assert seen[name, "refusal"] or name in READ_ALONE, name
        if writes:
            assert (
                name in followed | {"send_mail", "reply_mail", "forward_mail", "cancel_event"} or seen[name, "success"]
            )


@pytest.mark.parametrize("row", PACK.tests, ids=lambda row: row.name)
def test_a_row_of_tests_jsonl(row: ToolTest, cls: Any, tmp_path: Path) -> None:
    world = opened(cls, tmp_path / "root", row.initial)
    for index, action in enumerate(row.before):
        assert call(world, action, index)[1] is None
    wrong = SPECS[row.call.name].argument_errors(row.call.arguments)
    if wrong:
        assert row.expect.outcome == "refusal"
        return
    before = read_files(world.root)
    result, refusal = call(world, row.call, len(row.before))
    if row.expect.outcome == "refusal":
        assert row.expect.error
        assert row.expect.error in (refusal or "")
    else:
        assert refusal is None
        assert row.expect.result is None or find_missing_value(row.expect.result, result) is None
    if refusal or not marks(cls)[row.call.name][1]:
        assert read_files(world.root) == before
    else:
        assert read_files(world.root) != before, "a write shows"


@pytest.mark.parametrize("seed", range(6))
def test_any_calls_that_fit_the_schemas(seed: int, cls: Any, world: Any, tmp_path: Path) -> None:
    """Nothing but a declared refusal, a look-up changes nothing, and what is remembered is what the files say."""
    source = random.Random(seed)
    sampler = Sampler(source)
    known: dict[str, list[Any]] = {
        "path": [*world.names(), "notes/new.docx", "../x.txt", "a/b.xlsx"], "folder": ["inbox", "trash", "drafts", "new"],
        "mail_id": ["MSG-3101", "MSG-3109", "MSG-3115", "MSG-3001"], "event_id": ["EVT-414", "EVT-455", "EVT-416", "EVT-424"],
        "calendar": ["maeve.obrien", "fern"], "start": ["2025-09-26T15:00", "2025-09-16T23:50"], "end": ["2025-09-26T16:00"],
        "date": ["2025-09-22"], "attachments": [["office/rota.xlsx"], []], "new_path": ["x/y.txt", "notes/z.xlsx"],
        "column": ["A", "Who", "Stock"], "cells": [[{"cell": "B2", "value": 5}]], "sheet": ["Budget", "New"], "range": ["A1:C3"],
        "name": ["price-list-2026.xlsx", "new.txt"], "location": ["Fern", "online"], "calendars": [["maeve.obrien", "fern"]],
    }  # fmt: skip
    outcomes: Counter[str] = Counter()
    for index in range(40):
        name = source.choice(sorted(SPECS))
        arguments = sampler.object(SPECS[name].parameters)
        arguments |= {key: source.choice(known[key]) for key in arguments if key in known and source.random() < 0.8}
        if SPECS[name].argument_errors(arguments):
            continue
        action, before = Action(name=name, arguments=arguments), read_files(world.root)
        _, refusal = call(world, action, index)
        after = read_files(world.root)
        if refusal is not None:
            assert refusal == refusal.strip() != ""
            assert after == before, action
        if not marks(cls)[name][1]:
            assert after == before, action
        outcomes["refused" if refusal else "done"] += 1
    assert outcomes["refused"]
    assert outcomes["done"]
    remembered = json.dumps(world.memory, sort_keys=True)
    world.ready()
    assert json.dumps(world.memory, sort_keys=True) == remembered
    assert not [name for name, each in said(world)["files"].items() if isinstance(each, dict) and "unreadable" in each]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


# -- bytes repeat ---------------------------------------------------------------------------------------------------------

WRITES = [
    ("create_document", {"path": "notes/a.docx", "text": "# A\n- b\nc"}),
    ("append_document", {"path": "projects/quay-house/brief.docx", "text": "More."}),
    ("set_cells", {"path": "office/keys.xlsx", "cells": [{"cell": "D4", "value": "2025-09-15"}]}),
    ("create_workbook", {"path": "finance/n.xlsx", "sheet": "S", "rows": [["A"], [1.5], [None], [True]]}),
    ("create_event", {"title": "Zoë; plan, \\ b", "start": "2025-09-26T15:00", "end": "2025-09-26T16:00", "notes": "a\nb"}),
    ("send_mail", {"to": ["zoe.adeyemi@tolvane.example.com"], "subject": "Ž", "body": "€5\n" + "x" * 1200, "attachments": ["office/rota.xlsx"]}),
    ("add_contact", {"name": "Lena\\, D", "email": "l@x.example.com", "role": "a;b"}),
]  # fmt: skip


def test_the_same_calls_give_the_same_bytes(cls: Any, tmp_path: Path) -> None:
    worlds = [opened(cls, tmp_path / name) for name in ("one", "two")]
    for world in worlds:
        for index, (name, arguments) in enumerate(WRITES):
            do(world, name, index, **arguments)
    assert read_files(worlds[0].root) == read_files(worlds[1].root)
    assert filecmp.dircmp(worlds[0].root, ROOT / "start").diff_files == []


def test_the_number_of_a_call_changes_no_more_than_times_and_identifiers(cls: Any, tmp_path: Path) -> None:
    early, late = (opened(cls, tmp_path / name) for name in ("early", "late"))
    for index, (name, arguments) in enumerate(WRITES):
        do(early, name, index, **arguments)
        do(late, name, index + 7, **arguments)
    mine, other = said(early), said(late)
    for name, each in mine["files"].items():
        if name.startswith("files/"):
            assert other["files"][name] == each, name


def test_texts_come_back_as_they_were_given(world: Any) -> None:
    for index, (name, arguments) in enumerate(WRITES):
        do(world, name, index, **arguments)
    event = do(world, "list_events", calendar="maeve.obrien", date="2025-09-26")["events"][-1]
    assert event["title"] == "Zoë; plan, \\ b"
    assert do(world, "get_event", event_id=event["event_id"])["notes"] == "a\nb"
    (mail,) = do(world, "search_mails", query="Ž", folder="sent")["mails"]
    assert do(world, "read_mail", mail_id=mail["mail_id"])["body"] == "€5\n" + "x" * 1200
    assert do(world, "find_contact", query="lena")["contacts"][0]["role"] == "a;b"
    assert do(world, "read_cells", path="finance/n.xlsx")["rows"] == [["A"], [1.5], [None], [True]]


# -- each app --------------------------------------------------------------------------------------------------------------


def test_an_event_lies_with_all_who_take_part_and_goes_from_all(world: Any) -> None:
    def holders() -> set[str]:
        held = world.memory["text"].items()
        return {name for name, each in held if made["event_id"] in each.get("events", {})}

    people = ["zoe.adeyemi@tolvane.example.com", "ingrid.bauer@tessaro.example.com"]
    made = do(
        world,
        "create_event",
        title="T",
        start="2025-09-26T15:00",
        end="2025-09-26T15:30",
        attendees=people,
        location="fern",
    )
    assert holders() == {f"calendar/{name}.ics" for name in ("maeve.obrien", "zoe.adeyemi", "fern")}
    do(world, "update_event", 1, event_id=made["event_id"], location="Attic", remove_attendees=[people[0]])
    assert holders() == {f"calendar/{name}.ics" for name in ("maeve.obrien", "attic")}
    do(world, "cancel_event", 2, event_id=made["event_id"])
    assert holders() == set()


def test_free_time_is_free(world: Any) -> None:
    """Every time that is offered can be booked, and what lies between two offers cannot."""
    people = ["zoe.adeyemi@tolvane.example.com", "soren.lindqvist@tolvane.example.com"]
    free = do(world, "find_free_time", calendars=["maeve.obrien", *people], date="2025-09-17", minutes=30, days=8)[
        "free"
    ]
    assert len(free) > 8
    for index, each in enumerate(free):
        do(world, "create_event", index, title="T", start=each["start"], end=each["end"], attendees=people)
    again = do(world, "find_free_time", 90, calendars=["maeve.obrien", *people], date="2025-09-17", minutes=30, days=8)
    assert again["free"] == []


def test_attachments_travel_whole(world: Any) -> None:
    mail = do(
        world,
        "send_mail",
        to=["a@b.example.com"],
        subject="s",
        body="b",
        attachments=["projects/quay-house/budget.xlsx"],
    )
    do(world, "save_attachment", 1, mail_id=mail["mail_id"], name="budget.xlsx", path="notes/back.xlsx")
    assert world.load("files/notes/back.xlsx") == world.load("files/projects/quay-house/budget.xlsx")
    passed_on = do(world, "forward_mail", 2, mail_id=mail["mail_id"], to=["c@d.example.com"], body="Look.")
    do(world, "save_attachment", 3, mail_id=passed_on["mail_id"], name="budget.xlsx", path="notes/third.xlsx")
    assert world.load("files/notes/third.xlsx") == world.load("files/notes/back.xlsx")
    assert do(world, "read_mail", mail_id=passed_on["mail_id"])["body"].startswith(
        "Look.\n\n---- Forwarded: maeve.obrien@"
    )


def test_to_all_is_to_all_but_maeve(cls: Any, tmp_path: Path) -> None:
    text = (
        "From: Zoë <zoe.adeyemi@tolvane.example.com>\nTo: maeve.obrien@tolvane.example.com, X <x@y.example.com>\n"
        "Cc: z@y.example.com\nSubject: Hello\nDate: Mon, 15 Sep 2025 10:00:00 -0000\nStatus: O\n\nHi\n"
    )
    world = opened(cls, tmp_path / "root", {"files": {"mail/inbox/MSG-4000.eml": {"text": text}}})
    answer = do(world, "reply_mail", mail_id="MSG-4000", body="Yes.", reply_all=True)
    assert answer["to"] == ["zoe.adeyemi@tolvane.example.com"]
    assert answer["cc"] == ["x@y.example.com", "z@y.example.com"]


def test_a_sort_keeps_rows_together_and_days_days(world: Any) -> None:
    path = "projects/quay-house/snag-list.xlsx"
    before = do(world, "read_cells", path=path)["rows"]
    do(world, "sort_rows", 1, path=path, column="Due")
    after = do(world, "read_cells", 2, path=path)["rows"]
    assert after == [before[0], *sorted(before[1:], key=lambda row: row[5])]


# -- hostile ---------------------------------------------------------------------------------------------------------------

OUT = ["../mail/inbox/MSG-3101.eml", "/etc/passwd", "a/../../x.txt", "..", "~/../../x.txt", ".hidden", "a\\..\\b.txt", "a\0b.txt", "", "x/./../../y.txt"]  # fmt: skip


@pytest.mark.parametrize("name", OUT)
def test_no_path_leads_out(name: str, world: Any, tmp_path: Path) -> None:
    for tool, arguments in (
        ("read_document", {"path": name}),
        ("create_document", {"path": name, "text": "x"}),
        ("copy_file", {"path": "notes/maeve.md", "new_path": name}),
        ("move_file", {"path": "notes/maeve.md", "folder": name}),
        ("delete_file", {"path": name}),
        ("save_attachment", {"mail_id": "MSG-3109", "name": "stair-notes.txt", "path": name}),
        ("send_mail", {"to": ["a@b.example.com"], "subject": "s", "body": "b", "attachments": [name]}),
    ):
        refused(world, tool, **arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


def test_a_link_that_leads_out_is_not_followed(world: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (world.root / "files/notes/link.txt").symlink_to(tmp_path / "secret.txt")
    (world.root / "files/out").symlink_to(tmp_path)
    for name in ("notes/link.txt", "out/secret.txt"):
        assert "outside" in refused(world, "read_document", path=name)
    refused(world, "create_document", path="out/new.txt", text="x")


def test_an_attachment_is_named_by_its_last_part(cls: Any, tmp_path: Path) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "x@y.example.com", "maeve.obrien@tolvane.example.com", "Files"
    message["Date"] = "Mon, 15 Sep 2025 10:00:00 -0000"
    message.set_content("Here.")
    for name in ("../../../etc/cron.d/job.txt", "..\\..\\boot.txt", "/abs/olute.txt", ""):
        message.add_attachment(b"x", maintype="application", subtype="octet-stream", filename=name)
    initial = {"files": {"mail/inbox/MSG-4001.eml": {"text": message.as_string()}}}
    world = opened(cls, tmp_path / "root", initial)
    names = [each["name"] for each in do(world, "read_mail", mail_id="MSG-4001")["attachments"]]
    assert names == ["job.txt", "boot.txt", "olute.txt", "attachment-4"]
    do(world, "save_attachment", mail_id="MSG-4001", name="job.txt", path="notes/job.txt")
    assert "has no attachment" in refused(
        world, "save_attachment", mail_id="MSG-4001", name="../job.txt", path="notes/y.txt"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


def broken_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("word/document.xml", "<w:document")
    return out.getvalue()


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", b"\0" * 100, broken_zip()], ids=["empty", "cut", "zeros", "no xml"]
)
def test_a_broken_file_is_said_to_be_one(data: bytes, world: Any) -> None:
    for suffix, tool, more in (
        ("docx", "read_document", {}),
        ("docx", "append_document", {"text": "x"}),
        ("docx", "replace_in_document", {"old": "a", "new": "b"}),
        ("pdf", "read_document", {}),
        ("xlsx", "read_cells", {}),
        ("xlsx", "append_rows", {"rows": [[1]]}),
        ("xlsx", "sort_rows", {"column": "A"}),
    ):
        (world.root / f"files/notes/bad.{suffix}").write_bytes(data)
        assert "damaged" in refused(world, tool, path=f"notes/bad.{suffix}", **more)
    (world.root / "mail/inbox/MSG-4002.eml").write_bytes(data)
    (world.root / "calendar/fern.ics").write_bytes(data)
    world.ready()
    refused(world, "read_mail", mail_id="MSG-4002")
    assert do(world, "list_mails")["found"] > 20


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_cells", {"range": "A1:XFD1048576"}),
        ("read_cells", {"range": "A1:AZ2000"}),
        ("set_cells", {"cells": [{"cell": "AZ9999", "value": 1}]}),
        ("set_cells", {"cells": [{"cell": "A1", "value": "=1+1"}]}),
        ("set_cells", {"cells": [{"cell": "A1", "value": "a\x01b"}]}),
        ("append_rows", {"rows": [[1] * 60]}),
    ],
)
def test_huge_or_odd_cells_are_refused(tool: str, arguments: Any, world: Any) -> None:
    refused(world, tool, path="office/rota.xlsx", **arguments)


def test_a_file_or_mail_can_only_grow_so_large(world: Any) -> None:
    text = "".join(random.Random(0).choices("abcdefgh \n", k=600_000))
    refusals = [
        call(world, Action(name="append_document", arguments={"path": "notes/maeve.md", "text": text}), 0)[1]
        for _ in range(5)
    ]
    assert refusals[:3] == [None] * 3
    assert "2,097,152 are the most" in (refusals[3] or "")
    more = {"to": ["a@b.example.com"], "subject": "s", "body": "b", "attachments": ["notes/maeve.md"]}
    assert "attachments have more than" in refused(world, "send_mail", **more)
