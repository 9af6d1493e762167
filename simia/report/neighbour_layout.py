"""Place vectors on a plane so that near ones stay near: the layout of UMAP (McInnes et al., 2018), in plain Python and repeatable.

Each point is pulled to its nearest neighbours and pushed away from random other points. ScaleEnv's Fig. 4 uses t-SNE, which compares
all pairs in every round. In both, distances between far groups have no meaning.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

from simia.llm.embeddings import SparseVector, compute_cosine

Vector = Sequence[float] | SparseVector
Place = tuple[float, float]
NEIGHBOURS, ROUNDS, PUSHED = 8, 120, 3
MOST_STEP = 4.0


def list_neighbours(vectors: Sequence[Vector]) -> list[list[tuple[float, int]]]:
    """For each vector the nearest others with their cosines, the nearest first."""
    near: list[list[tuple[float, int]]] = [[] for _ in vectors]
    for i, one in enumerate(vectors):
        for j in range(i):
            cosine = compute_cosine(one, vectors[j])
            for a, b in ((i, j), (j, i)):
                heapq.heappush(near[a], (cosine, -b))
                if len(near[a]) > NEIGHBOURS:
                    heapq.heappop(near[a])
    return [[(cosine, -other) for cosine, other in sorted(each, reverse=True)] for each in near]


def place_neighbours(near: Sequence[Sequence[tuple[float, int]]], *, rng_seed: int = 0) -> list[Place]:
    """Place points by their neighbours (`list_neighbours`). Coordinates are rounded, so that they are equal on every machine."""
    rng = random.Random(f"{rng_seed}/neighbour layout")
    places = [[rng.uniform(-10, 10), rng.uniform(-10, 10)] for _ in near]
    edges = sorted({(min(i, j), max(i, j), cosine) for i, each in enumerate(near) for cosine, j in each if cosine > 0})
    strongest = max((cosine for *_, cosine in edges), default=1.0)
    for round_ in range(ROUNDS if len(near) > 1 else 0):
        rate = 1 - round_ / ROUNDS
        for i, j, cosine in edges:
            if rng.random() > cosine / strongest:
                continue
            move_point(places[i], places[j], rate, pull=True)
            move_point(places[j], places[i], rate, pull=True)
            for a in (i, j):
                for _ in range(PUSHED):
                    other = rng.randrange(len(near))
                    if other != a:
                        move_point(places[a], places[other], rate, pull=False)
    return [(round(x, 2), round(y, 2)) for x, y in places]


def move_point(point: list[float], other: Sequence[float], rate: float, *, pull: bool) -> None:
    """Move a point along the gradient of the similarity 1 / (1 + distance²)."""
    dx, dy = point[0] - other[0], point[1] - other[1]
    squared = dx * dx + dy * dy
    strength = -2.0 / (1.0 + squared) if pull else 2.0 / ((0.01 + squared) * (1.0 + squared))
    point[0] += rate * min(MOST_STEP, max(-MOST_STEP, strength * dx))
    point[1] += rate * min(MOST_STEP, max(-MOST_STEP, strength * dy))
