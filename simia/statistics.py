"""Summarize rewards: mean, pass@k and pass^k, with intervals, and test paired differences.

`pass@k`: the probability that at least one of k tries succeeds (Chen et al. 2021); `pass^k`: that all k succeed (Yao et al. 2024,
tau-bench). Both have unbiased estimators from n ≥ k tries per task. Intervals are 95 % bootstrap intervals of the mean over tasks;
tasks are resampled, since tries of one task are not independent. Tasks of one scenario are not independent either: where scenarios are
given, these are resampled. The intervals are expanded as Student's t is over the normal distribution (Hesterberg 2015). Shares of successes,
and fewer than 10 tasks or scenarios, have Wilson's interval. Aborted episodes are counted, but not scored.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

RESAMPLES = 2000
FEWEST_TASKS = 10  # tasks that are resampled; of fewer, a bootstrap interval is too narrow
FLIPS = 10_000
MOST_EXACT = 12
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
    """Figures of a rollout. `tasks`: tasks that were played, scored or not; `tries`: the fewest scored episodes of a task that has any."""

    episodes: int
    scored: int
    aborted: int
    tasks: int
    tries: int
    mean: Estimate | None
    passes: dict[str, Estimate] = field(default_factory=dict)


def summarize_rewards(
    rewards: Mapping[str, Sequence[float | None]], scenarios: Mapping[str, str] | None = None
) -> RolloutStatistics:
    """Summarize the rewards of each task's episodes; None: an aborted one. `scenarios`: the scenario of each task that shares one."""
    scores = {task: [reward for reward in values if reward is not None] for task, values in rewards.items()}
    clusters = [(scenarios or {}).get(task, task) for task, values in scores.items() if values]
    known = [values for values in scores.values() if values]
    episodes, scored = sum(map(len, rewards.values())), sum(map(len, known))
    tries = min(map(len, known), default=0)
    found = RolloutStatistics(episodes, scored, episodes - scored, len(rewards), tries, None)
    if not known:
        return found
    found.mean = bootstrap_interval([sum(values) / len(values) for values in known], clusters)
    wins = [(len(values), sum(value >= SUCCESS for value in values)) for values in known]
    for k in list_pass_ks(tries, every=16):
        found.passes[f"pass@{k}"] = bootstrap_interval([estimate_pass_at_k(n, c, k) for n, c in wins], clusters)
        if k > 1:
            found.passes[f"pass^{k}"] = bootstrap_interval([estimate_pass_hat_k(n, c, k) for n, c in wins], clusters)
    return found


def list_pass_ks(tries: int, *, every: int = 1) -> list[int]:
    """List every number up to `every`, then the powers of two and the number of tries itself."""
    powers = [2**i for i in range(tries.bit_length()) if 2**i <= tries]
    return sorted({*range(1, min(every, tries) + 1), *powers, tries} - {0})


def estimate_pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k)."""
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def compute_pass_at_k_interval(n: int, c: int, k: int) -> tuple[float, float]:
    """The 95 % interval of pass@k of one task, 1 - (1 - p)^k at the bounds of Wilson's interval of p.

    The unbiased estimate from few tries can lie outside of this interval: with k = n it is 0 or 1.
    """
    low, high = compute_wilson_interval(c, n)
    return 1.0 - (1.0 - low) ** k, 1.0 - (1.0 - high) ** k


def estimate_pass_hat_k(n: int, c: int, k: int) -> float:
    """C(c, k) / C(n, k)."""
    return math.comb(c, k) / math.comb(n, k)


def bootstrap_interval(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, *, lowest: float = 0.0
) -> Estimate:
    """The mean of one figure per task with its interval, as of one group in `estimate_mean_of_groups`."""
    return estimate_mean_of_groups([values], lowest, None if clusters is None else [clusters])


def compute_wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share, which holds near 0 and 1 too; (0, 1) where n is 0."""
    if not n:
        return 0.0, 1.0
    share, spread = successes / n, Z * Z / n
    centre = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def estimate_mean_of_groups(
    groups: Sequence[Sequence[float]], lowest: float = 0.0, clusters: Sequence[Sequence[Hashable]] | None = None
) -> Estimate:
    """The mean of the groups' means, such as the means of a benchmark's domains, with the ends of a bootstrap interval (`find_ends`).
    Clusters are resampled within each group; groups that share clusters are resampled together.

    Args:
        groups: the figures of each group, one per task. They lie between `lowest` and 1, or in the range of the given ones where that is
            wider.
        lowest: the lowest possible value; -1 for paired differences.
        clusters: for each value, what it has in common with others, such as the scenario of its task; in the form of `groups`. None: each value
            is a cluster.

    Wilson's interval, scaled to the range of values, takes the place of the bootstrap's if a group has fewer than 10 clusters, or if a single
    group has the values `lowest` and 1 alone and no two in a cluster: failures and successes. If the clusters of each group have equal means, the
    half-width is the upper bound of Wilson's interval for 0 successes, times the range. The number of tasks in Wilson's interval is that of a
    single group whose mean has the same variance, if tasks of one cluster always agree.
    """
    mean = sum(sum(values) / len(values) for values in groups) / len(groups)
    parts = gather_clusters(groups, clusters)
    n = 1 / sum(sum(share.weight for share in part.values()) ** 2 for part in parts)
    low, high = (end(edge, *(end(values) for values in groups)) for end, edge in ((min, lowest), (max, 1.0)))
    means = [{round(part[at].total / part[at].count, 12) for part in parts if at in part} for at in range(len(groups))]
    if all(len(each) == 1 for each in means):  # every resample would have the same mean
        width = (high - low) * compute_wilson_interval(0, n)[1]
        return Estimate(mean, max(low, mean - width), min(high, mean + width))
    fewest = min(sum(at in part for part in parts) for at in range(len(groups)))
    shares = len(parts) == len(groups[0]) and len(groups) == 1 and set(groups[0]) == {lowest, 1.0}
    if shares or fewest < FEWEST_TASKS:
        ends = compute_wilson_interval(n * (mean - low) / (high - low), n)
        return Estimate(mean, *(low + (high - low) * end for end in ends))
    source = random.Random(0)
    if len(parts) == sum(map(len, groups)):
        drawn = [
            sum(sum(source.choices(values, k=len(values))) / len(values) for values in groups) / len(groups)
            for _ in range(RESAMPLES)
        ]
    else:
        drawn = resample_clusters(parts, len(groups), source)
    return Estimate(mean, *find_ends(drawn, fewest))  # the smallest group has most of the variance


