"""`simia pack graph`: the tool graph of a pack in the terminal, and drawn as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simia.cli.options import PACK
from simia.errors import UserError
from simia.pack import Pack
from simia.report.console import Terminal
from simia.terminal import say, say_json


def pack_graph(
    pack: PACK,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also draw the graph to this SVG file.")] = None,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes", help="With --svg: also draw edges between tools that use a table which one of them changes."
        ),
    ] = False,
    found: Annotated[
        bool, typer.Option("--found", help="Find the edges by words, even if the pack has its own edges.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph as JSON.")] = False,
) -> None:
    """Show which tool depends on a result, a condition or a change of another tool: the pack's own edges, or else edges found by words."""
    from simia.report.tool_graph_report import draw_tool_graph, find_pack_graph, name_edge_source, print_graph
    from simia.synthesis.graph.graph_building import make_graph
    from simia.synthesis.graph.graph_figures import measure_graph

    loaded = Pack.load(pack)
    graph = make_graph(loaded) if found else find_pack_graph(loaded)
    if graph is None:
        why = "it has no tools" if not loaded.tools else "it has too many arguments to compare: write a graph file"
        raise UserError(f"{pack} has no tool graph: {why}")
    if as_json:
        say_json(graph.model_dump_json(indent=2))
    else:
        say(f"tool graph of {loaded.name}, {'edges found by words' if found else name_edge_source(loaded)}")
        print_graph(
            graph, measure_graph(graph, len(loaded.state_schema.tables) if loaded.state_schema else None), Terminal()
        )
    if svg is not None:
        try:
            svg.write_text(draw_tool_graph(graph, changes=changes), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{svg} cannot be written: {error.strerror or error}") from None
        say(f"drawing: {svg}")
