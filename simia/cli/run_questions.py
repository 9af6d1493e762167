"""`simia runs questions` and `simia runs answers`: the requests of a batch as text files, and their answers."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from simia.cli.open_questions import (
    find_batches,
    find_open_questions,
    is_batch_folder,
    print_unreadable_answers,
)
from simia.cli.options import RUN, RUNS
from simia.cli.terminal_output import name_runs
from simia.errors import UserError
from simia.jobs import Run
from simia.terminal import say, say_error, write_count


def questions(
    run: RUN,
    folder: Annotated[Path, typer.Argument(help="Folder for the text files.")],
    runs: RUNS = Path("runs"),
) -> None:
    """Write the unanswered requests of a run with llm.kind=batch as text files, to be answered by hand or in a chat window. RUN may also be the
    folder of a batch."""
    from simia.llm.question_files import write_questions

    waiting = find_open_questions(runs, run)
    if not waiting and is_batch_folder(run):
        say("no question waits for an answer; next: the command that asked, once more")
        return
    if not waiting:
        with contextlib.closing(Run.read_only(runs, run)) as opened:
            complete = opened.condition().complete
        words, next_word = (
            ("the run is complete", "show") if complete else ("no question waits for an answer", "resume")
        )
        say(f"{words}; next: simia runs {next_word} {run}{name_runs(runs)}")
        return
    files = write_questions(waiting, folder)
    say(f"{write_count(len(files), 'question')}: {', '.join(path.name for path in files)} in {folder}")
    print_unreadable_answers(waiting)
    say(f"ask each file in a new chat, and save the whole answer as {folder / 'answers' / files[0].name} and so on")
    say(f"next: simia runs answers {run} {shlex.quote(str(folder))}{name_runs(runs)}")


def answers(
    run: RUN,
    folder: Annotated[Path, typer.Argument(help="Folder that `simia runs questions` wrote.")],
    runs: RUNS = Path("runs"),
) -> None:
    """Store the answers in FOLDER/answers for the next `simia runs resume`. Some answers may be missing."""
    from simia.llm.question_files import list_numbers, list_open_questions, read_answers

    batches = find_batches(runs, run)
    waiting = list_open_questions(batches)
    given = {path.stem for path in (folder / "answers").glob("*.txt")}
    numbers, open_numbers = list_numbers(batches), {question.number for question in waiting}
    if strange := sorted(given - numbers):
        say_error(
            f"note: {folder / 'answers'} has files of no question: {', '.join(f'{each}.txt' for each in strange[:10])}"
        )
    missing = read_answers(waiting, folder)
    if waiting and len(missing) == len(waiting):
        raise UserError(
            f"{folder / 'answers'}: no answer to {', '.join(missing[:10])}; expected text in {missing[0]}.txt"
        )
    stored = write_count(len(waiting) - len(missing), "answer")
    say(f"{stored} stored, {write_count(len(missing), 'question')} without an answer")
    if before := sorted((given & numbers) - open_numbers):
        say(f"stored before, and final: {', '.join(before)}")
    if missing:
        say(f"no answer yet: {', '.join(missing)}; a resume goes on with the others")
    say(
        "next: the command that asked, once more"
        if is_batch_folder(run)
        else f"next: simia runs resume {run}{name_runs(runs)}"
    )
