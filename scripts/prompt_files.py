"""Ask questions by hand: unanswered rows of recordings become numbered files, and files of replies become their replies.

    python -m scripts.prompt_files write FOLDER RECORDING...
    python -m scripts.prompt_files read FOLDER RECORDING...

In place of recordings, name the one folder of a run with `llm.kind: batch`: its questions without an answer are written in groups of 20, and
the replies go to its `results/`, from where the next session of the run takes them.

`write` makes `FOLDER/001.txt` and so on, each with the messages of one request, and a README.md that lists the batches: each is for one
context of a model that has seen nothing else. `read` takes `FOLDER/replies/001.txt` and so on, as they are, and stores the prompt files that
the rows name. Name the same recordings in the same order both times.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import orjson

from scripts.record_run import MOST, copy_prompts
from simia.errors import UserError
from simia.llm.question_files import list_open_questions, read_named_rows
from simia.llm.replay import RecordedReply, append_recording, read_recording
from simia.llm.types import Reply, Request

README = """\
# {count} requests

Each file `NNN.txt` is one request to a language model: its system message, then its user message. Write the model's reply to
`replies/NNN.txt`: the text that the request asks for, in the form that it asks for, and nothing else. Answer each request from itself alone.

One context answers one group, and sees nothing but that group's files:

{groups}
"""


def number_rows(recordings: Sequence[Path]) -> list[tuple[str, Path, RecordedReply]]:
    """All rows in the order of the recordings, with the numbers of their files."""
    rows = [(path, row) for path in recordings for row in read_recording(path)]
    return [(f"{number:03}", path, row) for number, (path, row) in enumerate(rows, start=1)]


def group_open_questions(batch: Path) -> list[tuple[str, Path, RecordedReply]]:
    """The questions of a batch folder that have no answer, once each, numbered, in groups that each name a batch."""
    answered = {name for path in (batch / "results").glob("*.jsonl") for _, name in read_named_rows(path)}
    start = len(answered)
    return [
        (
            f"{start + at + 1:03}",
            batch,
            RecordedReply(
                key=question.name,
                request=Request(messages=question.body["messages"]),
                batch=f"{batch.name}-{start + 1:03}-{at // MOST + 1}",
            ),
        )
        for at, question in enumerate(list_open_questions([batch]))
    ]


def write_prompts(folder: Path, recordings: Sequence[Path]) -> int:
    """Write a file for each row; how many. Raises `UserError` for a batch of more than 20 prompts."""
    rows = group_open_questions(recordings[0]) if recordings[0].is_dir() else number_rows(recordings)
    folder.mkdir(parents=True, exist_ok=True)
    groups: list[str] = []
    for batch, members in groupby(rows, key=lambda each: each[2].batch):
        numbers = [number for number, _, _ in members]
        if len(numbers) > MOST:
            raise UserError(f"batch {batch} has {len(numbers)} prompts, at most {MOST}: ask in several contexts")
        groups.append(f"- group {len(groups) + 1}: {numbers[0]} to {numbers[-1]}")
    for number, _, row in rows:
        messages = row.request.messages if row.request else []
        text = "\n\n".join(f"=== {message['role']} ===\n{message['content']}" for message in messages)
        (folder / f"{number}.txt").write_text(f"{text}\n", encoding="utf-8")
    (folder / "README.md").write_text(README.format(count=len(rows), groups="\n".join(groups)), encoding="utf-8")
    return len(rows)


def read_replies(folder: Path, recordings: Sequence[Path]) -> int:
    """Put the replies into the recordings; how many. Raises `UserError` if one is missing: then no recording is changed."""
    batch = recordings[0] if recordings[0].is_dir() else None
    rows = group_open_questions(batch) if batch else number_rows(recordings)
    files = {number: folder / "replies" / f"{number}.txt" for number, _, _ in rows}
    if missing := [number for number, path in files.items() if not path.is_file()]:
        raise UserError(f"{folder / 'replies'}: no reply to {', '.join(missing[:10])}: {len(missing)} are missing")
    for number, _, row in rows:
        row.reply = Reply(text=files[number].read_text(encoding="utf-8").strip())
    if batch is not None:
        write_answers(batch, [row for _, _, row in rows])
        return len(rows)
    for path in recordings:
        copy_prompts(
            {name: hashed for _, source, row in rows if source == path for name, hashed in row.prompts.items()},
            path.parent / "prompts" / path.stem,
        )
    for path in recordings:
        path.unlink()
        append_recording((row for _, source, row in rows if source == path), path)
    return len(rows)


def write_answers(batch: Path, rows: Sequence[RecordedReply]) -> None:
    """Write replies as a file of a batch folder's results, each with the name of its group."""
    number = len(list((batch / "results").glob("replies-*.jsonl"))) + 1
    lines = [{"custom_id": row.key, "text": row.reply.text if row.reply else "", "batch": row.batch} for row in rows]
    target = batch / "results" / f"replies-{number:04}.jsonl"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("write", "read"))
    parser.add_argument("folder", type=Path, help="the folder of the prompts; the replies lie in its folder replies")
    parser.add_argument(
        "recordings", type=Path, nargs="+", help="recordings whose rows have no reply, or a batch folder"
    )
    words = parser.parse_args()
    done = (write_prompts if words.what == "write" else read_replies)(words.folder, words.recordings)
    print(f"{done} {'prompts written to' if words.what == 'write' else 'replies read from'} {words.folder}")


if __name__ == "__main__":
    main()
