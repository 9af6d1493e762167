"""What a report keeps of a run's results: counts alone, so that any number can be read, in parts, by several processes.

The sums of two parts that follow each other add up to those of the whole; nothing in them depends on where a part ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from simia.report.figures import SeedOverlap
from simia.report.frequent import LossyCounter

BINS = 40
EXAMPLES = 3
TENTHS = 11  # none at all, and ten tenths
MOST_INVENTED = 1_000  # a model can invent names without end


@dataclass(slots=True)
class Sums:
    """Each key says of what: (seed, verdict, reason), (bin, verdict), (pack, tool, verdict)."""

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
    first_bin: dict[int, int] = field(default_factory=dict)  # sequence of tools → the first stretch that has it
    nearness: list[int] = field(default_factory=lambda: [0] * TENTHS)
    frequent: dict[str, LossyCounter] = field(default_factory=lambda: defaultdict(LossyCounter))

    def count_invented(self, name: str, times: int = 1) -> None:
        if name in self.invented or len(self.invented) < MOST_INVENTED:
            self.invented[name] += times

    def add(self, later: Sums) -> None:
        """Take in the sums of the part that follows."""
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
        counted = {name: self.figures[name] for name in SeedOverlap.model_fields if name in self.figures}
        return SeedOverlap(**counted | {"sequences": len(self.first_bin)})


def make_small_counter() -> LossyCounter:
    return LossyCounter(1_000)
