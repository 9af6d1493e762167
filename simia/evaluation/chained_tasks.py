"""Join short tasks to long ones, to measure what a simulated world forgets.

A pack's tasks have a few calls each, which all fit one prompt. Here the solutions of several tasks follow each other, and at the end each
of their look-ups is repeated, so that values from the beginning are read again many calls later.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simia.authoring.pack_draft import replace_file
from simia.errors import UserError
from simia.pack import Pack
from simia.quality.entity_ledger import READS
from simia.search_path import file_hash
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import digest, write_compact_json

PASSED_OVER = {"__pycache__", ".git", ".venv"}


def chain_tasks(tasks: Sequence[Task], tools: Sequence[ToolSpec], ends: Sequence[str] = ()) -> Task:
    """Join several tasks to one long task. It is meant to be replayed, not solved: it has no script, and its instruction is the tasks' texts.

    `ends`: tools that end an episode; of their calls only the last one of the last task is kept, at the very end. Look-ups are recognised
    by the names of their tools. Raises `ValueError` for tasks whose initial state is not given by patches.
    """
    lookups = {tool.name for tool in tools if READS.match(tool.name)}
    if any(task.initial.keys() - {"patch"} for task in tasks):
        raise ValueError("tasks with a state of their own cannot be chained")
    initial: dict[str, Any] = {}
    for task in tasks:
        initial = merge_initial(initial, task.initial)
    actions = [action for task in tasks for action in task.actions if action.name not in ends]
    last = [action for action in tasks[-1].actions if action.name in ends][-1:]
    asked = {
        (action.by, action.name, write_compact_json(action.arguments)): action
        for action in actions
        if action.name in lookups
    }
    return Task(
        id="+".join(task.id for task in tasks),
        split=tasks[0].split,
        instruction="\n".join(task.instruction or task.opening or "" for task in tasks),
        initial=initial,
        reference=[*actions, *asked.values(), *last],
    )


def make_chained_pack(pack: Pack, folder: Path, *, calls: int, split: str | None = None) -> Path:
    """Copy the pack, with its tasks joined in order until each has at least `calls` calls; the rest at the end is dropped.

    Tasks of another split or with a state of their own are skipped. The copy is in `folder`, named by a digest of the pack's files and the
    arguments: an existing copy is complete and up to date, and is returned as it is.
    Raises `UserError` if there are too few calls, or if the copy would be inside the copied pack.
    """
    path = pack.path_of("tasks")
    if path is None or pack.root is None:
        raise UserError(f"pack {pack.name} has no tasks to chain: it needs a tasks.jsonl")
    if folder.resolve().is_relative_to(pack.root.resolve()):
        raise UserError(
            f"{folder} is inside the pack that would be copied into it: choose a folder outside of the pack with --runs"
        )
    target = folder / f"pack-{digest([hash_files(pack.root), calls, split])[:12]}"
    if target.is_dir():
        return target
    tools = [*pack.tools, *pack.user_tools]
    found: list[Task] = []
    waiting: list[Task] = []
    length = 0
    for task in pack.tasks:
        continuing = sum(action.name not in pack.ends for action in task.actions)
        if continuing and split in (None, task.split) and not task.initial.keys() - {"patch"}:
            waiting.append(task)
            length += continuing
        if length >= calls:
            found.append(chain_tasks(waiting, tools, pack.ends))
            waiting, length = [], 0
    if not found:
        raise UserError(
            f"the tasks of pack {pack.name} that can be chained have fewer than {calls} calls in total: choose a smaller --chain"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=folder) as draft:
        made = Path(draft) / "pack"
        shutil.copytree(pack.root, made, symlinks=True, ignore=shutil.ignore_patterns(*PASSED_OVER))
        rows = "".join(f"{task.model_dump_json(exclude_defaults=True)}\n" for task in found)
        replace_file(made / path.relative_to(pack.root), rows.encode())
        try:
            made.rename(target)
        except OSError:  # another process has made the same copy meanwhile
            if not target.is_dir():
                raise
    return target


def hash_files(root: Path) -> list[tuple[str, str]]:
    """List every file to copy, with its hash."""
    found = [path for path in root.rglob("*") if path.is_file() and not PASSED_OVER & set(path.relative_to(root).parts)]
    return sorted((str(path.relative_to(root)), file_hash(path)) for path in found)


def merge_initial(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        found[key] = merge_initial(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found
