"""Where a running amplification stands: the one set of figures that the live panel, the JSON lines and the API show."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from simia.trajectory import Usage


@dataclass(slots=True)
class Progress:
    """Counts of the whole run, earlier sessions included; rates and ETA of this session alone."""

    run: str
    n: int
    accepted: int = 0
    waiting: int = 0  # passed the checks, not yet accepted: an earlier item is still out
    rejected: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    pending: int = 0  # questions written down for a batch
    in_flight: int = 0
    limit: int = 0  # how many calls the endpoint is trusted with at the moment
    retries: int = 0
    replies: int = 0
    usage: Usage = field(default_factory=Usage)
    unpriced: int = 0
    stopping: str | None = None
    started: float = field(default_factory=time.monotonic)
    accepted_before: int = 0

    @property
    def decided(self) -> int:
        return self.accepted + sum(self.rejected.values())

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.decided if self.decided else None

    @property
    def projected_cost(self) -> float | None:
        """Dollars for all n at the price of each accepted one so far, rejected ones and retries included."""
        if self.usage.cost is None or not self.accepted:
            return None
        return self.usage.cost * max(1.0, self.n / self.accepted)

    def eta(self) -> float | None:
        """Seconds to go at this session's pace; None before the first acceptance."""
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
