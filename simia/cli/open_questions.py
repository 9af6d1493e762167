"""The questions of a run with llm.kind=batch that wait for an answer."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simia.errors import UserError
from simia.jobs import Run
from simia.search_path import searching_from
from simia.terminal import say

if TYPE_CHECKING:
    from simia.llm.question_files import OpenQuestion

MOST_SHOWN = 20


def is_batch_folder(run: str) -> bool:
    """Whether the name is a batch's folder: `simia fidelity` writes questions, and is no run."""
    return any(Path(run).glob("requests-*.jsonl"))


def find_batches(runs: Path, run: str) -> list[Path]:
    """The batch folders of a run, or the batch folder itself. Raises `UserError` if the run has no such folder."""
    from simia.llm.question_files import find_batch_folders

    if is_batch_folder(run):
        return [Path(run)]
    with contextlib.closing(Run.read_only(runs, run)) as opened, searching_from(opened.start_folder):
        batches = find_batch_folders(opened.saved_config())
    if not batches:
        raise UserError(f"run {opened.id} writes no questions to files: only runs with llm.kind=batch do")
    for batch in batches:
        if not batch.is_dir():
            raise UserError(
                f"the run's batch folder {batch} is missing: put it back, or run this in the folder that it was moved to"
            )
    return batches


def find_open_questions(runs: Path, run: str) -> list[OpenQuestion]:
    """The questions without an answer of a run's batch folders, or of the batch folder itself. Raises `UserError` if the run has no such folder."""
    from simia.llm.question_files import list_open_questions

    return list_open_questions(find_batches(runs, run))


def print_batches(config: Any) -> None:
    """Print for each batch of a config how to answer its questions by hand, and which answers could not be read."""
    from simia.llm.question_files import find_batch_folders, list_open_questions

    for folder in find_batch_folders(config):
        waiting = list_open_questions([folder])
        if waiting:
            print_unreadable_answers(waiting)
            texts = shlex.quote(f"{folder}-questions")
            say(f"to answer by hand or in a chat window: simia runs questions {shlex.quote(str(folder))} {texts}")


def print_unreadable_answers(waiting: Sequence[OpenQuestion]) -> None:
    """Print which answers could not be read and why, with the numbers under which they are asked for again."""
    from simia.llm.question_files import list_unreadable_answers

    lines = list_unreadable_answers(waiting)
    for line in lines[:MOST_SHOWN]:
        say(line)
    if len(lines) > MOST_SHOWN:
        say(f"and {len(lines) - MOST_SHOWN} more answers that cannot be used")
