"""`simia runs questions` and `simia runs answers`: the requests of a batch as text files, and their answers."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from simia.cli.open_questions import (
    find_batches,
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
    from simia.llm.question_files import list_open_questions, number_questions, write_questions

    batches = find_batches(runs, run)
    waiting = list_open_questions(batches)
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
    files = write_questions(waiting, folder, run, number_questions(batches))
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
    from simia.llm.question_files import (
        check_folder,
        list_open_questions,
        number_questions,
        read_answer_file,
        read_answers,
        read_stored_answers,
    )

    batches = find_batches(runs, run)
    names = number_questions(batches)
    check_folder(folder, run, names)
    waiting = list_open_questions(batches)
    given = {path.stem for path in (folder / "answers").glob("*.txt")}
    if strange := sorted(given - names.keys()):
        say_error(
            f"note: {folder / 'answers'} has files of no question: {', '.join(f'{each}.txt' for each in strange[:10])}"
        )
    stored = read_stored_answers(batches)
    missing = read_answers(waiting, folder)
    answered = given & names.keys() - {question.number for question in waiting}
    if waiting and len(missing) == len(waiting) and not answered:
        raise UserError(
            f"{folder / 'answers'}: no answer to {', '.join(missing[:10])}; expected text in {missing[0]}.txt"
        )
    new = write_count(len(waiting) - len(missing), "answer")
    say(f"{new} stored, {write_count(len(missing), 'question')} without an answer")
    changed = [each for each in sorted(answered) if read_answer_file(folder, each) not in ("", stored.get(names[each]))]
    if changed:
        say(f"changed after it was stored, without effect: {', '.join(changed)}; a stored answer is final")
    if missing:
        say(f"no answer yet: {', '.join(missing)}; a resume goes on with the others")
    say(
        "next: the command that asked, once more"
        if is_batch_folder(run)
        else f"next: simia runs resume {run}{name_runs(runs)}"
    )
