"""The figures of a running job, which the live panel, the JSON lines and the Python API show."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from simia.trajectory import Usage


@dataclass(slots=True)
class Progress:
    """Counts of the whole run, earlier sessions included; rate and ETA of this session alone."""

    run: str
    n: int
    """How many accepted results complete the run; for a rollout, how many episodes are planned."""
    accepted: int = 0
    """Accepted results, those of earlier sessions included, also if an earlier item is open again."""
    waiting: int = 0
    """Results that passed and wait for the decision on an earlier item."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Rejected items by reason."""
    failed: int = 0
    """Items that the endpoint failed on until they were given up."""
    pending: int = 0
    """Items whose requests were written to a batch; their replies come in a later session."""
    in_flight: int = 0
    """Requests that are at an endpoint."""
    limit: int = 0
    """Most requests in flight at the moment; adapted to what the endpoint takes."""
    retries: int = 0
    replies: int = 0
    usage: Usage = field(default_factory=Usage)
    unpriced: int = 0
    """Replies whose cost is unknown."""
    stopping: str | None = None
    """Why the job stops, once it does."""
    started: float = field(default_factory=time.monotonic)
    """Clock time at which this session began, in seconds."""
    accepted_before: int = 0
    """Accepted in earlier sessions."""

    @property
    def decided(self) -> int:
        return self.accepted + sum(self.rejected.values())

    @property
    def acceptance(self) -> float | None:
        """Share of the decided items that were accepted; None before the first decision."""
        return self.accepted / self.decided if self.decided else None

    @property
    def projected_cost(self) -> float | None:
        """Dollars for all n at the cost per accepted result so far, which includes rejected results and retries."""
        if self.usage.cost is None or not self.accepted:
            return None
        return self.usage.cost * max(1.0, self.n / self.accepted)

    def eta(self) -> float | None:
        """Seconds to go at this session's rate; None before its first acceptance."""
        made = self.accepted - self.accepted_before
        if made <= 0:
            return None
        return (time.monotonic() - self.started) / made * max(0, self.n - self.accepted)

    def snapshot(self) -> dict[str, Any]:
        """The figures as JSON."""
        eta = self.eta()
        return {
            "run": self.run,
            "accepted": self.accepted,
            "n": self.n,
            "waiting": self.waiting,
            "rejected": dict(self.rejected.most_common()),
            "failed": self.failed,
            "pending": self.pending,
            "in_flight": self.in_flight,
            "limit": self.limit,
            "retries": self.retries,
            "prompt_tokens": self.usage.prompt,
            "completion_tokens": self.usage.completion,
            "cached_tokens": self.usage.cached,
            "cost": self.usage.cost,
            "projected_cost": self.projected_cost,
            "seconds": round(time.monotonic() - self.started, 1),
            "eta_seconds": None if eta is None else round(eta),
            "stopping": self.stopping,
        }
