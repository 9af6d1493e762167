"""Rewards of single turns, one number for each message of the agent, which training adds to the episode's value.

    judge   1/n for each of n turns that the judge calls good
    calls   1/m for each of the m calls of the reference solution, in the turn that makes it
    value   how far the turn brings the number of the task's value parts from `low` to `high`; less than 0 where it falls

Each sums to at most 1 over an episode, however many turns it has, and is multiplied by `weight`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field

from simia.config import Config
from simia.envs.rewards.call_matching import match_calls
from simia.envs.rewards.environment_value import is_bounded_number, scale_value
from simia.envs.rewards.trace import Made, fits_reference, locate_calls
from simia.errors import UserError
from simia.reward_spec import TraceSpec, ValueSpec
from simia.task import Action, Task
from simia.trajectory import Trajectory

HISTORY = "value_steps"  # key of the evidence: the value parts' numbers at the start and after each turn


class StepRewardSettings(Config):
    """Rewards of single turns."""

    by: Literal["judge", "calls", "value"] = Field(
        description="What a turn is rewarded for. judge: a positive verdict of a model. calls: calls of the reference solution. "
        "value: progress in the task's value parts."
    )
    weight: float = Field(0.5, gt=0, description="Maximum that the turns of an episode add to its reward.")


def list_references(task: Task) -> list[Action]:
    """Return the agent's calls of the reference solution; for a task with goals, of all goals."""
    calls = task.actions or [call for goal in task.goals for call in goal.calls]
    return [call for call in calls if call.by == "agent"]


def check_tasks(settings: StepRewardSettings, tasks: Sequence[Task]) -> None:
    """Raise `UserError` if no task can have rewards of single turns."""
    if settings.by == "calls" and tasks and not any(map(list_references, tasks)):
        raise UserError(
            "step_rewards.by is calls, but no task has a reference solution: set step_rewards.by to judge or value"
        )
    if settings.by == "value" and tasks and not any(map(list_value_parts, tasks)):
        raise UserError(
            "step_rewards.by is value, but no task has a reward part of kind value: set step_rewards.by to judge or calls"
        )


def list_value_parts(task: Task) -> list[ValueSpec]:
    return [part for part in task.reward.parts if isinstance(part, ValueSpec)]


def score_calls(trajectory: Trajectory, task: Task) -> list[float]:
    """Share of the reference's calls that each turn makes; a call that is made twice counts once, where it is made first."""
    wanted = list_references(task)
    spec = next((part for part in task.reward.parts if isinstance(part, TraceSpec)), TraceSpec())
    turns = [at for at, message in enumerate(trajectory.messages) if message.role == "assistant"]
    shares = dict.fromkeys(turns, 0.0)
    made = [(at, call) for at, _, call in locate_calls(trajectory) if at in shares]

    def fits(action: Action, call: tuple[int, Made]) -> bool:
        return fits_reference(action, call[1], spec)

    for place in match_calls(wanted, made, fits).values():
        shares[made[place][0]] += 1 / len(wanted)
    return list(shares.values())


def score_values(trajectory: Trajectory, task: Task) -> list[float] | None:
    """Progress of the value parts in each turn, a mean over the parts by weight; None where the evidence lacks their numbers."""
    parts = list_value_parts(task)
    turns = sum(message.role == "assistant" for message in trajectory.messages)
    if not parts:
        return [0.0] * turns
    rows = (trajectory.evidence or {}).get(HISTORY) or []
    if len(rows) != turns + 1 or not all(is_bounded_number(row.get(part.path)) for row in rows for part in parts):
        return None
    total = sum(part.weight for part in parts)
    levels = [sum(scale_value(row[part.path], part) * part.weight for part in parts) / total for row in rows]
    return [after - before for before, after in pairwise(levels)]
