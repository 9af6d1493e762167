"""Records of LLaMA-Factory runs: what the checkpoints of a folder were trained on, and how a named run's data were exported.

LLaMA-Factory resumes from the last checkpoint in `output_dir`, also if it is of other data or of another model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simia.errors import UserError

TRAINING = "simia-training.json"  # beside the checkpoints
EXPORT = "simia-export.json"  # beside a named run's data
OTHERS = {"data": "other data", "model": "another model", "template": "another template"}
BLOCK = 1 << 20  # bytes


def check_resume(folder: Path, whole: Mapping[str, Any]) -> list[str]:
    """Check that the run resumes only from a checkpoint of its own data, model and template. Returns notes.

    Without a record, as in folders of earlier versions, a checkpoint that is older than the data is refused too, and another one is named
    in a note. Raises `UserError`.
    """
    last = find_last_checkpoint(find_output(folder, whole))
    if last is None or not resumes(whole):
        return []
    made = read_record(last.parent / TRAINING)
    if made is None:
        if all(file.stat().st_mtime <= last.stat().st_mtime for file in list_data_files(folder, whole)):
            return [f"the training continues from {last}, which has no record of its data and model"]
        problem = "is older than the data"
    elif others := [words for name, words in OTHERS.items() if made.get(name) != describe_inputs(folder, whole)[name]]:
        problem = f"was trained with {' and '.join(others)}"
    elif made.get("replaced", {}).get(last.name) == hash_files([last / "trainer_state.json"]):
        problem = "is of an earlier training"
    else:
        return []
    raise UserError(
        f"output_dir: {last} {problem}, and LLaMA-Factory would continue from it: name another output_dir, or set "
        f"overwrite_output_dir=true; to continue anyway, set resume_from_checkpoint"
    )


def write_training_record(folder: Path, whole: Mapping[str, Any]) -> None:
    """Write what a training is made of beside its checkpoints, before it starts.

    `replaced`: checkpoints of an earlier training that this one does not use. They remain until it writes its own of the same name.
    """
    file = find_output(folder, whole) / TRAINING
    found: dict[str, Any] = describe_inputs(folder, whole)
    made = read_record(file)
    is_same = made is not None and all(made.get(name) == found[name] for name in OTHERS)
    if is_same and resumes(whole):
        return
    left = [] if resumes(whole) else list_checkpoints(file.parent)
    found["replaced"] = {path.name: hash_files([path / "trainer_state.json"]) for path in left}
    if start := whole.get("resume_from_checkpoint"):
        found["replaced"].pop(Path(str(start)).name, None)
        if made is not None and is_same:  # what this training has written since remains its own
            known = made.get("replaced", {}).items()
            found["replaced"] = {name: of for name, of in found["replaced"].items() if (name, of) in known}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found), encoding="utf-8")


def check_earlier_export(out: Path, given: Mapping[str, Any]) -> None:
    """Raise `UserError` if the folder of a named run was exported with other values of the given settings, or if that is not known."""
    made = read_record(out / EXPORT) or {}
    others = [name for name, value in given.items() if name not in made or made[name] != value]
    if others:
        raise UserError(
            f"{out} is already exported, and {', '.join(others)} may differ there: set out= to another folder, or leave "
            f"{'it' if len(others) == 1 else 'them'} out"
        )


def write_export_record(out: Path, values: Mapping[str, Any]) -> None:
    """Write beside a named run's data with which settings they were exported."""
    (out / EXPORT).write_text(json.dumps(values), encoding="utf-8")


def resumes(whole: Mapping[str, Any]) -> bool:
    """Whether LLaMA-Factory looks for a checkpoint to resume from, by the rules of its `get_train_args`."""
    unable = whole.get("stage") in ("rm", "ppo") and whole.get("finetuning_type") in ("full", "freeze")
    asked = whole.get("resume_from_checkpoint") is None and not whole.get("overwrite_output_dir")
    return asked and bool(whole.get("do_train")) and not unable


def find_output(folder: Path, whole: Mapping[str, Any]) -> Path:
    return folder / str(whole.get("output_dir") or "trainer_output")


def list_checkpoints(output: Path) -> list[Path]:
    """Return the checkpoints in a folder, the last one at the end."""
    found = [path for path in output.glob("checkpoint-*") if path.name[11:].isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name[11:]))


def find_last_checkpoint(output: Path) -> Path | None:
    return next(reversed(list_checkpoints(output)), None)


def describe_inputs(folder: Path, whole: Mapping[str, Any]) -> dict[str, str]:
    """Return a hash of the data's files and names, the model's name and the template."""
    data = f"{whole.get('dataset')} {hash_files(list_data_files(folder, whole))}"
    return {"data": data, "model": str(whole.get("model_name_or_path")), "template": str(whole.get("template"))}


def list_data_files(folder: Path, whole: Mapping[str, Any]) -> list[Path]:
    """Return the files of the data sets to train on; none for those of a hub."""
    place, given = folder / str(whole.get("dataset_dir", "data")), whole.get("dataset")
    info = read_record(place / "dataset_info.json") or {}
    names = given if isinstance(given, list) else str(given or "").split(",")
    entries = [info.get(str(name).strip()) or {} for name in names]
    found = [place / str(entry["file_name"]) for entry in entries if "file_name" in entry]
    inside = [sorted(each for each in file.rglob("*") if each.is_file()) if file.is_dir() else [file] for file in found]
    return [file for files in inside for file in files]


def hash_files(files: list[Path]) -> str:
    """Return a hash of the files' contents; a missing file counts as empty."""
    found = hashlib.blake2b(digest_size=16)
    for file in files:
        if file.is_file():
            with file.open("rb") as read:
                while block := read.read(BLOCK):
                    found.update(block)
    return found.hexdigest()


def read_record(file: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None if there is none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
