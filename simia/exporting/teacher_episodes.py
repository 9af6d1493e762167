"""Filter the episodes of a teacher's rollout: keep some, and record why each other one was dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simia.errors import Issue
from simia.jobs import Run
from simia.quality.teacher_filters import TeacherFilters, find_teacher_fault
from simia.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class DroppedEpisode:
    """An episode that is not exported. `id`: of the trajectory."""

    id: str | None
    item: str
    issue: Issue


@dataclass(slots=True)
class TeacherEpisodes:
    """Reads rollouts whose config has `teacher`. `dropped` is complete when all rows have been read."""

    dropped: list[DroppedEpisode] = field(default_factory=list)

    def select(self, run: Run) -> Iterator[Trajectory]:
        """Yield the episodes of a run that the filters of its config keep, in the order of the plan."""
        config = run.saved_config()
        filters = TeacherFilters.model_validate(config["teacher"])
        accept = float(config.get("accept", 1.0))
        best: dict[str, float] = defaultdict(float)
        for item, row in iterate_episodes(run):
            best[item.spec["task"]] = max(best[item.spec["task"]], (row.get("reward") or {}).get("value") or 0.0)
        for item, row in iterate_episodes(run):
            t = Trajectory.from_row(row)
            fault = find_teacher_fault(t, filters, best=best[item.spec["task"]], accept=accept)
            if fault is None:
                yield t
            else:
                self.dropped.append(DroppedEpisode(t.id, item.id, fault))


def has_teacher_filters(run: Run) -> bool:
    """Whether a run is a rollout whose config has filters for a teacher."""
    return run.is_rollout and run.saved_config().get("teacher") is not None


def iterate_episodes(run: Run) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Items with the rows of their episodes."""
    for item in run.ledger.items():
        body = run.ledger.result(item.id)
        if body is not None and body["trajectory"]:
            yield item, body["trajectory"]
