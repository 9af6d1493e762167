"""Questions of a batch folder as numbered text files, to be answered by hand or in a chat window.

    FOLDER/001.txt           one question: its messages as text
    FOLDER/answers/001.txt   its answer, put there by the user as it is
    FOLDER/questions.json    the run that asked, and the `custom_id` of each number

A question keeps its number, so answers may arrive in any order and in several rounds. The index keeps a folder to its run: answers to
another run's questions would be stored under the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from simia.errors import UserError
from simia.llm.batch_files import BatchAnswers, list_question_files, read_reply, read_row
from simia.llm.repeated_questions import read_repeated
from simia.search_path import locate
from simia.terminal import write_count
from simia.trajectory import digest

INDEX = "questions.json"


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question of a batch folder without an answer."""

    number: str
    """Its position among all questions of the folder, as 007; the name of its files."""
    name: str
    """Its `custom_id`."""
    body: dict[str, Any]
    """The body of its request."""
    batch: Path
    """The batch folder."""
    repeats: str | None = None
    """The number of the question whose answer could not be read, which this one asks for again."""
    fault: str = ""
    """The fault of that answer."""

    def to_text(self) -> str:
        """The messages, each below a line with its role."""
        parts = []
        for message in self.body["messages"]:
            content = message.get("content")
            text = content if isinstance(content, str) else orjson.dumps(message).decode()
            parts.append(f"=== {message['role']} ===\n{text}\n")
        return "\n".join(parts)


def find_batch_folders(config: Any) -> list[Path]:
    """The folders of all batch back ends in a run's config, each once, in their order."""
    if isinstance(config, list):
        return list(dict.fromkeys(folder for each in config for folder in find_batch_folders(each)))
    if not isinstance(config, dict):
        return []
    if config.get("kind") == "batch" and config.get("folder"):
        return [locate(str(config["folder"]))]
    return find_batch_folders(list(config.values()))


def note_shared_batches(config: Any) -> list[str]:
    """A line for each batch folder in a new run's config that has answers to another run's questions, which the new run uses where its questions are the same."""
    lines = []
    for folder in find_batch_folders(config):
        answers = BatchAnswers()
        if list_question_files(folder):
            for path in sorted((folder / "results").glob("*.jsonl")):
                answers.read(path)
        if count := len(answers.places):
            lines.append(
                f"note: {folder} has {write_count(count, 'answer')} to questions of another run; this run uses those to equal questions and counts their "
                "tokens; to ask again, set another llm.folder"
            )
    return lines


def read_named_rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for line in path.read_bytes().splitlines():
        row, name = read_row(line)
        if name is not None:
            yield row, name


def number_questions(folders: Sequence[Path]) -> dict[str, str]:
    """The `custom_id` of each question of the folders by its number, answered ones included."""
    found: dict[str, str] = {}
    for at, folder in enumerate(folders, start=1):
        prefix = f"{at}-" if len(folders) > 1 else ""
        names = {name: None for path in list_question_files(folder) for _, name in read_named_rows(path)}
        found |= {f"{prefix}{number:03}": name for number, name in enumerate(names, start=1)}
    return found


def read_stored_answers(folders: Sequence[Path]) -> dict[str, str]:
    """The text of each stored answer by the `custom_id` of its question. The first answer counts."""
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted((folder / "results").glob("*.jsonl")):
            for row, name in read_named_rows(path):
                if name not in found and (reply := read_reply(row)) is not None:
                    found[name] = reply.text
    return found


def check_folder(folder: Path, run: str, names: Mapping[str, str]) -> dict[str, str]:
    """Check that the files of a folder belong to the questions `names` (`custom_id` by number), and return its index; empty for a folder without one.

    Raises `UserError` if a number of the folder is another question: the folder was written for another run or batch.
    """
    path = folder / INDEX
    try:
        index = orjson.loads(path.read_bytes()) if path.is_file() else {}
        known = {str(number): str(name) for number, name in index.get("questions", {}).items()}
    except (OSError, ValueError, AttributeError):
        raise UserError(f"{path} cannot be read: restore it, or write the questions to another folder") from None
    if any(names.get(number) != name for number, name in known.items()):
        asked = index.get("run", "another run")
        if asked == run:  # its batch folder is another one now
            raise UserError(f"{folder} has other questions of {run}: write the questions to another folder")
        raise UserError(
            f"{folder} has the questions of {asked}, not of {run}: write the questions to another folder, or name {asked}"
        )
    return known


