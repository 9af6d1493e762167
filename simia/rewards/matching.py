"""Maximum bipartite matching by augmenting paths: which of these can be paired with which of those, as many as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def match(left: Sequence[A], right: Sequence[B], fits: Callable[[A, B], bool]) -> dict[int, int]:
    """Index in `left` → index in `right`, each used once; the most pairs that `fits` allows."""
    edges = [[j for j, b in enumerate(right) if fits(a, b)] for a in left]
    holder: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j in edges[i]:
            if j in tried:
                continue
            tried.add(j)
            if j not in holder or place(holder[j], tried):
                holder[j] = i
                return True
        return False

    for i in range(len(left)):
        place(i, set())
    return {i: j for j, i in holder.items()}
