"""The interface of what judges an episode in place of the rules that its task names."""

from __future__ import annotations

from typing import Protocol

from simia.reward import Reward
from simia.task import Task
from simia.trajectory import Trajectory


class Scorer(Protocol):
    """Judges an episode by its record."""

    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        """Never raises for infrastructure: the value is None then."""
