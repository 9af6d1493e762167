"""Figures of the results: success of each arm, and differences, with intervals over tasks and training seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from simia.statistics import bootstrap_interval as simia_interval

Rewards = Mapping[int, Mapping[str, float]]
"""Training seed → task → reward."""
Units = Mapping[str, str]
"""Test task → its wording: tasks of one wording differ in names and numbers alone, so they are drawn together."""
RESAMPLES = 2000


def mean(rewards: Rewards) -> float:
    values = [value for tasks in rewards.values() for value in tasks.values()]
    return sum(values) / len(values)


def interval(
    measure: Callable[[list[int], list[str]], float],
    seeds: list[list[int]],
    tasks: list[str],
    units: Units | None = None,
) -> tuple[float, float]:
    """Return the 95 % interval of a two-way bootstrap, which resamples tasks, or their `units`, and the training seeds of each arm."""
    groups: dict[str, list[str]] = {}
    for task in tasks:
        groups.setdefault(units[task] if units else task, []).append(task)
    source, members = random.Random(0), list(groups.values())
    found = []
    for _ in range(RESAMPLES):
        drawn = [task for group in source.choices(members, k=len(members)) for task in group]
        found.append(measure([place for arm in seeds for place in source.choices(arm, k=len(arm))], drawn))
    found.sort()
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]


def own(rewards: Rewards, units: Units | None = None) -> dict[str, Any]:
    """Mean success of an arm and its interval."""
    seeds, tasks = sorted(rewards), sorted(next(iter(rewards.values())))
    if mean(rewards) in (0.0, 1.0):  # a bootstrap of equal values would give an interval of width 0
        known = simia_interval([mean(rewards)] * len(tasks))
        low, high = known.low, known.high
    else:
        low, high = interval(lambda s, t: over(rewards, s, t), [seeds], tasks, units)
    return {"mean": mean(rewards), "low": low, "high": high, "seeds": len(seeds), "tasks": len(tasks)}


def gain(rewards: Rewards, base: Rewards) -> dict[str, Any]:
    """Return the gain over another arm on the same tasks, with its interval."""
    seeds, others, tasks = sorted(rewards), sorted(base), sorted(next(iter(base.values())))
    low, high = interval(
        lambda s, t: over(rewards, s[: len(seeds)], t) - over(base, s[len(seeds) :], t), [seeds, others], tasks
    )
    return {"mean": mean(rewards) - mean(base), "low": low, "high": high}


def gain_from(rewards: Rewards, start: Rewards, units: Units | None = None) -> dict[str, Any]:
    """Return the gain over the checkpoints from which an arm was trained, seed by seed, on the same tasks, with its interval."""
    seeds, tasks = sorted(set(rewards) & set(start)), sorted(next(iter(start.values())))
    low, high = interval(lambda s, t: over(rewards, s, t) - over(start, s, t), [seeds], tasks, units)
    return {"mean": over(rewards, seeds, tasks) - over(start, seeds, tasks), "low": low, "high": high}


def over(rewards: Rewards, seeds: list[int], tasks: list[str]) -> float:
    return sum(rewards[seed][task] for seed in seeds for task in tasks) / (len(seeds) * len(tasks))


def table(results: Mapping[str, Rewards], kinds: Mapping[str, str], base: str = "base") -> tuple[str, dict[str, Any]]:
    """A table in Markdown and the same as data. `kinds`: task → its kind."""
    lines = [
        "| arm | seeds | success | over the base | over seeds only | over its start |",
        "|---|---|---|---|---|---|",
    ]
    told: dict[str, Any] = {}
    for arm, rewards in results.items():
        row: dict[str, Any] = own(rewards)
        cells = [arm, str(row["seeds"]), shown(row)]
        for other in (base, "seeds"):
            if arm not in (base, other) and other in results:
                row[f"over_{other}"] = gain(rewards, results[other])
                cells.append(shown(row[f"over_{other}"], signed=True))
            else:
                cells.append("")
        if arm.startswith("grpo") and set(rewards) & set(results.get("amplified", {})):
            row["over_start"] = gain_from(rewards, results["amplified"])
            cells.append(shown(row["over_start"], signed=True))
        else:
            cells.append("")
        row["by_seed"] = {str(seed): sum(tasks.values()) / len(tasks) for seed, tasks in rewards.items()}
        row["by_kind"] = by_kind(rewards, kinds)
        told[arm] = row
        lines.append(f"| {' | '.join(cells)} |")
    names = sorted({kind for row in told.values() for kind in row["by_kind"]})
    lines += ["", f"| arm | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for arm, row in told.items():
        cells = [f"{row['by_kind'].get(kind, 0):.2f}" for kind in names]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines), told


def by_kind(rewards: Rewards, kinds: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for tasks in rewards.values():
        for task, value in tasks.items():
            found.setdefault(kinds[task], []).append(value)
    return {kind: sum(values) / len(values) for kind, values in sorted(found.items())}


def shown(row: Mapping[str, float], *, signed: bool = False) -> str:
    form = "+.1f" if signed else ".1f"
    return f"{100 * row['mean']:{form}} [{100 * row['low']:{form}}, {100 * row['high']:{form}}]"
