"""Statistics of the amplification experiment: paired differences with intervals over training seeds and wordings, and its power.

    python eval/loop/amplification_figures.py      # the detectable effect that docs/experiments/amplification.md states

A unit of sampling is a wording, not a task: the tasks of one wording differ in names and numbers alone, so they are drawn together.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

from figures import RESAMPLES, Rewards, over


@dataclass(frozen=True)
class Power:
    """Inputs of the detectable effect, in points. The first two are estimates from earlier runs.

    `seed_sd`: standard deviation of an arm's success over training seeds. `task_sd`: that of a task's difference between two arms.
    `correlation`: of the differences of two tasks with the same wording, which no earlier run has measured.
    """

    seed_sd: float = 2.9
    task_sd: float = 44.4
    correlation: float = 0.3
    seeds: int = 6
    wordings: int = 150
    tasks: int = 300

    @property
    def standard_error(self) -> float:
        """Standard error of the difference of two arms with independent training seeds and the same tasks."""
        clustered = 1 + (self.tasks / self.wordings - 1) * self.correlation
        return math.sqrt(2 * self.seed_sd**2 / self.seeds + clustered * self.task_sd**2 / self.tasks)

    def compute_detectable_effect(self, level: float = 0.05, power: float = 0.8) -> float:
        """Return the difference that a two-sided test of this level finds with this power."""
        normal = NormalDist()
        return (normal.inv_cdf(1 - level / 2) + normal.inv_cdf(power)) * self.standard_error


def compare_arms(rewards: Rewards, base: Rewards, wordings: Mapping[str, str], level: float = 0.95) -> dict[str, Any]:
    """Compare two arms on the same tasks.

    Args:
        rewards: Of the arm: training seed → task → reward.
        base: Of the arm it is compared with.
        wordings: Task → its wording.
        level: Of the interval: 0.95, or 0.975 for a second try.

    Returns:
        The mean difference and the quantiles of a bootstrap that draws wordings, and each arm's training seeds.
    """

    def measure(seeds: list[list[int]], tasks: list[str]) -> float:
        return over(rewards, seeds[0], tasks) - over(base, seeds[1], tasks)

    return bootstrap(measure, [sorted(rewards), sorted(base)], group_tasks(base, wordings), level)


def measure_arm(rewards: Rewards, wordings: Mapping[str, str], level: float = 0.95) -> dict[str, Any]:
    """The mean success of an arm and its interval, by the same bootstrap as `compare_arms`."""
    groups = group_tasks(rewards, wordings)
    return bootstrap(lambda seeds, tasks: over(rewards, seeds[0], tasks), [sorted(rewards)], groups, level)


def group_tasks(rewards: Rewards, wordings: Mapping[str, str]) -> dict[str, list[str]]:
    groups = defaultdict(list)
    for task in sorted(next(iter(rewards.values()))):
        groups[wordings[task]].append(task)
    return dict(sorted(groups.items()))


def bootstrap(
    measure: Callable[[list[list[int]], list[str]], float],
    seeds: list[list[int]],
    groups: Mapping[str, list[str]],
    level: float,
) -> dict[str, Any]:
    """Measure on drawn wordings, each with all its tasks, and on drawn training seeds of each arm."""
    names, source = list(groups), random.Random(0)
    found = list[float]()
    for _ in range(RESAMPLES):
        drawn = [task for name in source.choices(names, k=len(names)) for task in groups[name]]
        found.append(measure([source.choices(arm, k=len(arm)) for arm in seeds], drawn))
    found.sort()
    tail = (1 - level) / 2
    return {
        "mean": measure(seeds, [task for tasks in groups.values() for task in tasks]),
        "low": found[int(tail * RESAMPLES)],
        "high": found[math.ceil((1 - tail) * RESAMPLES) - 1],
        "wordings": len(names),
    }


def main() -> None:
    for power in (Power(correlation=0.0), Power(), Power(correlation=1.0), Power(seed_sd=4.5)):
        told = ", ".join(f"{name} {value:g}" for name, value in asdict(power).items())
        print(f"{told}: standard error {power.standard_error:.1f}, detectable {power.compute_detectable_effect():.1f}")


if __name__ == "__main__":
    main()
