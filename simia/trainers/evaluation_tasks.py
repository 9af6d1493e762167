"""Refuse to train on tasks that are for evaluation only, such as tau2's: scores of such a policy cannot be compared with others."""

from __future__ import annotations

from collections.abc import Sequence

from simia.envs.several_packs import CombinedPack
from simia.errors import UserError
from simia.pack import Pack
from simia.task import Task
from simia.terminal import write_count


def refuse_evaluation_tasks(pack: Pack, tasks: Sequence[Task], setting: str, *, allowed: bool) -> None:
    """Raise `UserError` if any of the tasks to train on is for evaluation only, unless the setting allows it.

    Args:
        pack: The pack, or the combined one of several.
        tasks: The tasks to train on.
        setting: Name of the setting that allows it, for the message.
        allowed: Value of that setting.
    """
    marked = [] if allowed else [task for task in tasks if is_evaluation_task(pack, task)]
    if not marked:
        return
    raise UserError(
        f"pack {pack.name}: {len(marked):,} of {write_count(len(tasks), 'task')} to train on marked as for evaluation only, such as {marked[0].id}: train on another split "
        f"or on seeds (simia pack new --from trajectories), or set {setting}=true"
    )


def is_evaluation_task(pack: Pack, task: Task) -> bool:
    """Whether the task's pack is for evaluation (`evaluation: true`), or the task has the tag `evaluation`."""
    member = pack.members[task.id.partition("/")[0]] if isinstance(pack, CombinedPack) else pack
    return member.evaluation or "evaluation" in task.tags
