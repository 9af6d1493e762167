"""Select the tasks of a pack that an environment plays, by its settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from simia.envs.config import DifficultyFilter, EnvironmentConfig
from simia.errors import UserError
from simia.pack import Pack
from simia.task import Task
from simia.terminal import write_count

log = logging.getLogger(__name__)


def filter_by_difficulty(pack: str, tasks: list[Task], wanted: DifficultyFilter) -> list[Task]:
    """Return the tasks whose measured difficulty is within the filter. Raises `UserError` if there are none, or none was measured."""
    measured = {task.id: task.measured[wanted.agent] for task in tasks if wanted.agent in task.measured}
    if not measured:
        known = sorted({agent for task in tasks for agent in task.measured})
        names = f"; measured agents: {', '.join(known)}" if known else ""
        raise UserError(
            f"pack {pack}: difficulty.agent: no task was measured with {wanted.agent!r}: run simia pack difficulty{names}"
        )
    kept = [task for task in tasks if task.id in measured and wanted.low <= measured[task.id].rate <= wanted.high]
    if not kept:
        raise UserError(
            f"pack {pack}: difficulty: none of {write_count(len(measured), 'measured task')} has a rate from {wanted.low} to {wanted.high}"
        )
    if len(measured) < len(tasks):
        log.warning(
            "pack %s: %d of %d tasks were not measured with %s, and are not played",
            pack,
            len(tasks) - len(measured),
            len(tasks),
            wanted.agent,
        )
    return kept


def select_tasks(pack: Pack, config: EnvironmentConfig, tags: Sequence[str] = ()) -> list[Task]:
    """Return the tasks that the settings select and that have all of the tags. Raises `UserError` if there are none."""
    tasks = [pack.task(name) for name in config.tasks] if config.tasks else pack.tasks
    if config.split is not None:
        splits = sorted({task.split for task in pack.tasks})
        tasks = [task for task in tasks if task.split == config.split]
        if not tasks:
            raise UserError(
                f"pack {pack.name} has no task of split {config.split!r}; its splits: {', '.join(splits) or 'none'}"
            )
    if not tasks:
        raise UserError(f"pack {pack.name} has no tasks: rollouts need a tasks.jsonl")
    if tags:
        known = sorted({tag for task in tasks for tag in task.tags})
        tasks = [task for task in tasks if set(tags) <= set(task.tags)]
        if not tasks:
            raise UserError(
                f"pack {pack.name} has no task tagged {', '.join(tags)}; its tags: {', '.join(known) or 'none'}"
            )
    if config.difficulty is not None:
        tasks = filter_by_difficulty(pack.name, tasks, config.difficulty)
    return tasks[: config.limit]
