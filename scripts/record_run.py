"""Write a run's replies as a recording, with the prompt files that the run was made with.

A batch is what one context of a model answered: 20 prompts at most. Rows are appended, so a recording may have several batches:

    python -m scripts.record_run runs/mine NAME --batch mine-1 --estimated

This writes `tests/recordings/NAME.jsonl` and `tests/recordings/prompts/NAME/`. `--estimated` marks token counts that no endpoint counted.
`--answers FOLDER` takes the names of the batches from the answers of a batch folder that `scripts.prompt_files` wrote.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from simia import search_path
from simia.errors import UserError
from simia.jobs import Run
from simia.llm.batch_files import read_row
from simia.llm.replay import UNNAMED, RecordedReply, append_recording, read_recording
from simia.llm.types import Reply, Request, make_reply_key
from simia.trajectory import Usage

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"
MOST = 20  # prompts in one context


def record_run(
    folder: Path,
    name: str,
    batch: str,
    *,
    only: str = "*",
    estimated: bool = False,
    answers: Path | None = None,
    recordings: Path = RECORDINGS,
) -> tuple[Path, int]:
    """Append the replies of a run to a recording: its path, and how many rows were added. `only`: a pattern of samples' names.

    `answers`: a batch folder whose answers name their own batches. Raises `UserError` if a prompt file has changed since the run was made,
    and for a batch of more than 20 prompts.
    """
    batches = read_batch_names(answers) if answers is not None else {}
    path = recordings / f"{name}.jsonl"
    known = list(read_recording(path)) if path.is_file() else []
    with contextlib.closing(Run.read_only(folder.parent, str(folder))) as run:
        facts = run.ledger.meta("facts")
        prompts = {file: hashed for file, hashed in facts["prompts"].items() if file != UNNAMED}
        plans = {item.id: item.spec.get("plan") for item in run.ledger.items()}
        recorded = {(row.draw, row.key) for row in known}
        rows = [
            RecordedReply(
                key=stored["key"],
                request=Request(**stored["request"]),
                draw=stored["draw"],
                reply=mark_estimate(Reply.model_validate(stored["reply"]), estimated=estimated),
                model=name_model(facts, stored["key"], Request(**stored["request"]), stored["draw"]),
                batch=batches.get(stored["key"], batch),
                prompts=prompts,
                plan=plans.get(stored["draw"].partition(".")[0]),
            )
            for stored in run.ledger.replies()
            if (stored["draw"], stored["key"]) not in recorded and fnmatch(stored["draw"], only)
        ]
    sizes = Counter(row.batch for row in [*known, *rows])
    if large := next((name for name, size in sizes.items() if name and size > MOST), None):
        raise UserError(f"batch {large} would have {sizes[large]} prompts, at most {MOST}: ask in several contexts")
    copy_prompts(prompts, recordings / "prompts" / name)
    return path, append_recording(rows, path)


def name_model(facts: dict[str, Any], key: str, request: Request, draw: str) -> str:
    """The model that gave a reply: the judge, that of a role whose key it is, or the run's."""
    if ".judge." in draw and "judge" in facts:
        return str(facts["judge"]["model"])
    roles = facts.get("roles", {}).values()
    names = [each["model"] for each in roles if make_reply_key(each["alias"], each["model"], request, draw) == key]
    return str(names[0] if names else facts["model"])


def read_batch_names(folder: Path) -> dict[str, str]:
    """Reply key → the name of the batch in which it was answered, of a folder of batch files."""
    found = {}
    for path in sorted((folder / "results").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            row, name = read_row(line)
            if name is not None and isinstance(row.get("batch"), str):
                found[name.removeprefix("simia-")] = row["batch"]
    return found


def mark_estimate(reply: Reply, *, estimated: bool) -> Reply:
    if not estimated or reply.usage == Usage():
        return reply
    return reply.model_copy(update={"usage": reply.usage.model_copy(update={"estimated": True})})


def copy_prompts(hashes: dict[str, str], folder: Path) -> None:
    """Copy these prompt files. Raises `UserError` for a file that is not the one of this hash."""
    sources = {name: search_path.find_resource("prompts", name) for name in hashes}
    for name, source in sources.items():
        if search_path.file_hash(source) != hashes[name]:
            raise UserError(
                f"prompt {name} has changed since the run was made: record with the prompt files of the run"
            )
    for name, source in sources.items():
        target = folder / (Path(name).name if Path(name).is_absolute() else name)  # a prompt of a recipe of one's own
        if target.is_file() and target.read_bytes() != source.read_bytes():
            raise UserError(f"{target} differs from today's file: choose another name for the recording")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("name", help="name of the recording")
    parser.add_argument("--batch", required=True, help="name of the context that answered")
    parser.add_argument("--only", default="*", help="samples to record, as '*.judge.*'; default: all")
    parser.add_argument("--estimated", action="store_true", help="no endpoint counted the tokens")
    parser.add_argument("--answers", type=Path, help="batch folder whose answers name their batches")
    words = parser.parse_args()
    path, count = record_run(
        words.run, words.name, words.batch, only=words.only, estimated=words.estimated, answers=words.answers
    )
    print(f"{count} rows added to {path}")


if __name__ == "__main__":
    main()
