"""Scores of a rollout by part: avg@n, pass@k and pass^k for every k up to the number of trials, and paired differences of two runs.

A part is a pack of the rollout, such as a domain of tau2. Intervals are 95 % bootstrap intervals over tasks, since trials of one
task are not independent; tasks of one scenario are resampled together. The average is the mean of the parts' figures, as in papers; its
tasks are resampled within each part, those of a scenario in several parts together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from simia.errors import UserError
from simia.jobs import Run
from simia.rollouts.recheck import RESCORED
from simia.statistics import (
    SUCCESS,
    Estimate,
    estimate_mean_of_groups,
    estimate_pass_at_k,
    estimate_pass_hat_k,
    flip_signs,
    list_pass_ks,
)
from simia.trajectory import write_compact_json

Rewards = dict[str, list[float | None]]
"""Task → rewards of its trials; None for an episode without a reward."""
Scenarios = dict[str, str]
"""Task → its scenario, for tasks that have one."""
AVERAGE = "average"
SIGNIFICANCE = 0.05
CONDITIONS = {
    "user": "user",
    "user_settings": "user_settings",
    "episode": "episode",
    "backend": "backend",
    "backend_settings": "backend_settings",
    "reward": "reward",
    "trace_state": "trace_state",
    "reward_function": "reward_function",
    "oracle": "oracle",
    "group": "trials",
    "seed": "seed",
    "perturb": "perturbations",
}
"""Settings besides the agent that affect a run's figures → their names in messages."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """A stored episode. `task`: its id in the run, `PART/ID` in one over several packs; `row`: its trajectory as it was stored."""

    item: str
    part: str
    task: str
    reward: float | None
    row: dict[str, Any]


def read_episodes(run: Run, named: str | None = None) -> Iterator[PlayedEpisode]:
    """Yield the stored episodes of a rollout in the order of its plan. `named`: only the episode of this item."""
    several = bool(run.saved_config().get("packs"))
    only = str((run.ledger.meta("facts") or {}).get("pack") or "pack")
    for item in run.ledger.items():
        body = run.ledger.result(item.id) if named in (None, item.id) else None
        if body is None or not body["trajectory"]:
            continue
        row, task = body["trajectory"], str(item.spec["task"])
        part = task.partition("/")[0] if several else only
        yield PlayedEpisode(item.id, part, task, (row.get("reward") or {}).get("value"), row)


def collect_scenarios(episodes: Iterable[PlayedEpisode]) -> Scenarios:
    """Task → its scenario, for tasks that have one."""
    return {each.task: scenario for each in episodes if (scenario := find_scenario(each))}


def find_scenario(episode: PlayedEpisode) -> str | None:
    """The scenario of an episode's task; None if it has none of its own name, or was stored by an earlier version."""
    found = (episode.row.get("extra") or {}).get("scenario")
    return found if isinstance(found, str) else None


def collect_rewards(episodes: Iterable[PlayedEpisode]) -> dict[str, Rewards]:
    """Part → task → rewards, parts in the order of their names."""
    found: dict[str, Rewards] = {}
    for each in episodes:
        found.setdefault(each.part, {}).setdefault(each.task, []).append(each.reward)
    return dict(sorted(found.items()))


@dataclass(slots=True)
class PartScores:
    """The figures of one part: avg@n, and pass^k and pass@k for every k up to n. `scenarios`: different scenarios of the tasks, where a task
    without one counts as its own; `short`: tasks with fewer than n scored trials, which are left out of the figures that need more."""

    tasks: int
    scenarios: int
    episodes: int
    scored: int
    trials: int
    short: int = 0
    figures: dict[str, Estimate] = field(default_factory=dict)


