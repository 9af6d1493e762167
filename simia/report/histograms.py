"""Distribution of a figure over trajectories, computed from the counts of its values."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, Field


class Spread(BaseModel):
    """Smallest, middle (the lower one of two) and largest of a figure."""

    least: int = 0
    median: int = 0
    most: int = 0

    @classmethod
    def of(cls, histogram: Counter[int]) -> Spread:
        """Compute from the counts of the values."""
        values = sorted(histogram)
        left = (histogram.total() + 1) // 2
        for value in values:
            left -= histogram[value]
            if left <= 0:
                return cls(least=values[0], median=value, most=values[-1])
        return cls()


class Histogram(BaseModel):
    """A figure's distribution in bins of equal width; `counts[i]` lies in [low + i·width, low + (i+1)·width)."""

    low: float = 0
    width: float = 1
    counts: list[int] = Field(default_factory=list)
    middle: float = Field(default=0, description="The median.")
    high: float = Field(default=0, description="95 % are at most this.")
    most: float = 0

    @classmethod
    def of(cls, values: Counter[int], bins: int = 24) -> Histogram:
        """Compute from the counts of the values. The last bin includes the top percent, so that outliers do not widen all bins."""
        if not values:
            return cls()
        ordered = sorted(values)
        low, last = ordered[0], find_quantile(values, ordered, 0.99)
        width = max(1, -(-(last - low + 1) // bins))
        counts = [0] * ((last - low) // width + 1)
        for value, count in values.items():
            counts[min((value - low) // width, len(counts) - 1)] += count
        middle, high = (find_quantile(values, ordered, share) for share in (0.5, 0.95))
        return cls(low=low, width=width, counts=counts, middle=middle, high=high, most=ordered[-1])

    def scale(self, by: float) -> Histogram:
        """Return the same distribution in another unit."""
        ends = {name: getattr(self, name) * by for name in ("low", "width", "middle", "high", "most")}
        return self.model_copy(update=ends)


def find_quantile(values: Counter[int], ordered: list[int], share: float) -> int:
    left = share * values.total()
    for value in ordered:
        left -= values[value]
        if left <= 1e-9:
            return value
    return ordered[-1]
