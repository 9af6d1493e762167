"""The world in its sandbox: the benchmark's words, files that are real, bytes that repeat, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.errors import Code
from simia.importers import officebench
from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.task import Task
from simia.trajectory import digest
from tests.importers.officebench import small
from tests.importers.officebench.play import LIMITS, Call, in_app, played, say, value, walls

pytestmark = [walls, pytest.mark.usefixtures("environments")]
OBSERVATIONS = Path(__file__).parent / "observations.jsonl"
D = "/testbed/data"


def opened(app: str) -> Call:
    return "system.switch_app", {"target_app": app}


STOCK = f"{D}/stock.xlsx"
SOLUTIONS: dict[str, list[Call]] = {
    "1-1/0": [
        opened("calendar"),
        ("calendar.create_event", {"user": "Ann", "summary": "lunch", "time_start": "2024-05-06 12:00:00", "time_end": "2024-05-06 13:00:00"}),
    ],
    "1-1/1": [opened("email"), ("email.read_email", {"username": "Ann", "email_id": "keys"}), ("system.finish_task", {"answer": "Dora"})],
    "1-1/2": [opened("shell"), ("shell.command", {"command": "rm /testbed/data/notes.txt"}), ("system.finish_task", {})],
    "2-1/0": [
        opened("excel"),
        ("excel.create_new_file", {"file_path": STOCK}),
        ("excel.set_cell", {"file_path": STOCK, "row_idx": 1, "column_idx": 1, "text": "paper"}),
        ("excel.set_cell", {"file_path": STOCK, "row_idx": 1, "column_idx": 2, "text": "12"}),
        opened("email"),
        ("email.send_email", {"sender": "Ann", "recipient": "Dora", "subject": "paper", "content": "There are 12."}),
        ("system.finish_task", {}),
    ],
    "3-1/0": [
        opened("shell"),
        ("shell.command", {"command": "cat /testbed/data/notes.txt"}),
        opened("word"),
        ("word.create_new_file", {"file_path": f"{D}/notes.docx"}),
        ("word.write_to_file", {"file_path": f"{D}/notes.docx", "contents": "buy paper\ncall Dora"}),
        ("word.convert_to_pdf", {"word_file_path": f"{D}/notes.docx", "pdf_file_path": f"{D}/notes.pdf"}),
        opened("pdf"),
        ("pdf.convert_to_image", {"pdf_file_path": f"{D}/notes.pdf", "image_file_path": f"{D}/notes.png"}),
        ("system.finish_task", {}),
    ],
}  # fmt: skip


async def test_solutions_score_one_nothing_scores_none_and_all_repeats(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        for task in environment.tasks:
            idle = await played(environment, task, [])
            assert value(idle) == 0, (task.id, idle.reward)
            first, second = [await played(environment, task, SOLUTIONS[task.id]) for _ in range(2)]
            assert value(first) == 1, (task.id, first.reward)
            assert digest(first.evidence) == digest(second.evidence), task.id
            assert [m.text for m in first.messages] == [m.text for m in second.messages]
            short = await played(
                environment, task, [c for c in SOLUTIONS[task.id][:-2] if c[0] != "system.finish_task"]
            )
            assert value(short) == 0, (task.id, short.reward)


async def test_replies_are_the_benchmarks(small_pack: Path) -> None:
    """The texts were recorded from the benchmark's own code on the same files; a reason may follow one that gives none."""
    rows = [json.loads(line) for line in OBSERVATIONS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 40
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("1-1/0")
        try:
            for row in rows:
                said = await in_app(episode, row["call"], **row["arguments"])
                bare = row["reply"].startswith("Failed to") and "\n" not in said
                assert said == row["reply"] or (bare and said.startswith(f"{row['reply']} (")), row["call"]
        finally:
            await episode.close()


async def test_only_the_open_apps_actions_are_there(small_pack: Path) -> None:
    malformed = "Malformed action! You must follow the given action format! Try a different action."
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("1-1/0")
        assert (await say(episode, "calendar.list_events", username="Ann")).startswith(malformed)
        opened = await say(episode, "system.switch_app", target_app="word")
        assert opened.startswith("Successfully switched to app: word\n")
        listed = [
            action
            for action in ("convert_to_pdf", "create_new_file", "read_file", "write_to_file")
            if f" - {action} (" in opened
        ]
        assert len(listed) == 4
        said = await say(episode, "calendar.list_events", username="Ann")
        assert said == f"{malformed} (calendar.list_events: the open app is word, so switch to calendar first.)"
        refused = await say(episode, "system.switch_app", target_app="browser")
        assert "target_app" in refused
        assert await say(episode, "system.finish_task", answer='It\'s "done"') == "Task finished"
        assert episode.end is not None
        assert episode.end.code is Code.FINISHED
        assert episode.evidence is not None
        assert '{"text": "Its done\\n"}' in json.dumps(episode.evidence["changes"])
        await episode.close()


async def test_bugs_of_the_benchmark_that_are_not_here(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("1-1/0")
        delete = {"user": "Ann", "summary": "standup"}
        assert (
            await in_app(episode, "calendar.delete_event", **delete)
            == "Successfully delete an event named standup from Ann's calendar."
        )
        assert (
            await in_app(episode, "calendar.delete_event", **delete)
            == "Failed to delete an event named standup from Ann's calendar. (there is no such event)"
        )
        assert "standup" not in await in_app(episode, "calendar.list_events", username="Ann")
        # Looking makes no files.
        await in_app(episode, "calendar.list_events", username="Zoe")
        await in_app(episode, "email.list_emails", username="Zoe")
        state = await episode.world.state()  # type: ignore[union-attr]
        assert not [name for name in state["files"] if "Zoe" in name]
        # A document is not emptied by being created again, and quotes stay.
        letter = f"{D}/letter.docx"
        await in_app(episode, "word.create_new_file", file_path=letter)
        await in_app(episode, "word.write_to_file", file_path=letter, contents='Ann\'s "plan"')
        assert await in_app(episode, "word.create_new_file", file_path=letter) == f"File {letter} already exists"
        assert 'Ann\'s "plan"' in await in_app(episode, "word.read_file", file_path=letter)
        # The PDF lies where it was asked for.
        said = await in_app(episode, "word.convert_to_pdf", word_file_path=letter, pdf_file_path=f"{D}/other.pdf")
        assert said == f"Successfully convert {letter} to {D}/other.pdf (plain text and tables, by reportlab)"
        assert 'Ann\'s "plan"' in await in_app(episode, "pdf.read_file", pdf_file_path=f"{D}/other.pdf")
        # A conversion that fails says so: a text file is no document, whatever its name.
        await in_app(
            episode, "shell.command", command=f"cp {D}/notes.txt {D}/broken.docx; cp {D}/notes.txt {D}/broken.pdf"
        )
        failed = await in_app(
            episode, "word.convert_to_pdf", word_file_path=f"{D}/broken.docx", pdf_file_path=f"{D}/broken2.pdf"
        )
        assert failed.startswith(f"Failed to convert {D}/broken.docx to {D}/broken2.pdf")
        assert (
            await in_app(episode, "pdf.convert_to_word", pdf_file_path=f"{D}/broken.pdf", word_file_path=f"{D}/b.docx")
        ).startswith("Failed: ")
        assert (
            await in_app(episode, "pdf.convert_to_image", pdf_file_path=f"{D}/broken.pdf", image_file_path=f"{D}/b.jpg")
        ).startswith("Failed: ")
        # Mails of one subject do not replace each other.
        for text in ("one", "two"):
            await in_app(episode, "email.send_email", sender="Ann", recipient="Carl", subject="hello", content=text)
        listed = await in_app(episode, "email.list_emails", username="Carl")
        assert "Email ID: hello.eml" in listed
        assert "Email ID: hello (2).eml" in listed
        await episode.close()  # fmt: skip


async def test_the_shell_is_real_and_ends(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("1-1/0")
        run = lambda line: in_app(episode, "shell.command", command=line)  # noqa: E731
        assert await run("ls") == "calendar\ndata\nemails"
        assert await run("cd data") == "Successfully executed command: cd /testbed/data. The output was []."
        assert await run("pwd && ls") == "/testbed/data\nnotes.txt"
        assert await run("echo \"a  'b' $((1 + 1))\"") == "a  'b' 2"
        assert await run("touch x") == "Successfully executed command: touch x. The output was []."
        assert await run("false") == "The command failed with exit code 1 and no output: false"
        assert await run("cat none") == "cat: none: No such file or directory"
        assert await run(["echo", "two", "words"]) == "two words"  # type: ignore[arg-type]
        assert await run("python3 -c 'import docx, openpyxl; print(\"here\")'") == "here"
        # Relative paths of other apps start where the shell is.
        assert (
            await in_app(episode, "word.create_new_file", file_path="a.docx") == "Successfully create new file a.docx"
        )
        assert await run("ls") == "a.docx\nnotes.txt\nx"
        # What a command leaves behind does not hold the call, and is gone with it.
        assert await run("sleep 500 & echo started") == "started"
        assert await run("pgrep sleep || echo none") == "none"
        said = await run("echo before; sleep 60")
        assert said == "before\n\nThe command was stopped: it took more than 7 seconds."
        assert len(await run("head -c 300000 /dev/zero | tr '\\0' x")) < 70_000
        assert "refused" not in await run(
            "cat < /dev/tcp/192.0.2.1/80"
        )  # no network: it fails at once, whatever the words
        await episode.close()


HOSTILE: list[Call] = [
    ("word.read_file", {"file_path": "/etc/passwd"}),
    ("word.read_file", {"file_path": "/testbed/../etc/passwd"}),
    ("word.read_file", {"file_path": "/testbed/data"}),
    ("word.read_file", {"file_path": "/testbed/data/a\0b"}),
    ("word.read_file", {"file_path": "/testbed/data/" + "x" * 5000}),
    ("word.create_new_file", {"file_path": "/testbed/../tmp/x.docx"}),
    ("word.create_new_file", {"file_path": "/testbed/data"}),
    ("word.write_to_file", {"file_path": "/testbed/data/notes.txt", "contents": "x"}),
    ("excel.create_new_file", {"file_path": "../../x.xlsx"}),
    ("excel.read_file", {"file_path": "/testbed/data/notes.txt"}),
    ("excel.set_cell", {"file_path": STOCK, "row_idx": 1 << 40, "column_idx": 1, "text": "x"}),
    ("excel.set_cell", {"file_path": STOCK, "row_idx": "1", "column_idx": 1, "text": "\x01"}),
    ("pdf.read_file", {"pdf_file_path": "/testbed/data/notes.txt"}),
    ("pdf.convert_to_image", {"pdf_file_path": "/testbed/data/notes.txt", "image_file_path": "/testbed/data/x.exe"}),
    ("ocr.recognize_file", {"file_path": "/testbed/data/notes.txt"}),
    ("calendar.create_event", {"user": "../Ann", "summary": "x", "time_start": "2024-05-06 12:00:00", "time_end": "2024-05-06 13:00:00"}),
    ("calendar.create_event", {"user": "Ann", "summary": "x", "time_start": "2024-13-06 12:00:00", "time_end": "2024-05-06 13:00:00"}),
    ("calendar.list_events", {"username": "/etc/passwd"}),
    ("email.send_email", {"sender": "../../x", "recipient": "Ann", "subject": "x", "content": "x"}),
    ("email.send_email", {"sender": "Ann", "recipient": "Carl", "subject": "a\nBcc: b@example.com", "content": "x"}),
    ("email.send_email", {"sender": "Ann", "recipient": "Carl", "subject": "s" * 400, "content": "x"}),
    ("email.read_email", {"username": "Ann", "email_id": "../../calendar/Ann.ics"}),
    ("email.list_emails", {"username": ".."}),
]  # fmt: skip


async def test_hostile_arguments_get_words_and_change_nothing(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("1-1/0")
        await in_app(episode, "excel.create_new_file", file_path=STOCK)
        await in_app(episode, "shell.command", command="ln -s /etc /testbed/data/out; ln -s / /testbed/emails/Eve")
        before = await episode.world.state()  # type: ignore[union-attr]
        calls = [
            *HOSTILE,
            ("word.create_new_file", {"file_path": "/testbed/data/out/x.docx"}),
            ("email.list_emails", {"username": "Eve"}),
        ]
        for name, arguments in calls:
            said = await in_app(episode, name, **arguments)
            assert "ailed to" in said or said.startswith("Failed: "), (name, said)
            assert "Traceback" not in said
            assert "\n" not in said
            after = await episode.world.state()  # type: ignore[union-attr]
            assert after["files"] == before["files"], name
        assert not episode.issues
        await episode.close()  # fmt: skip


async def test_tables_letters_and_pages_survive_conversion(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("1-1/0")
        await in_app(episode, "excel.create_new_file", file_path=STOCK)
        for row, text in enumerate(("Łódź", "<b>&", "2024-01-02", "=1+1"), start=1):
            for column in range(1, 11):
                await say(episode, "excel.set_cell", file_path=STOCK, row_idx=row, column_idx=column, text=text)
            if row == 2:
                break
        await say(episode, "excel.convert_to_pdf", excel_file_path=STOCK, pdf_file_path=f"{D}/stock.pdf")
        text = await in_app(episode, "pdf.read_file", pdf_file_path=f"{D}/stock.pdf")
        assert text.count("Łódź") == text.count("<b>&") == 10
        assert (
            await say(episode, "pdf.convert_to_word", pdf_file_path=f"{D}/stock.pdf", word_file_path=f"{D}/stock.docx")
            == "Success"
        )
        assert (await in_app(episode, "word.read_file", file_path=f"{D}/stock.docx")).count("Łódź") == 10
        await episode.close()  # fmt: skip


async def test_the_evidence_says_what_files_hold(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await played(environment, environment.pack.task("2-1/0"), SOLUTIONS["2-1/0"])
    changes = json.dumps(episode.evidence)
    assert '"Sheet": {"A1": "paper", "B1": 12}' in changes


def task_of(calls: list[dict[str, Any]], files: dict[str, Any] | None = None) -> Task:
    reward = RewardSpec(parts=[ChecklistSpec(calls=[{"expect": True, **call} for call in calls])])
    return Task(
        id="probe", instruction="Nothing.", initial={"folder": "testbeds/1-1", "files": files or {}}, reward=reward
    )


def asked(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


TWO = "\r\n".join(
    ["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", "SUMMARY:a", "DTSTART;VALUE=DATE:20240506", "END:VEVENT", "BEGIN:VEVENT",
     "SUMMARY:b", "DTSTART:20240506T100000", "DURATION:PT1H", "END:VEVENT", "END:VCALENDAR", ""]
)  # fmt: skip
CHECKED: list[tuple[dict[str, Any], bool]] = [
    (asked("file_exist", file="./data/notes.txt"), True),
    (asked("file_exist", file="./data/none.txt"), False),
    (asked("file_exist", file="../../etc"), False),
    (asked("file_not_exist", file="./data/none.txt"), True),
    (asked("contain", doc_type="txt", file="data/notes.txt", keywords=["BUY", "dora"]), True),
    (asked("contain", doc_type="txt", file="data/notes.txt", keywords=["buy", "sell"]), False),
    (asked("contain", doc_type="txt", file="data", keywords=[]), False),
    (asked("contain", doc_type="txt", file="data/sums.txt", keywords=["12000", "1200"]), True),
    (asked("contain", doc_type="xlsx", file="data/notes.txt", keywords=["buy"]), False),
    (asked("not_contain", doc_type="txt", file="data/notes.txt", keywords=["sell"]), True),
    (asked("not_contain", doc_type="txt", file="data/none.txt", keywords=["sell"]), True),
    (asked("not_contain", doc_type="xlsx", file="data/notes.txt", keywords=["sell"]), False),
    (asked("contain", doc_type="email", username="Ann", keywords=["carl@example.com", "keys", "Dora."]), True),
    (asked("contain", doc_type="email", username="an", keywords=["archive"]), True),
    (asked("contain", doc_type="email", username="Carl", keywords=["archive"]), False),
    (asked("calendar_no_overlap", username="Ann"), True),
    (asked("calendar_no_overlap", username="Two"), False),
    (asked("calendar_no_overlap", username="Nobody"), False),
    (asked("exact_match", doc_type="txt", result_file="data/notes.txt", expected_file="before/data/notes.txt"), True),
    (asked("exact_match", doc_type="txt", result_file="data/notes.txt", expected_file="data/sums.txt"), False),
    (asked("exact_match", doc_type="txt", result_file="data/notes.txt", expected_file="references/1-1/none"), False),
    (asked("diff_contain_text", doc_type="txt", input_file="before/data/notes.txt", output_file="data/sums.txt", keywords=["12,000"]), True),
    (asked("diff_contain_text", doc_type="txt", input_file="before/data/notes.txt", output_file="data/notes.txt", keywords=[]), False),
    (asked("diff_contain_text", doc_type="txt", input_file="before/data/notes.txt", output_file="data/sums.txt", keywords=["@@"]), False),
    (asked("contain", doc_type="pptx", file="data/notes.txt", keywords=["buy"]), False),
]  # fmt: skip


async def test_checks_mean_what_the_benchmark_means(small_pack: Path) -> None:
    files = {"data/sums.txt": {"text": "1,200 and 12,000\n"}, "calendar/Two.ics": {"text": TWO}}
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await played(environment, task_of([call for call, _ in CHECKED], files), [])
    assert episode.evidence is not None
    results = list(episode.evidence["checks"].items())
    assert [(name, held) for name, held in results] == [
        (f"{number}.{call['name']}", expected) for number, (call, expected) in enumerate(CHECKED)
    ]


async def test_checks_of_cells(small_pack: Path) -> None:
    def match(row: int, col: int, **more: str) -> dict[str, Any]:
        return {"row": str(row), "col": str(col), **more}

    cases: list[tuple[dict[str, Any], bool]] = [
        (asked("excel_cell_value", file="data/stock.xlsx", matches=[match(1, 1, value="12")]), True),
        (asked("excel_cell_value", file="data/stock.xlsx", matches=[match(1, 1, value="1")]), False),
        (asked("excel_cell_value", file="data/stock.xlsx", matches=[match(1, 2, value="5")]), True),  # 5%
        (asked("excel_cell_value", file="data/stock.xlsx", matches=[match(1, 3, value="7")]), False),  # 7.5
        (asked("excel_cell_value", file="data/stock.xlsx", matches=[match(1, 3, value="7.50")]), True),
        (asked("excel_cell_value", file="data/stock.xlsx", matches=[match(3, 1, value="[Empty Cell]")]), True),
        (asked("excel_cell_value", file="data/none.xlsx", matches=[match(1, 1, value="12")]), False),
        (asked("excel_cell_comparator", file="data/stock.xlsx", matches=[match(1, 1, comparator="lambda x: int(x) == 12")]), True),
        (asked("excel_cell_comparator", file="data/stock.xlsx", matches=[match(1, 1, comparator="lambda x: 1 / 0")]), False),
        (asked("excel_cell_comparator", file="data/stock.xlsx", matches=[match(1, 2, comparator="lambda x: True")]), False),
        (asked("exact_match", doc_type="xlsx", result_file="data/stock.xlsx", expected_file="data/same.xlsx"), True),
        (asked("exact_match", doc_type="xlsx", result_file="data/stock.xlsx", expected_file="data/other.xlsx"), False),
        (asked("contain", doc_type="xlsx", file="data/stock.xlsx", keywords=["(1, 1): 12"]), True),
    ]  # fmt: skip
    calls: list[Call] = [opened("excel")]
    for name in ("stock", "same", "other"):
        file = f"{D}/{name}.xlsx"
        calls.append(("excel.create_new_file", {"file_path": file}))
        for column, text in enumerate(("12", "5%", "7.5"), start=1):
            calls.append(("excel.set_cell", {"file_path": file, "row_idx": 1, "column_idx": column, "text": text}))
    calls.append(("excel.set_cell", {"file_path": f"{D}/other.xlsx", "row_idx": 2, "column_idx": 1, "text": "x"}))
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await played(environment, task_of([call for call, _ in cases]), calls)
    assert episode.evidence is not None
    assert list(episode.evidence["checks"].values()) == [expected for _, expected in cases]


async def test_ocr_reads_or_says_what_is_missing(small_pack: Path) -> None:
    async with await open_environment(str(small_pack), episode=LIMITS) as environment:
        episode = await environment.reset("3-1/0")
        letter, page, image = (f"{D}/sign.{kind}" for kind in ("docx", "pdf", "png"))
        await in_app(episode, "word.create_new_file", file_path=letter)
        await say(episode, "word.write_to_file", file_path=letter, contents="Parking for visitors only")
        await say(episode, "word.convert_to_pdf", word_file_path=letter, pdf_file_path=page)
        await in_app(episode, "pdf.convert_to_image", pdf_file_path=page, image_file_path=image)
        said = await in_app(episode, "ocr.recognize_file", file_path=image)
        await episode.close()
    if shutil.which("tesseract"):
        assert said.startswith(f"The text from {image} is:\n")
        assert "Parking for visitors only" in said
    else:
        assert said == (
            f"Failed to recognize text from {image} (there is no program that reads images here: "
            "install tesseract (Debian: apt-get install tesseract-ocr))"
        )


@pytest.mark.skipif(not shutil.which("soffice"), reason="no LibreOffice on this machine")
async def test_libreoffice_prints_where_it_is(tmp_path: Path) -> None:
    pack = officebench.import_tasks(small.folder(tmp_path / "tasks"), tmp_path / "pack")
    async with await open_environment(str(pack), episode=LIMITS) as environment:
        states = []
        for _ in range(2):
            episode = await environment.reset("1-1/0")
            await in_app(episode, "word.create_new_file", file_path=f"{D}/a.docx")
            await say(episode, "word.write_to_file", file_path=f"{D}/a.docx", contents="Parking for visitors only")
            said = await say(episode, "word.convert_to_pdf", word_file_path=f"{D}/a.docx", pdf_file_path=f"{D}/b.pdf")
            if "took too long" in said:
                pytest.skip("LibreOffice is slower than a call may be on this busy machine")
            assert said == f"Successfully convert {D}/a.docx to {D}/b.pdf (by LibreOffice)"
            states.append(await episode.world.state())  # type: ignore[union-attr]
            await episode.close()
    assert states[0] == states[1]
    assert states[0]["files"]["data/b.pdf"]["content"] == {"pages": ["Parking for visitors only"]}
