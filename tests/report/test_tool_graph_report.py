"""The tool graph of a pack in the terminal and drawn; several packs compared by structure and by their tools."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import orjson
import pytest

from simia.pack import Pack
from simia.pack_provenance import ToolEdge
from simia.report.neighbour_layout import list_neighbours, place_neighbours
from simia.report.pack_comparison import ToolMap, draw_map, list_map_cells, map_tools
from simia.report.scatter_plot import PlotAxes, ScatterPoint, draw_scatter, round_up
from simia.report.tool_graph_report import draw_tool_graph, make_tool_drawing, measure_pack
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.graph.graph_building import make_graph, read_pack_graph
from simia.synthesis.graph.graph_figures import find_levels, measure_graph
from simia.synthesis.graph.tool_graph import GraphInput, GraphTool, ToolGraph
from tests.command import run_simia
from tests.synthesis.build_fixtures import load_library

if TYPE_CHECKING:  # pytest loads it as a plugin
    from tests.fake_endpoint import FakeEndpoint

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two packs."""
    packs = tmp_path / "packs"
    write_environment(packs / "library", load_library(), graph=make_graph(load_library()))
    shutil.copytree(Path("seeds/customer_service"), packs / "shop")
    return packs


def test_the_graph_in_the_terminal(tmp_path: Path) -> None:
    done = run_simia("pack", "graph", "customer_service", "--svg", tmp_path / "graph.svg")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "tool graph of customer_service, edges of the pack"
    assert "edges    changes 103, provides 48, requires 8" in [line.rstrip() for line in lines]
    first = lines.index("level 0")
    assert "  find_customer (reads)" in lines[first : lines.index("level 1")]
    at = lines.index("  get_refund (reads)")
    assert "list_orders" in lines[at + 1]
    assert any(line.strip().startswith("requires: cancel_order, return_items") for line in lines[at : at + 5])
    tree = ElementTree.parse(tmp_path / "graph.svg").getroot()
    assert tree.tag.endswith("svg")
    kinds = [path.get("class") for path in tree.iter("{http://www.w3.org/2000/svg}path")]
    assert kinds.count("requires") == 8
    assert "changes" not in kinds
    words = run_simia("pack", "graph", "customer_service", "--found", "--svg", tmp_path / "all.svg", "--changes")
    assert "edges found by words" in words.stdout
    assert (tmp_path / "all.svg").read_text().count('class="changes"') == 103


def test_the_commands_of_the_page_run(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "my_packs")
    lines = re.findall(r"^simia pack .*$", (Path(__file__).parents[2] / "docs" / "graphs.md").read_text(), re.M)
    assert len(lines) >= 3
    for line in lines:
        done = run_simia(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_the_graph_as_json_is_the_graph() -> None:
    done = run_simia("pack", "graph", "customer_service", "--json")
    assert ToolGraph.model_validate(json.loads(done.stdout)) == read_pack_graph(Pack.load("customer_service"))


def test_a_pack_without_tools_and_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "pack.yaml").write_text("format: 2\nname: empty\n")
    done = run_simia("pack", "graph", tmp_path / "empty")
    assert done.returncode == 2
    assert "has no tool graph: it has no tools" in done.stderr
    done = run_simia("pack", "graph", "customer_service", "--svg", tmp_path / "missing" / "graph.svg")
    assert done.returncode == 2
    assert "cannot be written: No such file or directory" in done.stderr


def test_levels_and_density() -> None:
    graph = ToolGraph(
        tools={
            "find": GraphTool(inputs=[GraphInput(name="name", external=True)]),
            "get": GraphTool(inputs=[GraphInput(name="a_id")]),
            "pay": GraphTool(inputs=[GraphInput(name="a_id"), GraphInput(name="b_id")], writes=True, tables=["x", "y"]),
            "lost": GraphTool(inputs=[GraphInput(name="c_id")]),
            "free": GraphTool(),
        },
        edges=[
            ToolEdge(source="find", target="get", argument="a_id"),
            ToolEdge(source="find", target="pay", argument="a_id"),
            ToolEdge(source="get", target="pay", argument="b_id"),
            ToolEdge(source="get", target="pay", kind="changes"),
        ],
    )
    assert find_levels(graph) == {"find": 0, "get": 1, "pay": 2, "free": 0}
    found = measure_graph(graph)
    assert (found.tools, found.tables, found.components, found.alone) == (5, 2, 3, ("lost", "free"))
    assert found.density == 3 / 20
    assert found.edges == {"provides": 3, "changes": 1}
    assert measure_graph(ToolGraph(tools={"one": GraphTool()})).density == 0


def test_a_drawing_escapes_names_and_marks_what_a_call_can_do_without() -> None:
    graph = ToolGraph(
        tools={
            SCRIPT: GraphTool(),
            "b": GraphTool(inputs=[GraphInput(name="id"), GraphInput(name="page", required=False)], writes=True),
        },
        edges=[
            ToolEdge(source=SCRIPT, target="b", argument="id"),
            ToolEdge(source=SCRIPT, target="b", argument="page"),
            ToolEdge(source=SCRIPT, target="b", kind='"><b>'),
        ],
    )
    nodes, edges = make_tool_drawing(graph)
    assert [(edge.kind, edge.label) for edge in edges] == [("may", "page"), ("needs", "id"), ('"><b>', '"><b>')]
    assert [node.kind for node in nodes] == ["reader", "writer"]
    drawing = draw_tool_graph(graph)
    ElementTree.fromstring(drawing)
    assert "<script" not in drawing
    assert "<b>" not in drawing
    assert drawing == draw_tool_graph(graph)


