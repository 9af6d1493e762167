"""Rows of a training step as plain lists: ids, mask, scores and advantages. Needs neither torch nor RAGEN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simia.trainers.groups import batch_advantages, group_places
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.tokens import place_steps

OF_ALL = ("aborted", "unscored")  # metrics averaged over all episodes; others leave out episodes without a score


@dataclass(slots=True)
class TrainingRows:
    """One entry per episode. `mask` is 1 on the ids that the policy sampled; a score is None where there is no reward."""

    ids: list[list[int]]
    mask: list[list[int]]
    scores: list[float | None]
    """Outcomes."""
    steps: list[dict[int, float]]
    """For each row: position in its ids → reward of the turn that ends there."""

    @property
    def totals(self) -> list[float | None]:
        """Outcomes plus the rewards of single turns."""
        return [
            score if score is None else score + math.fsum(steps.values())
            for score, steps in zip(self.scores, self.steps, strict=True)
        ]

    def list_turn_scores(self, width: int) -> list[tuple[int, int, float]]:
        """List row, position and reward of each turn's end, in rows of `width` scores with padding on the left. Position j belongs to
        token j + 1. An episode without a score has none."""
        return [
            (number, width - len(ids) + place, reward)
            for number, (ids, score, steps) in enumerate(zip(self.ids, self.scores, self.steps, strict=True))
            for place, reward in steps.items()
            if score is not None
        ]


def collect_rows(envs: Sequence[SimiaEnv], filler: int) -> TrainingRows:
    """Collect the rows of a step.

    An episode without a reward keeps its ids, all with mask 0. If the policy never spoke, the row is two `filler` ids without a reward, so
    that an opening that is too long for the model does not reach the trainer.
    """
    rows = TrainingRows([], [], [], [])
    for env in envs:
        row, score = env.row, env.reward
        if row is None or not row.completion_ids:
            ids, mask, placed = [filler, filler], [0, 0], dict[int, float]()
        else:
            placed = {len(row.prompt_ids) + at: one for at, one in place_steps(env.steps, row.turn_ends).items()}
            ids, mask = row.prompt_ids + row.completion_ids, [0] * len(row.prompt_ids) + row.mask
        rows.ids.append(ids)
        rows.mask.append(mask if score is not None else [0] * len(mask))
        rows.scores.append(score)
        rows.steps.append(placed)
    return rows


def normalize_scores(scores: Sequence[float | None], groups: Sequence[Any], method: str) -> list[float]:
    """Compute the value of each row that RAGEN's trainer multiplies with the token mask: advantages, or with `identity` the scores.

    A missing score gives 0 and does not count in its group.
    """
    if method == "identity":
        return [score or 0.0 for score in scores]
    return batch_advantages(scores, groups, "mean" if method == "mean" else "mean_std")


def fill_scores(scores: Sequence[float | None], groups: Sequence[Any], otherwise: float = 0.0) -> list[float]:
    """Replace missing scores by their group's mean, or by `otherwise` in a group without scores."""
    filled = [otherwise] * len(scores)
    for places in group_places(groups):
        known = [score for i in places if (score := scores[i]) is not None]
        mean = math.fsum(known) / len(known) if known else otherwise
        for i in places:
            score = scores[i]
            filled[i] = mean if score is None else score
    return filled


def average_metrics(rows: TrainingRows, metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """Average the metrics of a step over the episodes that have a score, those in `OF_ALL` over all episodes."""
    found: dict[str, list[float]] = {}
    for score, each in zip(rows.scores, metrics, strict=True):
        for name, value in each.items():
            if score is not None or name.rsplit("/", 1)[-1] in OF_ALL:
                found.setdefault(name, []).append(float(value))
    means = {name: math.fsum(values) / len(values) for name, values in found.items()}
    spoken = [sum(mask) for mask in rows.mask if any(mask)]
    return {**means, "response_length": sum(spoken) / len(spoken) if spoken else 0.0}
