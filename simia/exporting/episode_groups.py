"""Select training data from the groups of a run's episodes: the best of each group, and pairs of a better and a worse one.

A group holds the episodes of one task in one step of a training, or of one task in a rollout. An episode is used only if it ended by itself
and has a reward: one that was cut by a limit or by a failure of infrastructure is neither a good nor a bad example. Validations, episodes
of a benchmark's tasks, and steps that a resumed training played again are not used either.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from simia.errors import Code, UserError
from simia.exporting.row_identity import hash_row
from simia.jobs import Item, Run
from simia.reward import Reward
from simia.trajectory import Trajectory

TOLERANCE = 1e-9  # of rewards
NO_EXAMPLE = "episodes that were cut, aborted, not judged or validated on were left out"
NONE_GOOD = "groups have no episode with the least reward"
TOO_NEAR = "groups have no two episodes whose rewards are that far apart"


@dataclass(frozen=True, slots=True)
class Example:
    """An episode that may be trained on, with its outcome: the reward without those of single turns."""

    item: Item
    trajectory: Trajectory
    reward: float


@dataclass(slots=True)
class BestOfGroups:
    """Selects the best episode of each group of a training. `left_out` counts the others, by reason."""

    least: float = 1.0
    """The least reward of an episode that is selected."""
    left_out: Counter[str] = field(default_factory=Counter)

    def select(self, runs: Iterable[Path]) -> Iterator[Trajectory]:
        """Yield the best episode of each group, the first of equals."""
        for group in iterate_groups(runs, self.left_out):
            best = max(group, key=lambda each: each.reward)
            if best.reward >= self.least - TOLERANCE:
                yield best.trajectory
            else:
                self.left_out[NONE_GOOD] += 1


def iterate_candidate_pairs(
    runs: Iterable[Path], gap: float, left_out: Counter[str]
) -> Iterator[list[tuple[Trajectory, Trajectory]]]:
    """Yield for each group the pairs of a better and a worse episode whose rewards differ by at least `gap`, the largest difference
    first. `left_out` counts the groups without one."""
    for group in iterate_groups(runs, left_out):
        pairs = [
            (better, worse)
            for one, two in itertools.combinations(group, 2)
            for better, worse in [(one, two) if one.reward > two.reward else (two, one)]
            if better.reward > worse.reward and better.reward - worse.reward >= gap - TOLERANCE
        ]
        pairs.sort(key=lambda pair: pair[1].reward - pair[0].reward)
        if pairs:
            yield [(better.trajectory, worse.trajectory) for better, worse in pairs]
        else:
            left_out[TOO_NEAR] += 1


def iterate_groups(runs: Iterable[Path], left_out: Counter[str]) -> Iterator[list[Example]]:
    """Yield for each group of these runs its usable episodes, equal conversations once. Only one group's trajectories are in memory at a
    time."""
    for folder in runs:
        with closing(Run.read_only(folder.parent, str(folder))) as run:
            if not (run.is_training or run.is_rollout):
                raise UserError(f"run {run.id} has no groups of episodes: name the run of a training or of a rollout")
            groups: dict[tuple[str, str], list[Item]] = {}
            for item in run.ledger.items():
                if item.reason != Code.SUPERSEDED:
                    name = (str(item.spec.get("step", "")), str(item.spec.get("group", item.spec["task"])))
                    groups.setdefault(name, []).append(item)
            for members in groups.values():
                examples, seen = [], set[str]()
                for item in members:
                    example = read_example(run, item)
                    if example is None:
                        left_out[NO_EXAMPLE] += 1
                    elif (hashed := hash_row(example.trajectory, reasoning=True)) not in seen:
                        seen.add(hashed)
                        examples.append(example)
                if examples:
                    yield examples


def read_example(run: Run, item: Item) -> Example | None:
    """Return an episode that may be trained on; None for any other."""
    body = None if item.spec.get("validates") else run.ledger.result(item.id)
    if body is None or not body["trajectory"]:
        return None
    found = Trajectory.from_row(body["trajectory"])
    reward = (found.reward or Reward()).value
    untrained = run.is_training and item.spec.get("reward") is None
    if found.end.kind != "terminated" or reward is None or untrained or found.extra.get("evaluation") is True:
        return None
    return Example(item, found, reward)