def test_a_graph_that_is_too_large_to_search_is_left_out() -> None:
    tools = [{"name": f"t{n}", "parameters": {"properties": {f"a{m}": {} for m in range(30)}}} for n in range(300)]
    pack = Pack.model_validate({"name": "large", "tools": tools})
    assert measure_pack(pack) is None


def test_the_report_of_a_folder_compares_the_packs(folder: Path, tmp_path: Path) -> None:
    done = run_simia("pack", "report", folder, "--no-run", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["library", "7", "3", "6", "0", "12", "0.381", "1"] in rows
    assert ["customer_service", "20", "8", "48", "8", "103", "0.374", "3"] in rows
    assert any(row[:3] == ["library", "7", "customer_service"] for row in rows)
    page = (tmp_path / "page.html").read_text()
    for words in ("Tools, tables and density", "Map of the tools", "by the words of their names", "library: lend_book"):
        assert words in page
    assert page.count("<circle") == 2 + 27 + 2, "a bubble a pack, a point a tool, and the legend"
    again = run_simia("pack", "report", folder, "--no-run", "--html", tmp_path / "again.html")
    assert again.stdout.replace("again.html", "page.html") == done.stdout
    assert (tmp_path / "again.html").read_text() == page


def test_an_endpoint_embeds_the_tools(
    folder: Path, tmp_path: Path, fake_endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-simia-test-0123456789abcdef")
    options = (
        "--no-run",
        "--html",
        tmp_path / "page.html",
        "--embeddings",
        "embedder",
        "--base-url",
        fake_endpoint.url,
    )
    done = run_simia("pack", "report", folder, *options)
    assert done.returncode == 0, done.stderr
    assert "by embeddings of embedder" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("seeds", "--base-url", "http://localhost:1/v1"), "--base-url needs --embeddings"),
        (("customer_service", "--embeddings", "embedder"), "--embeddings is for the report of a folder of packs"),
    ],
)
def test_options_that_do_not_fit(options: tuple[str, ...], words: str) -> None:
    done = run_simia("pack", "report", *options, "--no-run")
    assert done.returncode == 2
    assert words in done.stderr


def test_near_vectors_are_placed_near() -> None:
    groups = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    vectors = [groups[n // 12] for n in range(36)]
    near = list_neighbours(vectors)
    assert all(other // 12 == n // 12 for n, each in enumerate(near) for _, other in each)
    places = place_neighbours(near)
    assert places == place_neighbours(list_neighbours(vectors))
    assert places != place_neighbours(near, rng_seed=1)

    def spread(pairs: list[tuple[int, int]]) -> float:
        return sum(math.dist(places[i], places[j]) for i, j in pairs) / len(pairs)

    pairs = [(i, j) for i in range(36) for j in range(i)]
    same = spread([pair for pair in pairs if pair[0] // 12 == pair[1] // 12])
    other = spread([pair for pair in pairs if pair[0] // 12 != pair[1] // 12])
    assert same < 0.5 * other


def test_tools_of_equal_packs_are_nearest_to_each_other() -> None:
    tools = [{"name": name, "description": f"{name} a {noun}"} for name, noun in (("lend", "book"), ("cook", "meal"))]
    packs = [Pack.model_validate({"name": name, "tools": tools}) for name in ("one", "two")]
    found = map_tools(packs)
    assert found.compared_by == "words"
    assert list_map_cells(found) == [("one", "2", "two", "2 of 2 (100%)"), ("two", "2", "one", "2 of 2 (100%)")]
    alone = map_tools(packs[:1])
    assert list_map_cells(alone) == [("one", "2", "–", "0 of 2 (0%)")]
    assert list_map_cells(map_tools([Pack(name="bare")])) == [("bare", "0", "–", "–")]
    assert "<circle" in draw_map(alone)


def test_a_map_has_a_bounded_number_of_tools() -> None:
    tools = [{"name": f"tool_{n}", "description": f"number {n}"} for n in range(1000)]
    found: ToolMap = map_tools([Pack.model_validate({"name": "many", "tools": tools})], [[1.0]] * 1000, model="m")
    assert len(found.tools) == 500
    assert found.left_out == 500


def test_a_scatter_plot_is_to_scale_and_escaped() -> None:
    points = [ScatterPoint(10, 5, f"{SCRIPT}: 10"), ScatterPoint(20, 10, "b", group=1)]
    drawing = draw_scatter(points, axes=PlotAxes("tools & more", "tables"), legend=[SCRIPT], labelled=True)
    tree = ElementTree.fromstring(drawing)
    one, two = [
        c
        for c in tree.iter("{http://www.w3.org/2000/svg}circle")
        if c.find("{http://www.w3.org/2000/svg}title") is not None
    ]
    left = float(one.get("cx", 0)) - 60
    assert float(two.get("cx", 0)) - 60 == pytest.approx(2 * left, abs=0.2)
    assert "<script" not in drawing
    assert "tools &amp; more" in drawing
    assert [round_up(value) for value in (0, 0.5, 1, 3, 25, 80, 81, 99)] == [1, 1, 1, 4, 40, 80, 100, 100]
    ElementTree.fromstring(draw_scatter([]))
    assert orjson.dumps(draw_scatter(points)) == orjson.dumps(draw_scatter(points))
