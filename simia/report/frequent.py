"""Count the most frequent values in bounded memory (lossy counting).

When the table is full, every count is reduced by one and values with a count of zero are dropped. A count is therefore
too small by at most the number of reductions: frequent values are always found, rare ones may be missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

CAPACITY = 20_000


class LossyCounter:
    """A counter of at most `capacity` values that drops rare ones."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._counts: Counter[str] = Counter()
        self._capacity = capacity

    def add(self, things: Iterable[str]) -> None:
        self._counts.update(things)
        while len(self._counts) > self._capacity:
            self._counts = Counter({thing: count - 1 for thing, count in self._counts.items() if count > 1})

    def merge(self, other: LossyCounter) -> None:
        self.add(other._counts)  # a Counter's update adds the counts of a mapping

    def top(self, most: int, *, least: int = 2) -> dict[str, int]:
        """Return at most `most` values with their counts. Ties are in alphabetical order, so that the result is stable."""
        ranked = sorted(self._counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return {thing: count for thing, count in ranked[:most] if count >= least}