def list_open_questions(folders: Sequence[Path]) -> list[OpenQuestion]:
    """List the questions without an answer, in the order in which they were written."""
    found = []
    for at, folder in enumerate(folders, start=1):
        prefix = f"{at}-" if len(folders) > 1 else ""
        results = sorted((folder / "results").glob("*.jsonl"))
        answered: dict[str, str] = {}
        for path in results:
            for row, name in read_named_rows(path):
                if (reply := read_reply(row)) is not None:
                    answered.setdefault(name, digest(reply.text))  # the first answer counts
        bodies: dict[str, dict[str, Any]] = {}
        for path in list_question_files(folder):
            for row, name in read_named_rows(path):
                bodies.setdefault(name, row["body"])
        asked: dict[str, str] = {}  # digest of a question as it was asked first and of its answer → number
        for at_number, (name, body) in enumerate(bodies.items(), start=1):
            repeated = read_repeated(body["messages"])
            number, first = f"{prefix}{at_number:03}", digest(body["messages"][: -2 if repeated else None])
            if name in answered:
                asked[first + answered[name]] = number
            elif repeated is not None:
                earlier, fault = repeated
                repeats = asked.get(first + digest(earlier))
                found.append(OpenQuestion(number, name, body, folder, repeats, fault))
            else:
                found.append(OpenQuestion(number, name, body, folder))
    return found


def list_unreadable_answers(questions: Sequence[OpenQuestion]) -> list[str]:
    """A line for each question that asks again for an answer that could not be read."""
    lines = []
    for question in questions:
        if question.fault:
            which = f"the answer to {question.repeats}" if question.repeats else "an earlier answer"
            fault = " ".join(question.fault.split())
            lines.append(f"{which} cannot be used: {fault}; the question is repeated as {question.number}")
    return lines


def write_questions(questions: Sequence[OpenQuestion], folder: Path, run: str, names: Mapping[str, str]) -> list[Path]:
    """Write a file for each question and the index, and return the files of the questions. `run`: the run or the batch folder that asked. `names`: `number_questions` of
    its folders. Raises `UserError` if the folder cannot be written or has questions of another run."""
    known = check_folder(folder, run, names)
    index = {"run": run, "questions": known | {question.number: question.name for question in questions}}
    try:
        (folder / "answers").mkdir(parents=True, exist_ok=True)
        (folder / INDEX).write_bytes(orjson.dumps(index, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        files = [folder / f"{question.number}.txt" for question in questions]
        for path, question in zip(files, questions, strict=True):
            path.write_text(question.to_text(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write questions to {folder}: {error.strerror}; name another folder") from None
    return files


def read_answer_file(folder: Path, number: str) -> str:
    """The answer to a question in a folder; empty if there is none. Raises `UserError` for a file that is not UTF-8."""
    path = folder / "answers" / f"{number}.txt"
    try:
        return path.read_text(encoding="utf-8-sig").strip() if path.is_file() else ""
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def read_answers(questions: Sequence[OpenQuestion], folder: Path) -> list[str]:
    """Copy the answers in the folder into their batch folders, and return the numbers of the questions without an answer.

    An empty file is no answer. Raises `UserError` for a file that is not UTF-8: then nothing is stored.
    """
    missing: list[str] = []
    rows: dict[Path, list[bytes]] = {}
    for question in questions:
        text = read_answer_file(folder, question.number)
        if text:
            line = orjson.dumps({"custom_id": question.name, "text": text}, option=orjson.OPT_APPEND_NEWLINE)
            rows.setdefault(question.batch, []).append(line)
        else:
            missing.append(question.number)
    for batch, lines in rows.items():
        results = batch / "results"
        results.mkdir(exist_ok=True)
        number = 1 + max(
            (int(name) for path in results.glob("answers-*.jsonl") if (name := path.stem[8:]).isdecimal()), default=0
        )
        with (results / f"answers-{number:04}.jsonl").open("xb") as file:
            file.write(b"".join(lines))
    return missing
