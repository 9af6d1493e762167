"""Draw small directed graphs as SVG: nodes in layers from left to right, edges as curves. Equal graphs give equal bytes.

A node is to the right of all nodes that it points to (longest path), except in cycles. Within a layer, nodes are ordered by the mean
place of their neighbours (the barycentre heuristic of Sugiyama's method). Texts are escaped and cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

MOST_NODES, MOST_EDGES = 150, 600
MOST_LABEL, MOST_LINES = 28, 12
LINE, PAD, GAP_X, GAP_Y = 15, 7, 90, 14
CHARACTER = 7.0  # width of one, in a font of 12
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box with a title and smaller lines below it. `kind`: its CSS class."""

    id: str
    lines: tuple[str, ...] = ()
    kind: str = "node"

    @property
    def shown(self) -> list[str]:
        """The lines as drawn."""
        lines = [*self.lines[:MOST_LINES], *(["…"] if len(self.lines) > MOST_LINES else [])]
        return [cut_label(self.id), *map(cut_label, lines)]

    @property
    def width(self) -> float:
        return 2 * PAD + CHARACTER * max(map(len, self.shown))

    @property
    def height(self) -> float:
        return 2 * PAD + LINE * len(self.shown)


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An arrow. `label` is shown when the pointer is on it; `kind`: its CSS class."""

    source: str
    target: str
    label: str = ""
    kind: str = "edge"


def draw_graph(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> str:
    """Draw a graph; the first `MOST_NODES` nodes and `MOST_EDGES` edges of it."""
    shown = {node.id: node for node in nodes[:MOST_NODES]}
    kept = [edge for edge in edges if edge.source in shown and edge.target in shown][:MOST_EDGES]
    layers = order_layers(assign_layers(list(shown), kept), kept)
    places, width, height = place_nodes(layers, shown)
    parts = [draw_edge(edge, shown, places) for edge in kept]
    parts += [draw_node(node, *places[node.id]) for node in shown.values()]
    head = f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img">'
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    return "\n".join([head, arrow, *parts, "</svg>"])


def assign_layers(names: Sequence[str], edges: Iterable[GraphEdge]) -> list[list[str]]:
    """Group nodes by the longest path that starts in them; edges that close a cycle do not count."""
    targets: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        if edge.source != edge.target and edge.target not in targets[edge.source]:
            targets[edge.source].append(edge.target)
    depth: dict[str, int] = {}
    open_: set[str] = set()
    for name in names:
        stack = [(name, iter(targets[name]))]
        if name in depth:
            continue
        open_.add(name)
        while stack:
            node, rest = stack[-1]
            target = next((each for each in rest if each not in depth and each not in open_), None)
            if target is not None:
                open_.add(target)
                stack.append((target, iter(targets[target])))
                continue
            stack.pop()
            open_.discard(node)
            depth[node] = 1 + max((depth[each] for each in targets[node] if each in depth), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        layers[depth[name]].append(name)
    return layers


def order_layers(layers: list[list[str]], edges: Sequence[GraphEdge]) -> list[list[str]]:
    """Order the nodes of each layer by the mean place of their neighbours, in sweeps that alternate in direction."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        neighbours[edge.source].append(edge.target)
        neighbours[edge.target].append(edge.source)
    for sweep in range(SWEEPS):
        place = {name: n / max(1, len(layer) - 1) for layer in layers for n, name in enumerate(layer)}
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            means = {name: mean_place(neighbours[name], place, place[name]) for name in layer}
            layer.sort(key=lambda name: means[name])
            place |= {name: n / max(1, len(layer) - 1) for n, name in enumerate(layer)}
    return layers


def mean_place(names: Sequence[str], place: Mapping[str, float], default: float) -> float:
    return sum(place[name] for name in names) / len(names) if names else default


def place_nodes(
    layers: Sequence[Sequence[str]], nodes: Mapping[str, GraphNode]
) -> tuple[dict[str, tuple[float, float]], float, float]:
    """Upper left corner of each node, and the size of the drawing. Layers are centred against each other."""
    heights = [sum(nodes[name].height + GAP_Y for name in layer) - GAP_Y for layer in layers]
    whole = max(heights, default=0.0)
    places: dict[str, tuple[float, float]] = {}
    x = 4.0
    for layer, height in zip(layers, heights, strict=True):
        y = 4.0 + (whole - height) / 2
        for name in layer:
            places[name] = (x, y)
            y += nodes[name].height + GAP_Y
        x += max(nodes[name].width for name in layer) + GAP_X
    return places, max(8.0, x - GAP_X + 4), whole + 8


def draw_node(node: GraphNode, x: float, y: float) -> str:
    title, *lines = node.shown
    rows = [f'<text class="title" x="{x + PAD:.1f}" y="{y + PAD + 11:.1f}">{escape(title)}</text>']
    for n, line in enumerate(lines, 1):
        rows.append(f'<text x="{x + PAD:.1f}" y="{y + PAD + 11 + LINE * n:.1f}">{escape(line)}</text>')
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{node.width:.1f}" height="{node.height:.1f}" rx="5"/>'
    return f'<g class="{escape(node.kind)}"><title>{escape(node.id[:200])}</title>{box}{"".join(rows)}</g>'


def draw_edge(edge: GraphEdge, nodes: Mapping[str, GraphNode], places: Mapping[str, tuple[float, float]]) -> str:
    """A curve from the side of a node that faces the other one; a loop for an edge to itself."""
    source, target = nodes[edge.source], nodes[edge.target]
    (x1, y1), (x2, y2) = places[edge.source], places[edge.target]
    y1, y2 = y1 + source.height / 2, y2 + target.height / 2
    if edge.source == edge.target:
        right, top = x1 + source.width, y1 - source.height / 2
        path = f"M{right - 18:.1f} {top:.1f}c6 -16 26 -8 18 {PAD + 4}"
    elif x1 == x2 or abs(x1 - x2) < 1:
        right = max(x1 + source.width, x2 + target.width) + 26
        path = f"M{x1 + source.width:.1f} {y1:.1f}C{right:.1f} {y1:.1f} {right:.1f} {y2:.1f} {x2 + target.width:.1f} {y2:.1f}"
    else:
        start, end = (x1, x2 + target.width) if x1 > x2 else (x1 + source.width, x2)
        middle = (start + end) / 2
        path = f"M{start:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {end:.1f} {y2:.1f}"
    words = f"{edge.source[:80]} → {edge.target[:80]}" + (f": {edge.label[:200]}" if edge.label else "")
    return (
        f'<path class="{escape(edge.kind)}" d="{path}" marker-end="url(#arrow)"><title>{escape(words)}</title></path>'
    )


def cut_label(text: str) -> str:
    return text if len(text) <= MOST_LABEL else text[: MOST_LABEL - 1] + "…"
