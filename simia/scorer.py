"""The interface of a scorer, which judges an episode in place of the rules of its task."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from simia.reward import Reward
from simia.task import Task
from simia.trajectory import Trajectory


class Scorer(Protocol):
    """Judges an episode by its record."""

    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        """Score an episode. A failure of infrastructure is not raised: the value is None then."""


@runtime_checkable
class ScheduledScorer(Scorer, Protocol):
    """A scorer that depends on the number of training steps so far."""

    def note_step(self, step: int) -> None:
        """Set how many steps the training has made."""
