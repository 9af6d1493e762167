"""The figures of a running rollout."""

from __future__ import annotations

from dataclasses import dataclass, field

from simia.jobs.progress import Progress


@dataclass(slots=True)
class RolloutProgress(Progress):
    """The figures of a running rollout: those of every job, and rewards."""

    rewards: dict[str, list[float | None]] = field(default_factory=dict)
    """Task id → rewards of its finished episodes; None for one without a reward."""

    @property
    def done(self) -> int:
        """Finished episodes."""
        return sum(map(len, self.rewards.values()))

    @property
    def mean(self) -> float | None:
        """Mean reward of the scored episodes; None before the first."""
        known = [reward for values in self.rewards.values() for reward in values if reward is not None]
        return sum(known) / len(known) if known else None
