"""Measure a tool graph: its density, as in ScaleEnv's Fig. 5, the number of calls needed before each tool, and tools without edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simia.synthesis.graph.sampling import list_all_needs, provides_all
from simia.synthesis.graph.tool_graph import ToolGraph

if TYPE_CHECKING:
    import networkx as nx  # type: ignore[import-untyped,unused-ignore]


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """The structure of an environment."""

    tools: int
    """Nodes."""
    tables: int
    """Tables of the state; those that tools name if the state has no schema."""
    edges: Counter[str] = field(default_factory=Counter)
    """Edges by kind."""
    density: float = 0.0
    """Share of the ordered pairs of tools that have an edge of any kind."""
    components: int = 0
    """Number of connected components."""
    alone: tuple[str, ...] = ()
    """Tools without an edge."""
    levels: dict[str, int] = field(default_factory=dict)
    """Tool → length of the shortest dependency before it: 0 if it can be called first."""


def make_digraph(graph: ToolGraph) -> nx.DiGraph:
    """The graph for networkx: one edge for each pair of tools, with its kinds."""
    import networkx as nx  # imported late, so that other commands start without it

    found: nx.DiGraph = nx.DiGraph()
    found.add_nodes_from(graph.tools)
    for edge in graph.edges:
        kinds = found.edges[edge.source, edge.target]["kinds"] if found.has_edge(edge.source, edge.target) else ()
        found.add_edge(edge.source, edge.target, kinds=(*kinds, edge.kind))
    return found


def measure_graph(graph: ToolGraph, tables: int | None = None) -> GraphFigures:
    """Measure a graph. `tables`: tables of the state's schema; None: those that the tools name are counted."""
    import networkx as nx

    whole = make_digraph(graph)
    named = {table for tool in graph.tools.values() for table in tool.tables}
    return GraphFigures(
        tools=len(graph.tools),
        tables=len(named) if tables is None else tables,
        edges=Counter(edge.kind for edge in graph.edges),
        density=nx.density(whole) if len(graph.tools) > 1 else 0.0,
        components=nx.number_weakly_connected_components(whole),
        alone=tuple(nx.isolates(whole)),
        levels=find_levels(graph),
    )


def find_levels(graph: ToolGraph) -> dict[str, int]:
    """Return tool → length of the shortest chain of results needed before it can be called. Tools that cannot be called are left out."""
    needs = list_all_needs(graph)
    levels: dict[str, int] = {}
    level = 0
    while ready := [name for name in needs if name not in levels and provides_all(levels, needs[name])]:
        levels |= dict.fromkeys(ready, level)
        level += 1
    return {name: levels[name] for name in graph.tools if name in levels}