@dataclass(slots=True)
class ClusterShare:
    """The values of one cluster in one group: their sum, their number, and their weight in the mean of the groups' means."""

    total: float = 0.0
    count: int = 0
    weight: float = 0.0


def gather_clusters(
    groups: Sequence[Sequence[float]], clusters: Sequence[Sequence[Hashable]] | None
) -> list[dict[int, ClusterShare]]:
    """Return the shares of each cluster by the number of the group."""
    found: dict[Hashable, dict[int, ClusterShare]] = {}
    for at, values in enumerate(groups):
        for place, value in enumerate(values):
            key = (at, place) if clusters is None else clusters[at][place]
            share = found.setdefault(key, {}).setdefault(at, ClusterShare())
            share.total += value
            share.count += 1
            share.weight += 1 / (len(values) * len(groups))
    return list(found.values())


def resample_clusters(parts: Sequence[Mapping[int, ClusterShare]], groups: int, source: random.Random) -> list[float]:
    """Return the mean of the groups' means in each of `RESAMPLES` resamples. As many clusters are drawn as there are, from those of groups that
    share any. A resample in which a group has no cluster is drawn again."""
    strata = [[part for part in parts if joined & part.keys()] for joined in join_groups(parts)]
    drawn: list[float] = []
    while len(drawn) < RESAMPLES:
        totals, counts = [0.0] * groups, [0] * groups
        for members in strata:
            for part in source.choices(members, k=len(members)):
                for at, share in part.items():
                    totals[at] += share.total
                    counts[at] += share.count
        if all(counts):
            drawn.append(sum(total / count for total, count in zip(totals, counts, strict=True)) / groups)
    return drawn


def join_groups(parts: Iterable[Mapping[int, object]]) -> list[set[int]]:
    """Return the sets of groups that are connected by common clusters."""
    found: list[set[int]] = []
    for part in parts:
        touched = [each for each in found if each & part.keys()]
        found = [each for each in found if each not in touched] + [set(part).union(*touched)]
    return sorted(found, key=min)


def find_ends(drawn: Iterable[float], n: float) -> tuple[float, float]:
    """Return the ends of the 95 % interval that resamples of `n` units give: expanded percentiles.

    The 2.5 % and 97.5 % quantiles are too narrow for few units: they take the normal distribution for Student's, and the resamples'
    variance is (n - 1) / n of the sample's. So the quantiles lie further out, by both factors: at 0.9 and 99.1 % for 10 units.
    """
    ordered = sorted(drawn)
    if n <= 1:
        return ordered[0], ordered[-1]
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * compute_student_quantile(n - 1))
    skipped = int(tail * len(ordered))
    return ordered[skipped], ordered[-1 - skipped]


def compute_student_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t distribution, by its expansion in 1 / degrees of freedom (error below 0.01 from 4 on)."""
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
    )
    return Z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def flip_signs(groups: Sequence[Sequence[float]], clusters: Sequence[Sequence[Hashable]] | None = None) -> float:
    """Return the p-value of a sign-flip test of paired differences (one per task): the probability that the mean of the groups' means is at
    least as far from 0 if each sign is random. Differences of one cluster have one sign. Exact for up to 12 clusters with a sum other than 0,
    else from 10,000 seeded samples."""
    parts = gather_clusters(groups, clusters)
    sums = (sum(share.total / (len(groups[at]) * len(groups)) for at, share in part.items()) for part in parts)
    weighted = [value for value in sums if abs(value) > 1e-12]
    observed = abs(sum(weighted)) - 1e-12
    if len(weighted) <= MOST_EXACT:
        totals = [abs(sum(signs)) for signs in itertools.product(*((value, -value) for value in weighted))]
        return sum(total >= observed for total in totals) / len(totals)
    source = random.Random(0)
    far = sum(abs(sum(v if source.random() < 0.5 else -v for v in weighted)) >= observed for _ in range(FLIPS))
    return (1 + far) / (1 + FLIPS)
