"""`simia runs questions` and `simia runs answers`: a batch run that is answered through text files."""

from __future__ import annotations

import shutil
from pathlib import Path

from simia.llm.question_files import find_batch_folders
from tests.command import run_simia
from tests.synthesis.converter_replies import respond

ROOT = Path(__file__).parents[2]
BATCH = ("llm.kind=batch", "llm.model=chat", "llm.folder=batch")


def start_batch(folder: Path) -> None:
    shutil.copytree(ROOT / "examples" / "converters", folder / "converters")
    settings = [word for setting in BATCH for word in ("--set", setting)]
    words = ["synth", "converters/recipe.py", "km to miles; Celsius to Fahrenheit", "--out", "packs", "--name", "hand"]
    done = run_simia(*words, *settings, cwd=folder)
    assert "to answer by hand or in a chat window: simia runs questions hand FOLDER" in done.stdout


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
    assert "1 answers stored, 1 questions without an answer\nno answer yet: 001" in done.stdout
    run_simia("runs", "resume", "hand", cwd=tmp_path)
    (questions / "answers" / "001.txt").write_text("Here is your tool!")
    assert "1 answers stored, 0 questions" in run_simia("runs", "answers", "hand", "q", cwd=tmp_path).stdout
    run_simia("runs", "resume", "hand", cwd=tmp_path)
    assert "1 questions: 003.txt in q" in run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stdout
    text = (questions / "003.txt").read_text()
    assert "=== assistant ===\nHere is your tool!" in text
    assert "This reply cannot be used" in text
    (questions / "answers" / "003.txt").write_bytes((questions / "answers" / "002.txt").read_bytes())
    run_simia("runs", "answers", "hand", "q", cwd=tmp_path)
    done = run_simia("runs", "resume", "hand", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "packs" / "celsius_to_fahrenheit" / "tools.py").is_file()
    assert "no question waits" in run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stdout


def test_batch_folders_are_found_in_roles_and_pools() -> None:
    roles = {"tester": {"kind": "batch", "folder": "b"}, "checker": {"kind": "openai"}}
    pool = {"kind": "pool", "members": [{"kind": "batch", "folder": "a"}, {"kind": "batch", "folder": "b"}]}
    assert find_batch_folders({"llm": pool, "roles": roles}) == [Path("a"), Path("b")]


def test_a_run_without_a_batch_folder_is_refused_with_a_line(tmp_path: Path) -> None:
    start_batch(tmp_path)
    config = tmp_path / "runs" / "hand" / "config.yaml"
    config.write_text(config.read_text().replace("kind: batch", "kind: openai"))
    assert "only runs with llm.kind=batch do" in run_simia("runs", "questions", "hand", "q", cwd=tmp_path).stderr