@dataclass(slots=True)
class EvaluationScores:
    """The figures of each part, and the average of the parts where there are several. `trials`: the largest number of trials of a task."""

    trials: int
    parts: dict[str, PartScores]
    average: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of one task: a function of its rewards. `least`: the number of trials that it needs."""

    name: str
    least: int
    compute: Callable[[Sequence[float]], float]


def score_parts(rewards: Mapping[str, Rewards], scenarios: Scenarios | None = None) -> EvaluationScores:
    """Compute all figures of a run."""
    scenarios = scenarios or {}
    trials = max((count_scored(values) for tasks in rewards.values() for values in tasks.values()), default=0)
    measures = list_measures(trials)
    found = EvaluationScores(trials, {name: score_part(tasks, measures, scenarios) for name, tasks in rewards.items()})
    for measure in measures:
        groups = [measure_tasks(tasks, measure) for tasks in rewards.values()]
        if len(groups) > 1 and all(groups):
            found.average[measure.name] = estimate_average(groups, scenarios)
    return found


def score_part(rewards: Rewards, measures: Sequence[Measure], scenarios: Scenarios) -> PartScores:
    """Compute the figures of one part."""
    scored = [count_scored(values) for values in rewards.values()]
    trials = max((measure.least for measure in measures), default=0)
    clusters = {scenarios.get(task, task) for task in rewards}
    episodes = sum(map(len, rewards.values()))
    found = PartScores(len(rewards), len(clusters), episodes, sum(scored), max(scored, default=0))
    found.short = sum(count < trials for count in scored)
    for measure in measures:
        if values := measure_tasks(rewards, measure):
            found.figures[measure.name] = estimate_average([values], scenarios)
    return found


def estimate_average(groups: Sequence[Mapping[str, float]], scenarios: Scenarios, lowest: float = 0.0) -> Estimate:
    """The mean of the groups' means of one figure per task, by the tasks' ids, with its interval."""
    return estimate_mean_of_groups(
        [list(values.values()) for values in groups], lowest, list_clusters(groups, scenarios)
    )


def list_clusters(groups: Sequence[Iterable[str]], scenarios: Scenarios) -> list[list[str]]:
    """Return the scenario of each task; a task without one counts as its own."""
    return [[scenarios.get(task, task) for task in tasks] for tasks in groups]


def list_measures(trials: int) -> list[Measure]:
    """List avg@n, pass^k and pass@k for `trials` trials a task: every k up to 16, then powers of two."""
    if not trials:
        return []
    ks = list_pass_ks(trials, every=16)
    return [
        Measure(f"avg@{trials}", 1, lambda values: sum(values) / len(values)),
        *(Measure(f"pass^{k}", k, partial(estimate_share, estimate_pass_hat_k, k)) for k in ks),
        *(Measure(f"pass@{k}", k, partial(estimate_share, estimate_pass_at_k, k)) for k in ks),
    ]


def estimate_share(estimate: Callable[[int, int, int], float], k: int, values: Sequence[float]) -> float:
    """Compute pass@k or pass^k of one task."""
    return estimate(len(values), sum(value >= SUCCESS for value in values), k)


def count_scored(values: Sequence[float | None]) -> int:
    return sum(value is not None for value in values)


def measure_tasks(rewards: Rewards, measure: Measure) -> dict[str, float]:
    """Compute the figure of each task with enough scored trials."""
    known = {task: [value for value in values if value is not None] for task, values in rewards.items()}
    return {task: measure.compute(values) for task, values in known.items() if len(values) >= measure.least}


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """One figure of a part in two runs, over the tasks with a score in both. `difference`: the second run less the first."""

    part: str
    figure: str
    tasks: int
    scenarios: int
    """Number of different scenarios of the tasks, where a task without one counts as its own."""
    left: float
    right: float
    difference: Estimate
    better: int
    """Number of tasks in which the second run is better."""
    worse: int
    p: float
    """p-value: probability of a difference at least as large if both runs were equally good on every task."""

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the difference is significant at 5 %, else `not told apart`."""
        if self.p >= SIGNIFICANCE:
            return "not told apart"
        return "better" if self.difference.value > 0 else "worse"


def compare_evaluations(left: Run, right: Run) -> list[PairedDifference]:
    """Compare two runs task by task: the mean reward, and pass^n for the trials that both have. Raises `UserError` if their tasks differ."""
    for run in (left, right):
        if not run.is_rollout:
            raise UserError(f"{run.id} is not a rollout: compare runs of simia eval or simia rollout")
    rewards = [collect_rewards(read_episodes(run)) for run in (left, right)]
    refuse_other_tasks(left, right, rewards)
    counts = [score_parts(each).trials for each in rewards]
    trials = min(counts)
    if not trials:
        empty = next(run for run, count in zip((left, right), counts, strict=True) if not count)
        raise UserError(f"{empty.id} has no scored episode yet: compare it when its run has ended")
    scenarios = collect_scenarios(each for run in (left, right) for each in read_episodes(run))
    measures = list_measures(trials)
    mean = measures[0] if counts[0] == counts[1] else replace(measures[0], name=f"avg@{counts[0]}, avg@{counts[1]}")
    chosen = [mean, *(each for each in measures if each.name == f"pass^{trials}" and trials > 1)]
    return [row for measure in chosen for row in compare_parts(rewards, measure, scenarios)]


