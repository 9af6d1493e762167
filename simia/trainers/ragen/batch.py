"""The rows of a step as plain lists: what is trained, with which mask, for which advantage. Needs neither torch nor RAGEN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simia.trainers.groups import Norm, batch_advantages
from simia.trainers.ragen.env import SimiaEnv

TRAINED_NOT = ("aborted", "unscored")  # figures that count every episode; all others leave these episodes out


@dataclass(slots=True)
class TrainingRows:
    """One entry an episode. `mask` is 1 on the ids that the policy sampled, `scores` None where there is no reward."""

    ids: list[list[int]]
    mask: list[list[int]]
    scores: list[float | None]


def collect_rows(envs: Sequence[SimiaEnv], filler: int) -> TrainingRows:
    """An episode without a reward keeps its ids and has mask 0 throughout; one in which the policy never spoke (it has none) is two
    fillers, so that an opening too long for the model does not come to the trainer by this way."""
    rows = TrainingRows([], [], [])
    for env in envs:
        row, score = env.row, env.reward
        if row is None or not row.completion_ids:
            ids, mask = [filler, filler], [0, 0]
        else:
            ids, mask = row.prompt_ids + row.completion_ids, [0] * len(row.prompt_ids) + row.mask
        rows.ids.append(ids)
        rows.mask.append(mask if score is not None else [0] * len(mask))
        rows.scores.append(score)
    return rows


def normalize_scores(
    scores: Sequence[float | None], penalties: Sequence[float], groups: Sequence[Any], method: str
) -> list[float]:
    """What RAGEN's trainer multiplies the tokens' mask with. `identity` leaves the scores as they are (another estimator's
    business); what has no score gets 0 and is no part of its group."""
    paid = [None if s is None else s + p for s, p in zip(scores, penalties, strict=True)]
    if method == "identity":
        return [0.0 if s is None else s for s in paid]
    norm: Norm = "mean" if method == "mean" else "mean_std"
    return batch_advantages(paid, groups, norm)


def fill_validation_scores(scores: Sequence[float | None], penalties: Sequence[float]) -> list[float]:
    """What RAGEN averages as a validation's reward: the scores themselves, for its groups are of one and compare nothing. One that
    is not known takes the mean of the others, so that an outage is no failure; NaN where none is known."""
    paid = [None if s is None else s + p for s, p in zip(scores, penalties, strict=True)]
    known = [score for score in paid if score is not None]
    mean = math.fsum(known) / len(known) if known else math.nan
    return [mean if score is None else score for score in paid]


def fill_scores(scores: Sequence[float | None], groups: Sequence[Any]) -> list[float]:
    """Scores before normalisation, for RAGEN's filter of groups by their spread: one that is not known takes its group's mean, so
    that it speaks neither for its group nor against it."""
    known: dict[Any, list[float]] = {}
    for score, group in zip(scores, groups, strict=True):
        if score is not None:
            known.setdefault(group, []).append(score)
    mean = {group: math.fsum(some) / len(some) for group, some in known.items()}
    return [mean.get(group, 0.0) if s is None else s for s, group in zip(scores, groups, strict=True)]


def average_metrics(rows: TrainingRows, metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """The step's metrics: means over the episodes that have a score; `aborted` and `unscored` over all."""
    found: dict[str, list[float]] = {}
    for score, each in zip(rows.scores, metrics, strict=True):
        for name, value in each.items():
            if score is not None or name.rsplit("/", 1)[-1] in TRAINED_NOT:
                found.setdefault(name, []).append(float(value))
    means = {name: math.fsum(values) / len(values) for name, values in found.items()}
    spoken = [sum(mask) for mask in rows.mask if any(mask)]
    return {**means, "response_length": sum(spoken) / len(spoken) if spoken else 0.0}
