"""Pass rates with intervals, and agreement between judges beyond chance.

The interval is Wilson's, which is valid near 0 and 1 too. Two judges who pass nearly everything agree nearly always by
chance, hence kappa: Cohen's for two judges, Fleiss' for more. Kappa is None if all ratings are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simia.statistics import compute_wilson_interval


@dataclass(frozen=True, slots=True)
class PassRate:
    """Passed of judged, with a 95 % interval; `errors` are verdicts that are missing or unreadable."""

    passed: int
    judged: int
    errors: int = 0

    @property
    def value(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        return compute_wilson_interval(self.passed, self.judged)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two judges on the same trajectories."""

    both: int  # trajectories that both of them judged
    agreed: int
    kappa: float | None

    @property
    def share(self) -> float | None:
        return self.agreed / self.both if self.both else None


def measure_agreement(pairs: Sequence[tuple[bool, bool]]) -> Agreement:
    """Measure the agreement of two judges' verdicts on the same trajectories."""
    both = len(pairs)
    agreed = sum(a == b for a, b in pairs)
    if not both:
        return Agreement(0, 0, None)
    first, second = sum(a for a, _ in pairs) / both, sum(b for _, b in pairs) / both
    return Agreement(both, agreed, correct_for_chance(agreed / both, first * second + (1 - first) * (1 - second)))


def compute_fleiss_kappa(ratings: Sequence[Sequence[bool]]) -> float | None:
    """Compute Fleiss' kappa from a row of verdicts for each trajectory; all rows have the same length."""
    if not ratings or len(ratings[0]) < 2:
        return None
    raters = len(ratings[0])
    if any(len(row) != raters for row in ratings):
        raise ValueError("every trajectory needs a verdict of every judge")
    alike = sum(sum(row) ** 2 + (raters - sum(row)) ** 2 for row in ratings)
    observed = (alike / len(ratings) - raters) / (raters * (raters - 1))
    share = sum(map(sum, ratings)) / (len(ratings) * raters)
    return correct_for_chance(observed, share**2 + (1 - share) ** 2)


def correct_for_chance(observed: float, chance: float) -> float | None:
    return (observed - chance) / (1 - chance) if chance < 1 else None
