"""Summarize rewards: mean, pass@k and pass^k, with intervals.

`pass@k`: the chance that at least one of k tries succeeds (Chen et al. 2021); `pass^k`: that all k do (Yao et al. 2024,
tau-bench), both estimated without bias from n ≥ k tries a task. Intervals are 95 %: of the mean over tasks by bootstrap,
tasks drawn again, since tries of one task are not independent. Aborted episodes are counted and left out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

RESAMPLES = 2000
SUCCESS = 1.0 - 1e-9
Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(slots=True)
class RolloutStatistics:
    """Figures of a rollout. `tasks`: those that were played, scored or not; `tries`: scored episodes a task at least."""

    episodes: int
    scored: int
    aborted: int
    tasks: int
    tries: int
    mean: Estimate | None
    passes: dict[str, Estimate] = field(default_factory=dict)


def summarize_rewards(rewards: Mapping[str, Sequence[float | None]]) -> RolloutStatistics:
    """Summarize the rewards of each task's episodes; None stands for an aborted one."""
    scores = [[reward for reward in values if reward is not None] for values in rewards.values()]
    known = [values for values in scores if values]
    episodes, scored = sum(map(len, rewards.values())), sum(map(len, known))
    tries = min(map(len, known), default=0)
    found = RolloutStatistics(episodes, scored, episodes - scored, len(rewards), tries, None)
    if not known:
        return found
    found.mean = bootstrap_interval([sum(values) / len(values) for values in known])
    wins = [(len(values), sum(value >= SUCCESS for value in values)) for values in known]
    for k in list_pass_ks(tries):
        found.passes[f"pass@{k}"] = bootstrap_interval([estimate_pass_at_k(n, c, k) for n, c in wins])
        if k > 1:
            found.passes[f"pass^{k}"] = bootstrap_interval([estimate_pass_hat_k(n, c, k) for n, c in wins])
    return found


def list_pass_ks(tries: int) -> list[int]:
    """List 1, 2, 4, 8, …, and the number of tries itself."""
    powers = [2**i for i in range(tries.bit_length()) if 2**i <= tries]
    return sorted({*powers, tries} - {0})


def estimate_pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k)."""
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def estimate_pass_hat_k(n: int, c: int, k: int) -> float:
    """C(c, k) / C(n, k)."""
    return math.comb(c, k) / math.comb(n, k)


def bootstrap_interval(values: Sequence[float]) -> Estimate:
    """The mean, and the 2.5 % and 97.5 % quantiles of the means of resamples. When all values are 0 or all 1 a bootstrap
    has no width: then the interval is Wilson's."""
    n = len(values)
    mean = sum(values) / n
    if len(set(values)) == 1:
        return Estimate(mean, *compute_wilson_interval(sum(values), n))
    source = random.Random(0)
    means = sorted(sum(source.choices(values, k=n)) / n for _ in range(RESAMPLES))
    return Estimate(mean, means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1])


def compute_wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share, which holds near 0 and 1 too; (0, 1) where n is 0."""
    if not n:
        return 0.0, 1.0
    share, spread = successes / n, Z * Z / n
    centre = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)
