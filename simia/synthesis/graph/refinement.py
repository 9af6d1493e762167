"""Correct a tool graph by a model's reply: add and remove edges, mark arguments that a user knows (EnvFactory §3.3.1, step 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from simia.pack_provenance import ToolEdge
from simia.reward_spec import StrictModel
from simia.synthesis.design import BuiltEnvironment, ToolDesign
from simia.synthesis.graph.graph_building import mark_external
from simia.synthesis.graph.tool_graph import PROVIDES, REQUIRES, GraphTool, ToolGraph

MOST_ADDED = 2  # edges for each tool; a longer list is no correction


class NamedEdge(StrictModel, extra="ignore"):
    """An edge as a reply names it."""

    source: str
    """The tool that comes first."""
    target: str
    """The tool that needs it."""
    kind: Literal["provides", "requires"] = "provides"
    """Type of the edge."""
    argument: str | None = None
    """Argument of the target; none for `requires`."""
    result: str | None = None
    """Field of the source's result."""


class GraphCorrections(StrictModel, extra="ignore"):
    """The reply of a model."""

    add: list[NamedEdge] = Field(default_factory=list)
    """Edges that are missing."""
    remove: list[NamedEdge] = Field(default_factory=list)
    """Edges that are wrong."""
    external: list[str] = Field(default_factory=list)
    """`tool.argument` of internal arguments that a user knows."""
    internal: list[str] = Field(default_factory=list)
    """`tool.argument` of external arguments that only a result gives."""


@dataclass(slots=True)
class CorrectedGraph:
    """A graph after corrections, and what was done."""

    graph: ToolGraph
    added: int = 0
    removed: int = 0
    ignored: list[str] = field(default_factory=list)
    """Corrections that name what does not exist, or edges that exist already."""


def correct_graph(graph: ToolGraph, known: Iterable[tuple[str, str]], corrections: GraphCorrections) -> CorrectedGraph:
    """Apply the corrections that name existing tools, arguments and edges; the others are listed.

    Args:
        graph: the graph as it was found.
        known: (tool, argument) of values that a user knows (`list_known_arguments`).
        corrections: the model's reply.

    Returns:
        The corrected graph, in which every tool can still be called.
    """
    found = CorrectedGraph(graph)
    edges = list(graph.edges)
    for wrong in corrections.remove:
        kept = [edge for edge in edges if not means_edge(edge, wrong)]
        if len(kept) == len(edges):
            found.ignored.append(f"remove {wrong.source} → {wrong.target}: no such edge")
        found.removed += len(edges) - len(kept)
        edges = kept
    for missing in corrections.add:
        fault = find_edge_fault(graph, edges, missing)
        if not fault and found.added >= MOST_ADDED * len(graph.tools):
            fault = "too many edges"
        if fault:
            found.ignored.append(f"add {missing.source} → {missing.target}: {fault}")
            continue
        edges.append(make_edge(graph, missing))
        found.added += 1
    users = set(known)
    for names, change in ((corrections.external, users.add), (corrections.internal, users.discard)):
        for place in names:
            tool, _, argument = place.rpartition(".")
            if tool in graph.tools and any(each.name == argument for each in graph.tools[tool].inputs):
                change((tool, argument))
            else:
                found.ignored.append(f"{place}: no such argument")
    found.graph = mark_external(ToolGraph(tools=graph.tools, edges=edges), users)
    return found


def means_edge(edge: ToolEdge, named: NamedEdge) -> bool:
    """Whether a correction refers to an edge; without an argument it refers to all `provides` edges between two tools."""
    same = edge.kind == named.kind and (edge.source, edge.target) == (named.source, named.target)
    return same and (named.argument is None or named.argument == edge.argument)


def find_edge_fault(graph: ToolGraph, edges: Sequence[ToolEdge], named: NamedEdge) -> str:
    """Why an edge cannot be added; empty if it can."""
    if unknown := next((name for name in (named.source, named.target) if name not in graph.tools), None):
        return f"no tool {unknown}"
    if named.source == named.target:
        return "a tool does not depend on itself"
    if any(means_edge(edge, named) for edge in edges):
        return "it exists"
    if named.kind == PROVIDES and all(each.name != named.argument for each in graph.tools[named.target].inputs):
        return f"no argument {named.argument}"
    return ""


def make_edge(graph: ToolGraph, named: NamedEdge) -> ToolEdge:
    """A named edge as one of the graph; a field that the result does not have is left out."""
    provides = named.kind == PROVIDES
    result = (named.result or "").replace("[]", "").rpartition(".")[2]
    fields = [each.name for each in graph.tools[named.source].outputs]
    known = next((name for name in fields if name == named.result), next((n for n in fields if n == result), None))
    return ToolEdge(
        source=named.source,
        target=named.target,
        kind=named.kind,
        argument=named.argument if provides else None,
        result=known if provides else None,
        origin="model",
    )


def describe_graph(graph: ToolGraph, built: BuiltEnvironment) -> dict[str, Any]:
    """The values of the prompt."""
    designs = {tool.name: tool for tool in built.design.tools}
    producers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.kind in (PROVIDES, REQUIRES) and edge.argument is not None:
            producers[edge.target, edge.argument].append(f"{edge.source}.{edge.result}")
    return {
        "title": built.design.title,
        "description": built.design.description,
        "tools": [describe_node(name, node, designs[name]) for name, node in graph.tools.items()],
        "edges": [f"- {tool}.{argument} from {', '.join(names)}" for (tool, argument), names in producers.items()],
    }


def describe_node(name: str, node: GraphTool, design: ToolDesign) -> str:
    """A tool in a few lines."""
    arguments = [
        f"{each.name}{'*' if each.required else ''} ({each.type}, {'external' if each.external else 'internal'})"
        for each in node.inputs
    ]
    lines = [
        f"- {name}({', '.join(arguments)}): {node.description}",
        f"  result: {design.returns or ', '.join(each.name for each in node.outputs) or 'nothing'}",
        *([f"  rules: {' '.join(design.rules)}"] if design.rules else []),
        *([f"  refused if: {'; '.join(design.refusals)}"] if design.refusals else []),
    ]
    return "\n".join(lines)
