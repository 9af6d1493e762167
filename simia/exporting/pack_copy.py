"""Copy a pack into an export: completely, or without everything that solves and judges its tasks.

An exported pack leaves this machine, so a link that leads out of the pack is refused: following it would copy a private file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from simia.authoring.pack_draft import replace_file, replace_rows, replace_tasks, write_yaml
from simia.errors import UserError
from simia.pack import Pack
from simia.pack_files import RECORD, is_leftover, parse_yaml
from simia.sandbox.copies import find_parts
from simia.task import Task

JUDGING_KEYS = ("tests", "checks", "seeds", "references", "graph", "instructions")
PUBLIC_FIELDS = ("id", "split", "opening", "initial", "tools", "limits", "tags")


def copy_pack(pack: Pack, out: Path, tasks: Sequence[Task]) -> None:
    """Copy a pack with these tasks only; references and seeds of other tasks are left out.

    Raises:
        UserError: A link leads out of the pack, or a file cannot be copied.
    """
    root = find_root(pack)
    copy_folder(pack, out, set())
    ids = {task.id for task in tasks}
    for key, name in (("references", "task_id"), ("seeds", "task_id")):
        if (source := pack.path_of(key)) is not None:
            lines = [line for line in source.read_bytes().splitlines() if line.strip()]
            kept = [line for line in lines if orjson.loads(line).get(name) in ids]
            replace_file(out / source.relative_to(root), b"".join(line + b"\n" for line in kept))
    if (source := pack.path_of("tasks")) is not None:
        replace_tasks(out / source.relative_to(root), tasks)


def copy_pack_without_solutions(pack: Pack, out: Path, tasks: Sequence[Task]) -> None:
    """Copy what an agent's machine may hold: code, tools, policy, state, and tasks with only the instructions for the agent.

    Raises:
        UserError: A link leads out of the pack, or a file cannot be copied.
    """
    root, head = find_root(pack), pack.file
    assert head is not None
    names = {str(path.relative_to(root)) for key in JUDGING_KEYS if (path := pack.path_of(key)) is not None}
    names |= {*(head.executable.hidden if head.executable else []), RECORD}
    copy_folder(pack, out, find_parts(root.resolve(), names))
    data = {key: value for key, value in parse_yaml(root / "pack.yaml").items() if key not in JUDGING_KEYS}
    if "executable" in data:
        data["executable"] = {key: value for key, value in data["executable"].items() if key != "hidden"}
    if "schema" in data:
        data["schema"] = {key: value for key, value in data["schema"].items() if key != "constraints"}
    replace_file(out / "pack.yaml", write_yaml(data).encode())
    if (source := pack.path_of("tasks")) is not None:
        replace_rows(out / source.relative_to(root), map(strip_solution, tasks))


def strip_solution(task: Task) -> dict[str, Any]:
    """Return the row of a task without its solution and its reward."""
    row = task.model_dump(mode="json", exclude_unset=True, include=set(PUBLIC_FIELDS))
    words = task.goals[0].query if task.goals else task.instruction
    return {**row, **({"instruction": words} if words else {})}


def copy_folder(pack: Pack, out: Path, gone: set[str]) -> None:
    """Copy the pack's folder without the parts `gone` (paths in it), files of version control and backups of editors. Links to files are
    replaced by the files; those to parts that are left out are left out too."""
    root = find_root(pack).resolve()
    check_links(root)

    def skip(folder: str, names: list[str]) -> list[str]:
        paths = [Path(folder, name) for name in names]
        real = [path.resolve().relative_to(root) for path in paths]
        return [
            path.name
            for path, target in zip(paths, real, strict=True)
            if is_leftover(path.name)
            or not gone.isdisjoint(map(str, (path.relative_to(root), target, *target.parents)))
        ]

    try:
        shutil.copytree(root, out, dirs_exist_ok=True, ignore=skip)
    except shutil.Error as error:
        path, _, reason = error.args[0][0]
        raise UserError(f"{pack.name}: {path} cannot be copied ({reason}): make it readable") from None


def check_links(root: Path) -> None:
    """Raise `UserError` for a link in the pack that leads out of it, or to a folder or nothing."""
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            path = Path(folder, name)
            if not path.is_symlink():
                continue
            if not path.resolve().is_relative_to(root):
                raise UserError(f"{path} is a link to a place outside of the pack: replace it with the file itself")
            if not path.is_file():
                raise UserError(f"{path} is a link to a folder or to nothing: replace it with a file, or remove it")


def find_root(pack: Pack) -> Path:
    """Return the pack's folder. Raises `UserError` for a pack that was not read from one."""
    if pack.root is None:
        raise UserError(f"pack {pack.name} has no folder: load it with Pack.load before it is exported")
    return pack.root
