"""Compare several packs: tools, tables and density (ScaleEnv, Fig. 5), and a map of their tools by similarity (Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simia.llm.backends import LLMSettings, open_backend
from simia.llm.embeddings import embed_texts, make_lexical_vectors
from simia.llm.engine import Engine
from simia.pack import Pack
from simia.report.neighbour_layout import Place, Vector, list_neighbours, place_neighbours
from simia.report.scatter_plot import PlotAxes, ScatterPoint, draw_scatter
from simia.report.tool_graph_report import measure_pack
from simia.synthesis.graph.graph_figures import GraphFigures
from simia.terminal import write_count

STRUCTURE_HEAD = ("pack", ">tools", ">tables", ">provides", ">requires", ">changes", ">density", ">levels")
MAP_HEAD = ("pack", ">tools", "nearest pack", ">nearest tool is of another pack")
MOST_TOOLS = 800  # of all packs on the map
RADIUS, WIDEST = 6.0, 22.0


@dataclass(frozen=True, slots=True)
class ToolMap:
    """The tools of several packs on a plane."""

    packs: tuple[str, ...]
    """Names of the packs."""
    tools: tuple[tuple[int, str], ...]
    """(index of the pack, tool)."""
    places: tuple[Place, ...]
    """Where each tool is."""
    nearest: tuple[tuple[int, ...], ...]
    """Indices of the nearest tools of each tool."""
    compared_by: str
    """`words`, or the model that embedded the tools."""
    left_out: int = 0
    """Tools that are not on the map, because it would have too many."""


def measure_structures(packs: Sequence[Pack]) -> list[tuple[str, GraphFigures]]:
    """(pack, its structure) of the packs that have a tool graph."""
    found = [(pack.name, measure_pack(pack)) for pack in packs]
    return [(name, figures) for name, figures in found if figures is not None]


def list_structure_cells(found: Sequence[tuple[str, GraphFigures]]) -> list[tuple[str, ...]]:
    """A row for each pack."""
    rows: list[tuple[str, ...]] = []
    for name, each in found:
        kinds = (f"{each.edges[kind]:,}" for kind in ("provides", "requires", "changes"))
        last = max(each.levels.values(), default=0)
        rows.append((name, str(each.tools), str(each.tables), *kinds, f"{each.density:.3f}", str(last)))
    return rows


def draw_structures(found: Sequence[tuple[str, GraphFigures]]) -> str:
    """Draw a bubble for each pack: x is the number of tools, y that of tables; size and opacity show the density."""
    densest = max((each.density for _, each in found), default=0.0) or 1.0
    points = [
        ScatterPoint(
            each.tools, each.tables, f"{name}: {write_count(each.tools, 'tool')}, {write_count(each.tables, 'table')}, density {each.density:.3f}",
            radius=RADIUS + (WIDEST - RADIUS) * each.density / densest, strength=0.25 + 0.6 * each.density / densest,
        )
        for name, each in found
    ]  # fmt: skip
    return draw_scatter(points, axes=PlotAxes("tools", "tables"), labelled=True)


def list_tool_texts(packs: Sequence[Pack]) -> tuple[list[tuple[int, str]], list[str]]:
    """(index of the pack, tool) with the tool's text: its name as words, and its description."""
    tools = [(n, tool) for n, pack in enumerate(packs) for tool in pack.tools]
    return (
        [(n, tool.name) for n, tool in tools],
        [f"{tool.name.replace('_', ' ')}: {tool.description}" for _, tool in tools],
    )


def map_tools(packs: Sequence[Pack], vectors: Sequence[Vector] | None = None, *, model: str = "") -> ToolMap:
    """Map the tools of several packs. `vectors`: embeddings of `list_tool_texts` by `model`; None: by their words."""
    tools, texts = list_tool_texts(packs)
    step = -(-len(tools) // MOST_TOOLS) or 1
    kept = range(0, len(tools), step)
    all_: Sequence[Vector] = make_lexical_vectors(texts) if vectors is None else vectors
    near = list_neighbours([all_[n] for n in kept])
    return ToolMap(
        packs=tuple(pack.name for pack in packs),
        tools=tuple(tools[n] for n in kept),
        places=tuple(place_neighbours(near)),
        nearest=tuple(tuple(other for _, other in each) for each in near),
        compared_by=model or "words",
        left_out=len(tools) - len(kept),
    )


async def embed_tools(packs: Sequence[Pack], settings: LLMSettings) -> list[list[float]]:
    """Embed the texts of all tools by a model. Raises `LLMFault` if it fails."""
    async with Engine(open_backend(settings)) as engine:
        return await embed_texts(
            lambda request, draw: engine.ask(request, item="tools", draw=draw), list_tool_texts(packs)[1], draw="tools"
        )


def list_map_cells(of: ToolMap) -> list[tuple[str, ...]]:
    """For each pack: the other pack with most nearest neighbours of its tools, and how many tools have their nearest in another pack."""
    rows: list[tuple[str, ...]] = []
    for n, name in enumerate(of.packs):
        own = [i for i, (pack, _) in enumerate(of.tools) if pack == n and of.nearest[i]]
        first = [of.tools[of.nearest[i][0]][0] for i in own]
        others = [of.tools[j][0] for i in own for j in of.nearest[i] if of.tools[j][0] != n]
        nearest = max(sorted(set(others)), key=others.count, default=None)
        away = sum(pack != n for pack in first)
        share = f"{away} of {len(own)} ({away / len(own):.0%})" if own else "–"
        rows.append((name, str(len(own)), "–" if nearest is None else of.packs[nearest], share))
    return rows


def draw_map(of: ToolMap) -> str:
    """A point for each tool, a colour for each pack."""
    points = [
        ScatterPoint(x, y, f"{of.packs[pack]}: {tool}", group=pack)
        for (pack, tool), (x, y) in zip(of.tools, of.places, strict=True)
    ]
    return draw_scatter(points, legend=of.packs)


def describe_map(of: ToolMap) -> str:
    """Describe the map in words."""
    by = "the words of their names and descriptions" if of.compared_by == "words" else f"embeddings of {of.compared_by}"
    more = f" Left out: {write_count(of.left_out, 'tool')}." if of.left_out else ""
    return f"Tools that resemble each other are near, by {by} (ScaleEnv, Fig. 4). Distances between far groups mean nothing.{more}"
