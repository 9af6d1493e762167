"""Measures of a subgraph H: complexity c(H), and tools whose needs it does not provide (ScaleEnv §4.2.2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from simia.synthesis.graph.sampling import list_all_needs, provides_all
from simia.synthesis.graph.tool_graph import ToolGraph

EDGE_WEIGHT = 0.5
SATURATION = 50


def compute_complexity(graph: ToolGraph, tools: Collection[str]) -> float:
    """c(H) = (nodes + 0.5 · edges) / 50. Several edges between two tools count once."""
    inside = set(tools)
    edges = {(edge.source, edge.target) for edge in graph.edges if edge.source != edge.target}
    count = sum(source in inside and target in inside for source, target in edges)
    return round((len(inside) + EDGE_WEIGHT * count) / SATURATION, 4)


def drop_dead_ends(graph: ToolGraph, tools: Sequence[str], kept: Collection[str]) -> list[str]:
    """Drop tools that need a value which no other tool of the list provides. `kept`: tools that stay in any case."""
    needs, found = list_all_needs(graph), list(tools)
    while True:
        left = [name for name in found if name in kept or provides_all(found, needs[name])]
        if len(left) == len(found):
            return found
        found = left
