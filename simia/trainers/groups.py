"""Compute group-relative advantages and statistics of a step. A group is the episodes of one task in one step.

The functions take plain lists, for any trainer. A reward of None is that of an aborted episode: it does not count in its group's mean or
std, and its advantage is 0. If nothing can be compared (one known reward, or all equal), every advantage is 0.

    mean       r - mean(r)                       Dr. GRPO (Liu et al. 2025)
    mean_std   (r - mean(r)) / (std(r) + eps)    GRPO (Shao et al. 2024); std with n - 1, as verl and TRL compute it
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, get_args

from simia.statistics import SUCCESS, estimate_pass_at_k, estimate_pass_hat_k, list_pass_ks

Norm = Literal["mean", "mean_std"]
EPS = 1e-6


def advantages(rewards: Sequence[float | None], norm: Norm = "mean_std", *, eps: float = EPS) -> list[float]:
    """Compute the advantages of one group, in its order. Raises `ValueError` for a reward that is no finite number."""
    known = [reward for reward in rewards if reward is not None]
    if norm not in get_args(Norm):
        raise ValueError(f"no normalisation named {norm!r}; there are: {', '.join(get_args(Norm))}")
    if not all(math.isfinite(reward) for reward in known):
        raise ValueError("a reward is not a finite number; that of an aborted episode is None")
    if len(known) < 2 or min(known) == max(known):
        return [0.0] * len(rewards)
    mean, scale = math.fsum(known) / len(known), 1.0
    if norm == "mean_std":
        scale = math.sqrt(math.fsum((reward - mean) ** 2 for reward in known) / (len(known) - 1)) + eps
    return [0.0 if reward is None else (reward - mean) / scale for reward in rewards]


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


def statistics(rewards: Sequence[float | None], groups: Sequence[Hashable]) -> dict[str, float]:
    """Compute the statistics of a step, for a trainer's log.

    They include the share of groups with equal rewards (`groups/flat`), which train nothing, and the mean pass@k and pass^k over the groups,
    for k up to the number of known rewards in the smallest group.
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
