"""Any task file gives its texts, and a row that cannot be read costs no other row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.errors import UserError
from simia.pack import Pack
from simia.synthesis.scenarios.task_sources import is_task_source, read_task_texts
from simia.trajectory import Message, Trajectory

ROWS = Path(__file__).parent.parent / "formats" / "data"
SEED = "customer_service"


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_bundled_pack_gives_its_tasks() -> None:
    pack = Pack.load(SEED)
    found = read_task_texts(SEED)
    assert len(found.texts) + found.repeated == len(pack.tasks)
    assert found.texts[0] == (pack.tasks[0].opening or pack.tasks[0].instruction).strip()
    assert found.skipped == []


@pytest.mark.parametrize("dialect", formats.DIALECTS)
def test_trajectories_of_every_dialect_give_the_first_words_of_the_user(dialect: str, tmp_path: Path) -> None:
    seeds = Pack.load(SEED).seeds[:3]
    path = write_lines(tmp_path / "rows.jsonl", *formats.write(seeds, dialect))
    words = [next(message.text for message in seed.messages if message.role == "user") for seed in seeds]
    assert read_task_texts(path).texts == [text.strip() for text in words]


@pytest.mark.parametrize("dialect", formats.SUITE_DIALECTS)
def test_rows_of_suites_give_the_first_words_of_the_user(dialect: str, tmp_path: Path) -> None:
    rows = json.loads((ROWS / f"{dialect}.json").read_text())
    rows = rows if isinstance(rows, list) else list(rows.values())
    rows = [row.get("row", row) for row in rows]
    path = write_lines(tmp_path / "rows.jsonl", *rows)
    read = [row for row in formats.read(path, dialect) if isinstance(row, Trajectory)]
    assert read
    first = [next(message.text for message in row.messages if message.role == "user").strip() for row in read]
    assert read_task_texts(path).texts == list(dict.fromkeys(first))


def test_rows_of_several_forms_may_stand_in_one_file(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Cancel my flight"}, {"role": "assistant", "content": "Done."}]}
    native = Trajectory(
        messages=[Message(role="user", content="Renew my loan"), Message(role="assistant", content=".")]
    )
    path = write_lines(
        tmp_path / "tasks.jsonl",
        {"task": "Book a room"},
        chat,
        native.to_row(),
        '"Feed the cat"',
        {"query": " Pay a bill "},
    )
    assert read_task_texts(path).texts == [
        "Book a room",
        "Cancel my flight",
        "Renew my loan",
        "Feed the cat",
        "Pay a bill",
    ]


@pytest.mark.parametrize("name", ["task", "instruction", "query", "question", "prompt"])
def test_the_field_is_guessed(name: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "tasks.jsonl", {"id": 1, name: "Book a room"}, {"id": 2, name: "Book  a room"})
    found = read_task_texts(path)
    assert (found.texts, found.repeated, found.skipped) == (["Book a room"], 1, [])


def test_a_field_may_be_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "tasks.jsonl", {"goal": "Book a room", "task": "7"}, {"task": "8"})
    found = read_task_texts(path, text_field="goal")
    assert (found.texts, len(found.skipped)) == (["Book a room"], 1)
    with pytest.raises(
        UserError, match=r"no row has a text under 'aim'; its first row has goal, task: .* --set discovery.field="
    ):
        read_task_texts(path, text_field="aim")
    path = write_lines(tmp_path / "others.jsonl", {"goal": "Book a room"})
    with pytest.raises(
        UserError, match=r"under task, instruction, .* goal: name the field with --set discovery.field="
    ):
        read_task_texts(path)


def test_one_bad_row_costs_no_other_row(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(
        b'{"task": "one"}\n{"task": \n{"task": 7}\n[1]\n{"task": "\xff"}\n{"task": "  "}\n{"messages": [{"role": "user"}]}\n{"task": "two"}\n'
    )
    found = read_task_texts(path)
    assert found.texts == ["one", "two"]
    assert [line.partition(": ")[0] for line in found.skipped] == [f"tasks.jsonl:{n}" for n in (2, 3, 4, 5, 6, 7)]
    assert found.describe()[:2] == ["2 tasks read", "6 rows without a task; the first:"]
    listed = tmp_path / "tasks.json"
    listed.write_text('[\n{"task": "one"},\n{"task": broken},\n{"task": "two"}\n]')
    assert read_task_texts(listed).texts == ["one", "two"]


def test_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "tasks.txt"
    path.write_bytes("Book a room\n\n  Zimmer für zwei buchen \nbroken \udcff\n".encode("utf-8", "surrogateescape"))
    found = read_task_texts(path)
    assert found.texts == ["Book a room", "Zimmer für zwei buchen"]
    assert found.skipped == ["tasks.txt:4: it is not UTF-8 text"]
    assert read_task_texts(path, limit=1).texts == ["Book a room"]


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"question": ["Book a room", None, "Pay a bill"]}), tmp_path / "tasks.parquet")
    found = read_task_texts(tmp_path / "tasks.parquet")
    assert (found.texts, len(found.skipped)) == (["Book a room", "Pay a bill"], 1)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_the_users_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text(content)
    with pytest.raises(UserError, match="has no tasks"):
        read_task_texts(tmp_path / "tasks.txt")
    (tmp_path / "tasks.csv").write_text("a,b")
    with pytest.raises(UserError, match=r"tasks are read from packs, \.jsonl"):
        read_task_texts(tmp_path / "tasks.csv")


def test_a_source_is_a_file_or_a_domain_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.txt").write_text("Book a room")
    (tmp_path / "hotel").mkdir()
    assert is_task_source("tasks.txt")
    assert is_task_source(SEED)
    assert is_task_source("hf:owner/name")
    assert not is_task_source("hotel")
    assert not is_task_source("hotel front desk")
    assert not is_task_source("import/export office of a port")
    for wrong in ("taks.txt", "data/tasks", "./tasks", " "):
        with pytest.raises(UserError, match=r"no such file or folder|source is empty"):
            is_task_source(wrong)
