"""Long tasks out of short ones, to see what a simulated world forgets.

A pack's tasks take a few calls each, and all of that stands in one prompt. Here their solutions follow each other, and at the end every
look-up among them is made once more: what was shown or changed at the beginning is read back when it is long past.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simia.errors import UserError
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import compact
from simia.worlds.simulated.ledger import READS


def chain(tasks: Sequence[Task], tools: Sequence[ToolSpec]) -> Task:
    """One long task of several. It is there to be replayed, not to be solved: it has no script, and no words of the user's but theirs.

    Which tools only read is told by their names. Raises `ValueError` for tasks that set the world up in other ways than by patches.
    """
    lookups = {tool.name for tool in tools if READS.match(tool.name)}
    if any(task.initial.keys() - {"patch"} for task in tasks):
        raise ValueError("tasks with a state of their own cannot be chained")
    initial: dict[str, Any] = {}
    for task in tasks:
        initial = merged(initial, task.initial)
    actions = [action for task in tasks for action in task.actions]
    asked = {
        (action.by, action.name, compact(action.arguments)): action for action in actions if action.name in lookups
    }
    return Task(
        id="+".join(task.id for task in tasks),
        split=tasks[0].split,
        instruction="\n".join(task.instruction or task.opening or "" for task in tasks),
        initial=initial,
        reference=[*actions, *asked.values()],
    )


def chained_pack(pack: Pack, folder: Path, *, calls: int, split: str | None = None) -> Path:
    """A copy of the pack in `folder` whose tasks are joined, in their order, until each has at least `calls` calls; what is left over at
    the end is dropped. A folder that is there already stays as it is. Raises `UserError` where there are too few calls."""
    if (folder / "pack.yaml").is_file():
        return folder
    tools = [*pack.tools, *pack.user_tools]
    found: list[Task] = []
    waiting: list[Task] = []
    for task in pack.tasks:
        if task.actions and split in (None, task.split) and not task.initial.keys() - {"patch"}:
            waiting.append(task)
        if sum(len(each.actions) for each in waiting) >= calls:
            found.append(chain(waiting, tools))
            waiting = []
    path = pack.path_of("tasks")
    if not found or path is None or pack.root is None:
        raise UserError(f"the tasks of pack {pack.name} have fewer than {calls} calls together: chain fewer")
    shutil.copytree(pack.root, folder, dirs_exist_ok=True)
    rows = (task.model_dump_json(exclude_defaults=True) for task in found)
    (folder / path.relative_to(pack.root)).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return folder


def merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        found[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found
