"""`simia runs questions` and `simia runs answers`: a batch run that is answered through text files."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson

from simia.cli.terminal_output import WAITS
from simia.llm.question_files import find_batch_folders, list_open_questions, list_unreadable_answers
from simia.llm.repeated_questions import repeat_question
from tests.command import run_simia
from tests.synthesis.converter_replies import respond

ROOT = Path(__file__).parents[2]
BATCH = ("llm.kind=batch", "llm.model=chat", "llm.folder=batch")


def start_batch(folder: Path) -> None:
    shutil.copytree(ROOT / "examples" / "converters", folder / "converters")
    settings = [word for setting in BATCH for word in ("--set", setting)]
    words = ["synth", "converters/recipe.py", "km to miles; Celsius to Fahrenheit", "--out", "packs", "--name", "hand"]
    done = run_simia(*words, *settings, cwd=folder)
    assert done.returncode == WAITS, done.stdout + done.stderr
    assert "to answer by hand or in a chat window: simia runs questions hand hand-questions\n" in done.stdout


def answer(folder: Path, number: str) -> None:
    prompt = (folder / f"{number}.txt").read_text().partition("=== user ===\n")[2].strip()
    (folder / "answers" / f"{number}.txt").write_text(
        respond({"messages": [{"content": prompt}]}), encoding="utf-8-sig"
    )


def test_answers_come_in_parts_and_a_bad_one_is_asked_again(tmp_path: Path) -> None:
    start_batch(tmp_path)
    questions = tmp_path / "q"
    assert "2 questions: 001.txt, 002.txt in q" in run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stdout
    none = run_simia("runs", "answers", "hand", "q", cwd=tmp_path)
    assert none.returncode != 0
    assert "no answer to 001, 002; expected text in 001.txt" in none.stderr
    answer(questions, "002")
    (questions / "answers" / "001.txt").write_bytes(b"\xff\xfe")
    assert "001.txt is not UTF-8 text" in run_simia("runs", "answers", "hand", "q", cwd=tmp_path).stderr
    assert not list((tmp_path / "batch" / "results").iterdir())
    (questions / "answers" / "001.txt").write_text(" \n")
    done = run_simia("runs", "answers", "hand", "q", cwd=tmp_path)
    assert "1 answer stored, 1 question without an answer\nno answer yet: 001" in done.stdout
    run_simia("runs", "resume", "hand", cwd=tmp_path)
    (questions / "answers" / "001.txt").write_text("Here is your tool!")
    assert "1 answer stored, 0 questions" in run_simia("runs", "answers", "hand", "q", cwd=tmp_path).stdout
    resumed = run_simia("runs", "resume", "hand", cwd=tmp_path)
    assert resumed.returncode == WAITS
    unread = "the answer to 001 cannot be used: it holds no JSON"
    assert unread in resumed.stdout
    listed = run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stdout
    assert "1 question: 003.txt in q" in listed
    assert unread in listed
    assert "; the question is repeated as 003\n" in listed
    text = (questions / "003.txt").read_text()
    assert "=== assistant ===\nHere is your tool!" in text
    assert "This reply cannot be used" in text
    (questions / "answers" / "003.txt").write_bytes((questions / "answers" / "002.txt").read_bytes())
    run_simia("runs", "answers", "hand", "q", cwd=tmp_path)
    done = run_simia("runs", "resume", "hand", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "packs" / "celsius_to_fahrenheit" / "tools.py").is_file()
    assert (
        "the run is complete; next: simia runs show hand"
        in run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stdout
    )


def test_a_design_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    words = [
        "synth",
        "envscaler",
        "tool library",
        "--config",
        "synth/envscaler_small",
        "--out",
        "packs",
        "--name",
        "hand",
    ]
    done = run_simia(*words, *(word for setting in BATCH for word in ("--set", setting)), cwd=tmp_path)
    for number in (1, 2, 3):
        assert done.returncode == WAITS, done.stdout + done.stderr
        run_simia("runs", "questions", "hand", "hand-questions", cwd=tmp_path)
        (tmp_path / "hand-questions" / "answers" / f"{number:03}.txt").write_text("Here is the design.")
        run_simia("runs", "answers", "hand", "hand-questions", cwd=tmp_path)
        done = run_simia("runs", "resume", "hand", cwd=tmp_path)
    assert done.returncode == 1
    for text in (done.stdout, run_simia("runs", "show", "hand", cwd=tmp_path).stdout):
        assert "design: 1 refused: invalid_design" in text
        assert "what to do: no design could be used in as many replies as sampling.tries allows" in text
    item = run_simia("runs", "show", "hand", "--item", "design/tool_library", cwd=tmp_path).stdout
    assert "what to do: no design could be used" in item
    assert item.count("Here is the design.") == 3


def test_each_unreadable_answer_to_a_question_is_named(tmp_path: Path) -> None:
    """Two samples of one question with the same unreadable answer, and a second one to the repeated question."""
    first = {"role": "user", "content": "Name a number."}
    bodies = [{"messages": [first]}, {"messages": [first]}, {"messages": repeat_question(first, "none", "no number")}]
    bodies.append({"messages": repeat_question(first, "zero", "a word")})
    write_rows(
        tmp_path / "requests-0001.jsonl", [{"custom_id": f"c{n}", "body": body} for n, body in enumerate(bodies)]
    )
    (tmp_path / "results").mkdir()
    answers = [
        {"custom_id": "c0", "text": "two"},
        {"custom_id": "c1", "text": "none"},
        {"custom_id": "c2", "text": "zero"},
    ]
    write_rows(tmp_path / "results" / "a.jsonl", answers)
    (found,) = list_open_questions([tmp_path])
    assert (found.number, found.repeats, found.fault) == ("004", "003", "a word")
    assert list_unreadable_answers([found]) == [
        "the answer to 003 cannot be used: a word; the question is repeated as 004"
    ]


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def test_batch_folders_are_found_in_roles_and_pools() -> None:
    roles = {"tester": {"kind": "batch", "folder": "b"}, "checker": {"kind": "openai"}}
    pool = {"kind": "pool", "members": [{"kind": "batch", "folder": "a"}, {"kind": "batch", "folder": "b"}]}
    assert find_batch_folders({"llm": pool, "roles": roles}) == [Path("a"), Path("b")]


def test_a_run_without_a_batch_folder_is_refused_with_a_line(tmp_path: Path) -> None:
    start_batch(tmp_path)
    config = tmp_path / "runs" / "hand" / "config.yaml"
    config.write_text(config.read_text().replace("kind: batch", "kind: openai"))
    assert "only runs with llm.kind=batch do" in run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stderr


def test_tokens_of_open_items_are_counted_and_a_second_run_names_the_answers_of_the_first(tmp_path: Path) -> None:
    start_batch(tmp_path)
    run_simia("runs", "questions", "hand", "q", cwd=tmp_path)
    (tmp_path / "q" / "answers" / "001.txt").write_text("Here is your tool!")
    run_simia("runs", "answers", "hand", "q", cwd=tmp_path)
    resumed = run_simia("runs", "resume", "hand", cwd=tmp_path)
    (row,) = (line.split() for line in resumed.stdout.splitlines() if line.startswith("converters  "))
    assert row[4:6] == ["2", "1"], "two items are open, one question is answered"
    assert row[6].startswith("~")
    assert int(row[6].strip("~,")) > 20
    assert int(row[7].strip("~,")) > 2
    assert "to questions of another run" not in resumed.stderr
    settings = [word for setting in BATCH for word in ("--set", setting)]
    words = ["synth", "converters/recipe.py", "km to miles; Celsius to Fahrenheit", "--out", "packs", "--name", "two"]
    second = run_simia(*words, *settings, cwd=tmp_path)
    assert "batch has 1 answer to questions of another run; this run uses those to equal questions" in second.stderr
