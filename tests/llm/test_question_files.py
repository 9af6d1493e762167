"""Questions of a batch folder: repeated ones of a simulated world, and what `simia runs answers` says about files and stored answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from simia.cli import build_app
from simia.cli.open_questions import print_batches
from simia.llm.question_files import list_open_questions, list_unreadable_answers
from simia.llm.repeated_questions import FAULTY_ANSWERS, UNREADABLE_ANSWERS

SYSTEM = {"role": "system", "content": "You are the system behind the tools."}


def ask(text: str) -> list[dict[str, Any]]:
    return [SYSTEM, {"role": "user", "content": text}]


def ask_again(text: str, reply: str, complaint: str) -> list[dict[str, Any]]:
    return [*ask(text), {"role": "assistant", "content": reply}, {"role": "user", "content": complaint}]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def make_batch(folder: Path, bodies: list[list[dict[str, Any]]], answers: dict[int, str]) -> None:
    """Write questions, and answers by the position of their question."""
    rows = [{"custom_id": f"c{n}", "body": {"messages": each}} for n, each in enumerate(bodies, start=1)]
    write_rows(folder / "requests-0001.jsonl", rows)
    write_rows(folder / "results" / "a.jsonl", [{"custom_id": f"c{n}", "text": each} for n, each in answers.items()])


def test_an_unreadable_answer_of_a_simulator_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two calls got the same unreadable reply: each repetition names its own question."""
    unread = UNREADABLE_ANSWERS.format(why="it is not JSON")
    bodies = [ask("call 1"), ask("call 2"), ask_again("call 1", "Done.", unread), ask_again("call 2", "Done.", unread)]
    make_batch(tmp_path / "asked", bodies, {1: "Done.", 2: "Done."})
    lines = [
        "the answer to 001 cannot be used: it is not JSON; it is asked for again as 003",
        "the answer to 002 cannot be used: it is not JSON; it is asked for again as 004",
    ]
    assert list_unreadable_answers(list_open_questions([tmp_path / "asked"])) == lines
    print_batches({"llm": {"kind": "batch", "folder": str(tmp_path / "asked")}, "simulator": None})
    printed = capsys.readouterr().out
    assert lines[0] in printed
    assert f"simia runs questions {tmp_path}/asked {tmp_path}/asked-questions" in printed


def test_a_second_complaint_is_about_the_second_answer(tmp_path: Path) -> None:
    first, second = UNREADABLE_ANSWERS.format(why="no JSON"), FAULTY_ANSWERS.format(why="no such row")
    bodies = [ask("call"), ask_again("call", "Done.", first), ask_again("call", "{}", second)]
    make_batch(tmp_path, bodies, {1: "Done.", 2: "{}"})
    (found,) = list_open_questions([tmp_path])
    assert (found.number, found.repeats, found.fault) == ("003", "002", "no such row")


def test_a_conversation_is_no_repeated_question(tmp_path: Path) -> None:
    make_batch(tmp_path, [ask_again("Hello", "What can I do?", "Cancel my order.")], {})
    (found,) = list_open_questions([tmp_path])
    assert (found.repeats, found.fault) == (None, "")


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_batch(tmp_path / "asked", [ask("call 1"), ask("call 2")], {})
    (tmp_path / "q" / "answers").mkdir(parents=True)
    return tmp_path / "q" / "answers"


def store() -> Result:
    return CliRunner().invoke(build_app(), ["runs", "answers", "asked", "q"])


def test_a_file_of_no_question_is_named(batch: Path) -> None:
    (batch / "001.txt").write_text("one")
    (batch / "099.txt").write_text("none")
    done = store()
    assert done.exit_code == 0, done.output
    assert "1 answer stored, 1 question without an answer" in done.output
    assert "has files of no question: 099.txt" in done.output
    assert "stored before" not in done.output


def test_answers_that_are_stored_already_are_named(batch: Path) -> None:
    for number in ("001", "002"):
        (batch / f"{number}.txt").write_text("one")
    assert "2 answers stored, 0 questions" in store().output
    again = store()
    assert "0 answers stored" in again.output
    assert "stored before, and final: 001, 002" in again.output
    assert "of no question" not in again.output
