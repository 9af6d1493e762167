"""Calibration of a reward judge: its verdicts against the rule-based rewards of the same episodes.

If most episodes are solved, a judge that passes everything has a high agreement; so Cohen's kappa is computed too. Reinforcement learning
finds and exploits any kind of false pass, so false passes are counted by the kind of episode: doing nothing, repeating the request, a
general answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from simia.errors import Code
from simia.quality.judging.agreement import measure_agreement
from simia.reward import Reward
from simia.statistics import SUCCESS, compute_wilson_interval
from simia.trajectory import Usage


@dataclass
class Calibration:
    """Verdicts on episodes whose reward is known. `errors`: verdicts that failed or could not be parsed; `unasked`: verdicts beyond the budget,
    which count in no other figure."""

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
    """Cost of the verdicts on each kind in dollars, recalled ones included; None where the price is unknown."""

    @property
    def share(self) -> float | None:
        return self.agreed / self.judged if self.judged else None

    @property
    def cost(self) -> float | None:
        known = [cost for cost in self.costs.values() if cost is not None]
        return sum(known) if known and len(known) == len(self.costs) else None

    def pay(self, kind: str, usage: Usage) -> None:
        """Add a judge's usage to a kind of episodes."""
        self.tokens[kind] += usage.prompt + usage.completion
        before = self.costs.get(kind, 0.0)
        self.costs[kind] = None if before is None or usage.cost is None else before + usage.cost

    @property
    def interval(self) -> tuple[float, float]:
        return compute_wilson_interval(self.agreed, self.judged)


def calibrate_judge(rows: Sequence[tuple[str, float | None, Reward]]) -> Calibration:
    """Compare verdicts with rule-based rewards. `rows`: kind of the episode (its agent, or how it was corrupted), rule-based reward,
    judge's reward. Episodes without a rule-based reward are left out."""
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
        truth, verdict = known >= SUCCESS, said.value >= SUCCESS
        pairs.append((truth, verdict))
        found.solved += truth
        if verdict and not truth:
            found.false_passes[kind] += 1
        if truth and not verdict:
            found.false_fails[kind] += 1
    both = measure_agreement(pairs)
    found.judged, found.agreed, found.kappa = both.both, both.agreed, both.kappa
    return found
