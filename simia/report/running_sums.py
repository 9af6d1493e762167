"""The sums that a report keeps of a run's results: counts only, so that several processes can each read a part.

The sums of two consecutive parts add up to those of both; they do not depend on where a part ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from simia.report.frequent import LossyCounter
from simia.report.run_figures import SeedOverlap

BINS = 40
EXAMPLES = 3
TENTHS = 11  # 0 for none, 10 for all
MOST_INVENTED = 1_000  # bounds the memory: a model can invent any number of names


@dataclass(slots=True)
class Sums:
    """Counters keyed by (seed, verdict, reason), (bin, verdict) and (pack, tool, verdict)."""

    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)  # of a seed: its name and its pack
    bins: Counter[tuple[int, str]] = field(default_factory=Counter)
    details: dict[str, LossyCounter] = field(default_factory=lambda: defaultdict(make_small_counter))
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    repairs: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    invented: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    tools: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    lengths: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    first_bin: dict[int, int] = field(default_factory=dict)  # hash of a tool sequence → first bin with it
    nearness: list[int] = field(default_factory=lambda: [0] * TENTHS)
    frequent: dict[str, LossyCounter] = field(default_factory=lambda: defaultdict(LossyCounter))

    def count_invented(self, name: str, times: int = 1) -> None:
        if name in self.invented or len(self.invented) < MOST_INVENTED:
            self.invented[name] += times

    def add(self, later: Sums) -> None:
        """Add the sums of the next part."""
        for name in ("outcomes", "bins", "repairs", "figures", "versions", "tools"):
            getattr(self, name).update(getattr(later, name))
        self.names |= later.names
        for name, times in later.invented.items():
            self.count_invented(name, times)
        for code, ids in later.examples.items():
            self.examples[code] = (self.examples[code] + ids)[:EXAMPLES]
        for what, counts in later.lengths.items():
            self.lengths[what].update(counts)
        for code, details in later.details.items():
            self.details[code].merge(details)
        for what, things in later.frequent.items():
            self.frequent[what].merge(things)
        for sequence, bin_ in later.first_bin.items():
            self.first_bin.setdefault(sequence, bin_)
        self.nearness = [a + b for a, b in zip(self.nearness, later.nearness, strict=True)]

    @property
    def overlap(self) -> SeedOverlap:
        figures = {name: self.figures[name] for name in SeedOverlap.model_fields if name in self.figures}
        return SeedOverlap(**figures | {"sequences": len(self.first_bin)})


def make_small_counter() -> LossyCounter:
    return LossyCounter(1_000)
