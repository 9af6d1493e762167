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
        "the answer to 001 cannot be used: it is not JSON; the question is repeated as 003",
        "the answer to 002 cannot be used: it is not JSON; the question is repeated as 004",
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


def test_only_changed_answers_are_named_in_later_rounds(batch: Path) -> None:
    for number in ("001", "002"):
        (batch / f"{number}.txt").write_text("one\n")
    assert "2 answers stored, 0 questions" in store().output
    again = store()
    assert "0 answers stored" in again.output
    assert "final" not in again.output
    (batch / "002.txt").write_text("two")
    assert "changed after it was stored, without effect: 002; a stored answer is final" in store().output


def test_an_answer_that_is_left_out_is_no_error_in_later_rounds(batch: Path) -> None:
    assert "no answer to 001, 002; expected text in 001.txt" in str(store().exception)
    (batch / "001.txt").write_text("one")
    store()
    again = store()
    assert again.exit_code == 0, again.output
    assert "0 answers stored, 1 question without an answer" in again.output
    assert "no answer yet: 002" in again.output


def run_runs(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["runs", *words])


def test_a_folder_of_questions_belongs_to_one_run(batch: Path) -> None:
    """The questions of both batches have the number 001."""
    rows = [{"custom_id": "other", "body": {"messages": ask("another question")}}]
    write_rows(Path("another") / "requests-0001.jsonl", rows)
    assert run_runs("questions", "asked", "q").exit_code == 0
    (batch / "001.txt").write_text("one")
    refusal = "q has the questions of asked, not of another: write the questions to another folder, or name asked"
    assert str(run_runs("answers", "another", "q").exception) == refusal
    assert str(run_runs("questions", "another", "q").exception) == refusal
    assert not (Path("another") / "results").exists()
    assert "1 answer stored, 1 question without" in store().output
    write_rows(Path("asked") / "requests-0002.jsonl", rows)
    assert "002.txt, 003.txt" in run_runs("questions", "asked", "q").output
    (batch / "003.txt").write_text("three")
    assert "1 answer stored, 1 question without" in store().output


def test_a_folder_whose_index_cannot_be_read_is_refused(batch: Path) -> None:
    for text in ("{", "[]"):
        (batch.parent / "questions.json").write_text(text)
        assert "questions.json cannot be read" in str(store().exception)