def compare_parts(
    rewards: Sequence[Mapping[str, Rewards]], measure: Measure, scenarios: Scenarios
) -> list[PairedDifference]:
    """Compare one figure of each part, and its average over the parts."""
    pairs: dict[str, dict[str, tuple[float, float]]] = {}
    for part in sorted(rewards[0].keys() & rewards[1].keys()):
        one, two = (measure_tasks(each[part], measure) for each in rewards)
        if common := sorted(one.keys() & two.keys()):
            pairs[part] = {task: (one[task], two[task]) for task in common}
    found = [compare_pairs(part, measure.name, [each], scenarios) for part, each in pairs.items()]
    average = [compare_pairs(AVERAGE, measure.name, list(pairs.values()), scenarios)] if len(pairs) > 1 else []
    return [*found, *average]


def compare_pairs(
    part: str, figure: str, groups: Sequence[Mapping[str, tuple[float, float]]], scenarios: Scenarios
) -> PairedDifference:
    """Compare paired figures of the same tasks, by the tasks' ids and grouped by part."""
    differences = [{task: two - one for task, (one, two) in pairs.items()} for pairs in groups]
    left, right = (
        sum(sum(pair[side] for pair in pairs.values()) / len(pairs) for pairs in groups) / len(groups)
        for side in (0, 1)
    )
    every = [value for values in differences for value in values.values()]
    better, worse = (sum(sign * value > 0 for value in every) for sign in (1, -1))
    difference = estimate_average(differences, scenarios, -1.0)
    clusters = list_clusters(differences, scenarios)
    p = flip_signs([list(values.values()) for values in differences], clusters)
    different = len({each for names in clusters for each in names})
    return PairedDifference(part, figure, len(every), different, left, right, difference, better, worse, p)


def refuse_other_tasks(left: Run, right: Run, rewards: Sequence[Mapping[str, Rewards]]) -> None:
    """Raise `UserError` unless both runs have the same tasks with the same contents."""
    contents = [run.ledger.meta(RESCORED) or (run.ledger.meta("facts") or {}).get("contents") for run in (left, right)]
    if contents[0] == contents[1]:
        return
    tasks = [{task for tasks in each.values() for task in tasks} for each in rewards]
    for at, run in enumerate((left, right)):
        if lacking := sorted(tasks[at] - tasks[1 - at]):
            other = (right, left)[at]
            raise UserError(
                f"{left.id} and {right.id} have different tasks: {len(lacking)} of {run.id} are not in {other.id}, such as {lacking[0]}; "
                "compare runs of one suite with the same packs and limits"
            )
    raise UserError(
        f"{left.id} and {right.id} have different tasks: the packs' policies, tools or tasks have changed between them; if only the tasks' rewards have, run simia runs recheck on both, otherwise play one again"
    )


def list_other_conditions(left: Run, right: Run) -> list[str]:
    """Describe what differs between two runs besides the agent: models of other roles, limits, trials."""
    facts = [run.ledger.meta("facts") or {} for run in (left, right)]
    configs = [run.saved_config() for run in (left, right)]
    found = []
    casts = [each.get("cast") or {} for each in facts]
    for role in sorted(casts[0].keys() | casts[1].keys()):
        if casts[0].get(role) != casts[1].get(role):
            found.append(f"{role}: {casts[0].get(role, 'none')} and {casts[1].get(role, 'none')}")
    worlds = [each.get("world") for each in facts]
    if None not in worlds and worlds[0] != worlds[1]:
        found.append("the packs' worlds: their code or data have changed between the runs")
    for name, word in CONDITIONS.items():
        found += describe_differences(word, configs[0].get(name), configs[1].get(name))
    return found


def describe_differences(name: str, one: Any, two: Any) -> list[str]:
    """Describe where two settings differ, a line for each; sections are compared key by key."""
    if isinstance(one, dict) and isinstance(two, dict):
        keys = sorted(one.keys() | two.keys())
        return [line for key in keys for line in describe_differences(f"{name}.{key}", one.get(key), two.get(key))]
    return [] if one == two else [f"{name}: {write_condition(one)} and {write_condition(two)}"]


def write_condition(value: Any) -> str:
    """Write a setting for a line: `none`, or JSON without the fields that are not set."""
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each is not None}
    return "none" if value is None else value if isinstance(value, str) else write_compact_json(value)
