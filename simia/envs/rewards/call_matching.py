"""Pair the elements of two lists: with the most pairs (augmenting paths), or with the least total cost (Hungarian method)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def match_calls(left: Sequence[A], right: Sequence[B], fits: Callable[[A, B], bool]) -> dict[int, int]:
    """Return index in `left` → index in `right`, each used once: the largest set of pairs that `fits` allows.

    `fits` is called only when needed, and once per pair. The search does not recurse, since an agent's calls determine the size
    of the lists.
    """
    known: dict[tuple[int, int], bool] = {}

    def fit(i: int, j: int) -> bool:
        if (i, j) not in known:
            known[i, j] = fits(left[i], right[j])
        return known[i, j]

    holder: dict[int, int] = {}
    free = dict.fromkeys(range(len(right)))  # an ordered set
    for start in range(len(left)):
        if not free:
            break
        direct = next((j for j in free if fit(start, j)), None)
        if direct is not None:
            holder[direct] = start
            del free[direct]
            continue
        came: dict[int, int] = {}  # right → the left that reached it
        queue, end = deque([start]), None
        while queue and end is None:
            i = queue.popleft()
            for j in range(len(right)):
                if j in came or not fit(i, j):
                    continue
                came[j] = i
                if j not in holder:
                    end = j
                    break
                queue.append(holder[j])
        if end is None:
            continue
        del free[end]
        held = {i: j for j, i in holder.items()}
        place: int | None = end
        while place is not None:
            i = came[place]
            holder[place] = i
            place = held.get(i)
    return {i: j for j, i in holder.items()}


def assign_pairs(cost: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return row and column of min(rows, columns) pairs with the least total cost; O(n²m)."""
    if not cost or not cost[0]:
        return []
    if len(cost) > len(cost[0]):
        return sorted((i, j) for j, i in assign_pairs([list(column) for column in zip(*cost, strict=True)]))
    rows, columns = len(cost), len(cost[0])
    row_price, column_price = [0.0] * (rows + 1), [0.0] * (columns + 1)
    owner, way = [0] * (columns + 1), [0] * (columns + 1)  # 0 stands for none; rows and columns count from 1
    for row in range(1, rows + 1):
        owner[0], at = row, 0
        least, done = [float("inf")] * (columns + 1), [False] * (columns + 1)
        while owner[at]:
            done[at] = True
            own, step, best = owner[at], float("inf"), 0
            for j in range(1, columns + 1):
                if done[j]:
                    continue
                price = cost[own - 1][j - 1] - row_price[own] - column_price[j]
                if price < least[j]:
                    least[j], way[j] = price, at
                if least[j] < step:
                    step, best = least[j], j
            for j in range(columns + 1):
                if done[j]:
                    row_price[owner[j]] += step
                    column_price[j] -= step
                else:
                    least[j] -= step
            at = best
        while at:
            owner[at] = owner[way[at]]
            at = way[at]
    return sorted((owner[j] - 1, j - 1) for j in range(1, columns + 1) if owner[j])
