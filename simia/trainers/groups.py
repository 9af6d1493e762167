"""Group-relative advantages, length penalties and statistics of a step; a group is the episodes of one task in one step.

Plain lists of numbers, for any trainer. A reward of None belongs to an aborted episode: it is no part of its group's mean or spread, and
its advantage is 0. If nothing can be compared (one known reward, or all equal) every advantage is 0.

    mean            r - mean(r)                          Dr. GRPO (Liu et al. 2025)
    mean_std        (r - mean(r)) / (std(r) + eps)       GRPO (Shao et al. 2024); std with n - 1, as verl and TRL compute it
    leave_one_out   r - mean(the others' r)              RLOO (Ahmadian et al. 2024); n / (n - 1) times `mean`
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, get_args

from simia.statistics import SUCCESS, estimate_pass_at_k, estimate_pass_hat_k, list_pass_ks

Norm = Literal["mean", "mean_std", "leave_one_out"]
EPS = 1e-6


def advantages(rewards: Sequence[float | None], norm: Norm = "mean_std", *, eps: float = EPS) -> list[float]:
    """Compute the advantages of one group, in its order. Raises `ValueError` for a reward that is no finite number."""
    baseline = [[] if reward is None else [reward] for reward in rewards]
    return [each[0] if each else 0.0 for each in normalize_rewards(baseline, norm, eps)]


def batch_advantages(
    rewards: Sequence[float | None], groups: Sequence[Hashable], norm: Norm = "mean_std", *, eps: float = EPS
) -> list[float]:
    """Compute the advantages of a batch, in its order; episodes with the same key in `groups` are one group."""
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards and {len(groups)} groups")
    found = [0.0] * len(rewards)
    for places in group_places(groups):
        for at, value in zip(places, advantages([rewards[i] for i in places], norm, eps=eps), strict=True):
            found[at] = value
    return found


def step_advantages(
    rewards: Sequence[Sequence[float] | None], norm: Norm = "mean_std", *, gamma: float = 1.0, eps: float = EPS
) -> list[list[float]]:
    """Compute an advantage per turn of each episode of one group, from a reward per turn (an outcome is the last turn's).

    Turns' rewards become returns (`returns`), and these are normalised over all turns of the group; with `leave_one_out` against
    those of the other episodes. None, of an aborted episode, gives an empty list.
    """
    return normalize_rewards([[] if each is None else compute_returns(each, gamma) for each in rewards], norm, eps)


def compute_returns(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """Sum the rewards of each turn and those after it: G[t] = r[t] + gamma * G[t + 1]."""
    found, after = list[float](), 0.0
    for reward in reversed(rewards):
        after = reward + gamma * after
        found.append(after)
    return found[::-1]


def normalize_rewards(values: Sequence[Sequence[float]], norm: Norm, eps: float) -> list[list[float]]:
    """Normalise each episode's values over the group; an episode without values is left out and stays empty."""
    flat = [value for each in values for value in each]
    if not all(math.isfinite(value) for value in flat):
        raise ValueError("a reward is not a finite number; that of an aborted episode is None")
    known = sum(bool(each) for each in values)
    if known < 2 or min(flat) == max(flat):
        return [[0.0] * len(each) for each in values]
    if norm == "leave_one_out":
        total, count = math.fsum(flat), len(flat)
        return [[v - (total - math.fsum(each)) / (count - len(each)) for v in each] for each in values]
    mean = math.fsum(flat) / len(flat)
    if norm == "mean":
        return [[v - mean for v in each] for each in values]
    if norm != "mean_std":
        raise ValueError(f"no normalisation named {norm!r}; there are: {', '.join(get_args(Norm))}")
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in flat) / (len(flat) - 1))
    return [[(v - mean) / (spread + eps) for v in each] for each in values]


def overlong(length: int, limit: int, margin: int) -> float:
    """Compute the penalty for the length of a completion, to be added to its reward (soft overlong punishment; DAPO, Yu et al. 2025).

    0                                 length <= limit - margin
    (limit - margin - length) / margin    between them: falls linearly
    -1                                length > limit
    """
    if not 0 < margin <= limit:
        raise ValueError(f"the margin is {margin}: it is a number of tokens from 1 to the limit, {limit}")
    return max(-1.0, min(0.0, (limit - margin - length) / margin))


def statistics(rewards: Sequence[float | None], groups: Sequence[Hashable]) -> dict[str, float]:
    """Compute the statistics of a step, for a trainer's log.

    Of the groups: the share with equal rewards, in which nothing can be learnt (`groups/flat`), and pass@k and pass^k, averaged, for k
    up to the smallest group's known episodes.
    """
    members = [[rewards[i] for i in places] for places in group_places(groups)]
    known = [[r for r in group if r is not None] for group in members]
    known = [group for group in known if group]
    scored = [r for group in known for r in group]
    found = {"episodes": float(len(rewards)), "aborted": (len(rewards) - len(scored)) / max(1, len(rewards))}
    if not scored:
        return found
    found["reward/mean"] = math.fsum(scored) / len(scored)
    found["groups/flat"] = sum(min(group) == max(group) for group in known) / len(known)
    wins = [(len(group), sum(r >= SUCCESS for r in group)) for group in known]
    for k in list_pass_ks(min(len(group) for group in known)):
        found[f"pass@{k}"] = sum(estimate_pass_at_k(n, c, k) for n, c in wins) / len(wins)
        if k > 1:
            found[f"pass^{k}"] = sum(estimate_pass_hat_k(n, c, k) for n, c in wins) / len(wins)
    return found


def group_places(groups: Sequence[Hashable]) -> Iterable[list[int]]:
    """Return the indices of each group's members."""
    found: dict[Hashable, list[int]] = {}
    for at, group in enumerate(groups):
        found.setdefault(group, []).append(at)
    return found.values()
