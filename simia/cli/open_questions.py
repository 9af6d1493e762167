"""The questions of a run with llm.kind=batch that wait for an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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


def find_open_questions(runs: Path, run: str) -> list[OpenQuestion]:
    """The questions without an answer of a run's batch folders, or of the batch folder itself. Raises `UserError` if the run has no such folder."""
    from simia.llm.question_files import find_batch_folders, list_open_questions

    if is_batch_folder(run):
        return list_open_questions([Path(run)])
    with contextlib.closing(Run.read_only(runs, run)) as opened, searching_from(opened.start_folder):
        batches = find_batch_folders(opened.saved_config())
    if not batches:
        raise UserError(f"run {opened.id} writes no questions to files: only runs with llm.kind=batch do")
    for batch in batches:
        if not batch.is_dir():
            raise UserError(
                f"the run's batch folder {batch} is missing: put it back, or run this in the folder that it was moved to"
            )
    return list_open_questions(batches)


def print_unreadable_answers(waiting: Sequence[OpenQuestion]) -> None:
    """Print which answers could not be read and why, with the numbers under which they are asked for again."""
    from simia.llm.question_files import list_unreadable_answers

    lines = list_unreadable_answers(waiting)
    for line in lines[:MOST_SHOWN]:
        say(line)
    if len(lines) > MOST_SHOWN:
        say(f"and {len(lines) - MOST_SHOWN} more answers that cannot be used")
