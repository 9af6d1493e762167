"""Is the oracle to be trusted: its verdicts beside the rule-based rewards of the same episodes.

Agreement alone flatters a judge who passes everything where most is right, hence Cohen's kappa; and since one false pass is
what reinforcement learning will find and repeat, false passes are counted by what they were given for: doing nothing,
repeating the request, a general answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from simia.errors import Code
from simia.quality.judging.agreement import agreement
from simia.reward import Reward
from simia.statistics import wilson
from simia.trajectory import Usage

FULL = 1.0 - 1e-9


@dataclass
class Calibration:
    """What the oracle said of episodes whose reward is known. `errors`: verdicts that nobody could get or read; `unasked`: those that the
    budget had no room for, which no other figure counts."""

    judged: int = 0
    errors: int = 0
    unasked: int = 0
    solved: int = 0
    agreed: int = 0
    kappa: float | None = None
    false_passes: Counter[str] = field(default_factory=Counter)
    false_fails: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    costs: dict[str, float | None] = field(default_factory=dict)
    """What the verdicts on each kind took, whenever they were asked: tokens, and dollars (None where nobody knows the price)."""

    @property
    def share(self) -> float | None:
        return self.agreed / self.judged if self.judged else None

    @property
    def cost(self) -> float | None:
        known = [cost for cost in self.costs.values() if cost is not None]
        return sum(known) if known and len(known) == len(self.costs) else None

    def pay(self, kind: str, usage: Usage) -> None:
        """Put what an oracle used to a kind of episodes."""
        self.tokens[kind] += usage.prompt + usage.completion
        before = self.costs.get(kind, 0.0)
        self.costs[kind] = None if before is None or usage.cost is None else before + usage.cost

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.agreed, self.judged)


def calibrate(rows: Sequence[tuple[str, float | None, Reward]]) -> Calibration:
    """`rows`: kind of the episode (its agent, or how it was spoilt), rule-based reward, the oracle's. Episodes without a
    rule-based reward are left out: there is nothing to compare with."""
    found = Calibration()
    pairs: list[tuple[bool, bool]] = []
    for kind, known, said in rows:
        if known is None:
            continue
        if said.error is Code.BUDGET:
            found.unasked += 1
            continue
        found.kinds[kind] += 1
        if said.value is None:
            found.errors += 1
            continue
        truth, verdict = known >= FULL, said.value >= FULL
        pairs.append((truth, verdict))
        found.solved += truth
        if verdict and not truth:
            found.false_passes[kind] += 1
        if truth and not verdict:
            found.false_fails[kind] += 1
    both = agreement(pairs)
    found.judged, found.agreed, found.kappa = both.both, both.agreed, both.kappa
    return found
