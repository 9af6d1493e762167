"""A pack's seed trajectories, recorded: the scripts of its tasks played in its own world, so that every result is the tools'."""

from __future__ import annotations

from typing import Any

import orjson

from simia.envs.environment import Environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.errors import Code, UserError
from simia.task import Task
from simia.trajectory import Trajectory


async def record_seeds(environment: Environment) -> list[bytes]:
    """Rows of the seeds of the tasks marked `seed`. Raises `UserError` for one whose reward is not 1.

    `environment` must be opened with the scripted user. What every seed leaves to the pack (system text, tools) is left out.
    """
    rows = []
    for task in environment.tasks:
        if task.seed:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
            reward = trajectory.reward
            if reward is None or reward.value != 1.0:
                why = " ".join(reward.rationale.split())[:200] if reward else "it has no reward"
                raise UserError(f"task {task.id}: its script does not score 1 ({why}); see simia pack gate")
            rows.append(orjson.dumps(seed_row(trajectory, task)))
    if not rows:
        raise UserError(f"pack {environment.pack.name} has no task marked as seed")
    return rows


def seed_row(trajectory: Trajectory, task: Task) -> dict[str, Any]:
    extra = {"tags": task.tags, "summary": task.instruction}
    row: dict[str, Any] = {"version": trajectory.version, "task_id": task.id}
    messages = [m.model_copy(update={"error": m.error and Code.TOOL_ERROR}) for m in trajectory.messages]
    row["messages"] = [m.model_dump(mode="json", exclude_defaults=True) for m in messages]
    return {**row, "extra": {name: value for name, value in extra.items() if value}}
