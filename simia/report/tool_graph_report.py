"""The graph of a pack's tools in the terminal, as rows, and drawn as SVG."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

from rich.console import Console

from simia.pack import Pack
from simia.report.console import make_plain_text
from simia.report.graph_drawing import GraphEdge, GraphNode, draw_graph
from simia.report.report_rows import Rows, format_counts
from simia.report.terminal_report import make_grid
from simia.synthesis.graph.graph_building import read_pack_graph
from simia.synthesis.graph.graph_figures import GraphFigures, measure_graph
from simia.synthesis.graph.tool_graph import CHANGES, PROVIDES, ToolGraph
from simia.terminal import write_count

MOST_COMPARED = 20_000_000  # arguments × fields of results; for larger packs no graph is searched
MOST_NAMES = 6
STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#555}.title{fill:#111}"
    "rect{fill:#fff;stroke:#bbb}.writer rect{stroke:#c2410c}.reader rect{stroke:#1d4ed8}"
    "path{fill:none;stroke:#999;stroke-width:1.2}path.requires{stroke:#c2410c;stroke-dasharray:5 3}path.may{stroke:#ddd}"
    "path.changes{stroke:#ddd;stroke-dasharray:2 3}path.head{fill:#999;stroke:none}"
)


def find_pack_graph(pack: Pack) -> ToolGraph | None:
    """Return the graph of a pack: its own edges, else edges found by words; None if it has no tools or is too large to search."""
    arguments = sum(len(tool.parameters.get("properties") or ()) for tool in pack.tools)
    if not pack.tools or (not pack.graph and arguments * len(pack.tools) * 20 > MOST_COMPARED):
        return None
    return read_pack_graph(pack)


def measure_pack(pack: Pack) -> GraphFigures | None:
    """The structure of a pack (ScaleEnv, Fig. 5); None if it has no graph."""
    graph = find_pack_graph(pack)
    return None if graph is None else measure_graph(graph, len(pack.state_schema.tables) if pack.state_schema else None)


def name_edge_source(pack: Pack) -> str:
    """Name the source of the edges of a pack's graph."""
    return "edges of the pack" if pack.graph else "edges found by words"


def list_graph_rows(found: GraphFigures) -> Rows:
    """The summary of a graph."""
    rows = [
        ("tools", f"{found.tools}, {write_count(found.tables, 'table')}"),
        ("edges", format_counts(found.edges) or "none"),
        ("density", f"{found.density:.3f} of all pairs of tools"),
        ("levels", f"0 to {max(found.levels.values(), default=0)}"),
    ]
    if found.components > 1:
        rows.append(("parts", f"{found.components} that no edge joins"))
    if found.alone:
        rows.append(("alone", cut_names(found.alone, 8)))
    return rows


def list_graph_lines(graph: ToolGraph, found: GraphFigures) -> list[str]:
    """List the tools by level, each with the tools whose results can be its arguments and the tools that fulfil its conditions."""
    last = len(graph.tools)
    names = sorted(graph.tools, key=lambda name: found.levels.get(name, last))
    lines = []
    for level, group in groupby(names, key=lambda name: found.levels.get(name, last)):
        lines.append("cannot be called" if level == last else f"level {level}")
        for name in group:
            lines += [f"  {name} ({'writes' if graph.tools[name].writes else 'reads'})", *list_need_lines(graph, name)]
    return lines


def list_need_lines(graph: ToolGraph, name: str) -> list[str]:
    """List a line for each argument that a result can provide (`?` after one that a call does not need), and a line for conditions."""
    lines = []
    needed = {each.name for each in graph.list_needs(name)}
    for each in graph.tools[name].inputs:
        fields = [
            edge.source if edge.result in (None, each.name) else f"{edge.source}.{edge.result}"
            for edge in graph.edges
            if edge.kind == PROVIDES and edge.target == name and edge.argument == each.name
        ]
        if fields:
            lines.append(f"    {each.name}{'' if each.name in needed else '?'} ← {cut_names(fields, MOST_NAMES)}")
    other = (edge for edge in graph.edges if edge.target == name and edge.kind not in (PROVIDES, CHANGES))
    conditions: dict[str, list[str]] = defaultdict(list)
    for edge in other:
        conditions[edge.kind].append(edge.source)
    return [*lines, *(f"    {kind}: {cut_names(names, MOST_NAMES)}" for kind, names in conditions.items())]


def cut_names(names: list[str] | tuple[str, ...], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def print_graph(graph: ToolGraph, found: GraphFigures, to: Console) -> None:
    """Print the summary, and the tools by level."""
    to.print(make_grid(list_graph_rows(found)))
    for line in list_graph_lines(graph, found):
        to.print(make_plain_text(line, "" if line.startswith(" ") else "bold"))


def make_tool_drawing(graph: ToolGraph | None, *, changes: bool = False) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Make the nodes and edges to draw; a tool is to the right of the tools that it depends on, and points to them.

    There is one edge for each pair of tools and kind. `changes`: draw shared tables too.
    """
    if graph is None:
        return [], []
    labels: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.kind == CHANGES and not changes:
            continue
        kind = edge.kind
        if kind == PROVIDES:
            needed = any(each.name == edge.argument for each in graph.list_needs(edge.target))
            kind = "needs" if needed else "may"
        labels[edge.target, edge.source, kind].append(edge.argument or edge.kind)
    edges = [GraphEdge(target, source, ", ".join(names), kind) for (target, source, kind), names in labels.items()]
    order = {"may": 0, CHANGES: 1}
    edges.sort(key=lambda edge: order.get(edge.kind, 2))  # important edges are drawn last, over the others
    joined = {name for edge in edges for name in (edge.source, edge.target)}
    nodes = [
        GraphNode(name, kind="writer" if node.writes else "reader")
        for name, node in graph.tools.items()
        if name in joined
    ]
    return nodes, edges


def draw_tool_graph(graph: ToolGraph, *, changes: bool = False) -> str:
    """Draw the graph as a stand-alone SVG file; equal graphs give equal bytes."""
    drawing = draw_graph(*make_tool_drawing(graph, changes=changes))
    head, _, rest = drawing.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style><rect width="100%" height="100%" style="stroke:none"/>{rest}\n'
