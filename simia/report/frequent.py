"""What occurs most, counted in bounded memory however many different things occur (lossy counting).

When the table is full, every count goes down by one and what was seen once is dropped. A count is then too small by at
most the number of clearings: what a large share of a run has in common is never missed, while rare things may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

ROOM = 20_000


class LossyCounter:
    """A counter that forgets rare things."""

    def __init__(self, room: int = ROOM) -> None:
        self._counts: Counter[str] = Counter()
        self._room = room

    def add(self, things: Iterable[str]) -> None:
        self._counts.update(things)
        while len(self._counts) > self._room:
            self._counts = Counter({thing: count - 1 for thing, count in self._counts.items() if count > 1})

    def merge(self, other: LossyCounter) -> None:
        self.add(other._counts)  # a Counter's update adds the counts of a mapping

    def top(self, most: int, *, least: int = 2) -> dict[str, int]:
        """Ties in the order of the alphabet, so that two readings of one run say the same."""
        ranked = sorted(self._counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return {thing: count for thing, count in ranked[:most] if count >= least}
