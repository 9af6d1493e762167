"""Chains and subgraphs over thousands of random graphs: nothing lacks an input, nothing occurs twice, and lengths are as drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from itertools import pairwise

import networkx as nx
import pytest

from eval.ablations.chain_sampling import SamplerFigures, count_samplers
from simia.errors import UserError
from simia.pack_provenance import ToolEdge
from simia.synthesis.graph.sampling import (
    ChainSampling,
    expand_subgraph,
    find_unsatisfied,
    sample_chain,
    walk_randomly,
)
from simia.synthesis.graph.tool_graph import REQUIRES, GraphInput, GraphTool, ToolGraph
from tests.synthesis.random_graphs import draw_domain, draw_graph, draw_graphs

GRAPHS = [2_500, pytest.param(10_000, marks=pytest.mark.all)]


class Providers:
    """Which tools give which arguments: written without the code under test."""

    def __init__(self, graph: ToolGraph) -> None:
        self.sources: dict[str, dict[str, set[str]]] = {}
        for name, tool in graph.tools.items():
            self.sources[name] = {each.name: set() for each in tool.inputs if each.required and not each.external}
        for edge in graph.edges:
            if edge.kind == "provides" and edge.source != edge.target and edge.argument in self.sources[edge.target]:
                self.sources[edge.target][edge.argument].add(edge.source)

    def lacks(self, tool: str, before: Collection[str]) -> bool:
        """Whether a required, internal argument has no producer among the tools before."""
        return any(sources.isdisjoint(before) for sources in self.sources[tool].values())


def list_possible(graph: ToolGraph, providers: Providers) -> set[str]:
    """Tools that can be executed at all: the least fixed point."""
    found: set[str] = set()
    while more := {name for name in graph.tools if name not in found and not providers.lacks(name, found)}:
        found |= more
    return found


def list_components(graph: ToolGraph, tools: set[str]) -> list[set[str]]:
    """Tools that edges connect."""
    found: nx.Graph[str] = nx.Graph()
    found.add_nodes_from(tools)
    found.add_edges_from((e.source, e.target) for e in graph.edges if {e.source, e.target} <= tools)
    return list(nx.connected_components(found))


def check_chain(providers: Providers, chain: list[str], components: list[set[str]], settings: ChainSampling) -> None:
    """Nothing lacks an input or occurs twice; the chain is connected, and long enough if the graph is."""
    assert not [tool for place, tool in enumerate(chain) if providers.lacks(tool, chain[:place])]
    assert len(chain) == len(set(chain)) <= settings.longest
    assert len(chain) >= min(settings.shortest, max(map(len, components), default=0))
    assert any(set(chain) <= part for part in components) or not components


def check_subgraph(graph: ToolGraph, providers: Providers, chain: list[str], found: list[str], most: int) -> None:
    """Nothing lacks an input or occurs twice, and nothing that could enter is left out."""
    assert found[: len(chain)] == chain
    assert len(found) == len(set(found)) <= max(most, len(chain))
    assert not [tool for place, tool in enumerate(found) if providers.lacks(tool, found[:place])]
    if len(found) < most:
        inside = set(found)
        touched = {name for e in graph.edges for name in (e.source, e.target) if {e.source, e.target} & inside}
        assert not [name for name in touched - inside if not providers.lacks(name, found)]


@pytest.mark.parametrize("graphs", GRAPHS)
def test_chains_and_subgraphs_of_random_graphs_are_complete_and_as_long_as_intended(graphs: int) -> None:
    settings, intended = ChainSampling(environments=99), Counter[int]()
    for key, graph in enumerate(draw_graphs(graphs)):
        providers = Providers(graph)
        components = list_components(graph, list_possible(graph, providers))
        chain = sample_chain(graph, random.Random(key), settings)
        check_chain(providers, chain, components, settings)
        most = random.Random(f"most/{key}").randint(1, 40)
        check_subgraph(graph, providers, chain, expand_subgraph(graph, chain, most), most)
        if max(map(len, components), default=0) >= settings.longest:
            intended[len(chain)] += 1
    chains, lengths = sum(intended.values()), range(settings.shortest, settings.longest + 1)
    assert chains > graphs / 2
    even = chains / len(lengths)
    distance = sum((intended[length] - even) ** 2 / even for length in lengths)
    assert distance < 24.3, intended  # chi-square with 7 degrees of freedom: 0.1 % of even draws are further away


def test_the_limit_of_environments_holds_and_a_shorter_chain_has_no_way_on() -> None:
    settings = ChainSampling(shortest=12, longest=12)
    for key in range(2000):
        graph = draw_graph(key)
        providers = Providers(graph)
        chain = sample_chain(graph, random.Random(key), settings)
        inside = {name.rpartition("/")[0] for name in chain}
        assert len(inside) <= 3
        if not 0 < len(chain) < 12:
            continue
        part = next(each for each in list_components(graph, list_possible(graph, providers)) if set(chain) <= each)
        further = [name for name in part - set(chain) if not providers.lacks(name, chain)]
        assert not [name for name in further if len(inside | {name.rpartition("/")[0]}) <= 3], key


def test_the_same_number_gives_the_same_chain_and_others_give_others() -> None:
    graph = draw_domain(1)
    chains = [sample_chain(graph, random.Random(f"7/{n}")) for n in range(20)]
    assert chains == [sample_chain(graph, random.Random(f"7/{n}")) for n in range(20)]
    assert len({tuple(chain) for chain in chains}) == 20


def make_line(length: int) -> ToolGraph:
    """t0 → t1 → …: each tool needs a result of the one before."""
    names = [f"t{n}" for n in range(length)]
    tools = {name: GraphTool(inputs=[GraphInput(name="x")] if name != "t0" else []) for name in names}
    edges = [ToolEdge(source=a, target=b, argument="x") for a, b in pairwise(names)]
    return ToolGraph(tools=tools, edges=edges)


def test_producers_of_producers_come_first() -> None:
    line = make_line(6)
    for number in range(50):
        chain = sample_chain(line, random.Random(number), ChainSampling(shortest=4, longest=4))
        assert chain == ["t0", "t1", "t2", "t3"]


def test_what_lacks_an_input_is_found() -> None:
    line = make_line(4)
    assert find_unsatisfied(line, ["t1", "t0", "t2", "t1"]) == [("t1", "x")]
    assert find_unsatisfied(line, ["t0", "t2"]) == [("t2", "x")]


def test_the_depth_bounds_the_search_for_producers() -> None:
    starts = {
        depth: {
            len(sample_chain(make_line(9), random.Random(n), ChainSampling(shortest=1, longest=9, depth=depth)))
            for n in range(200)
        }
        for depth in (0, 5)
    }
    assert starts[0] == starts[5] == set(range(1, 10))  # the length is reached from the front, at any depth


def test_a_graph_without_an_executable_tool_gives_no_chain() -> None:
    lonely = GraphTool(inputs=[GraphInput(name="x")])
    loop = ToolGraph(
        tools={"a": lonely, "b": lonely},
        edges=[ToolEdge(source="a", target="b", argument="x"), ToolEdge(source="b", target="a", argument="x")],
    )
    for graph in (ToolGraph(tools={}), ToolGraph(tools={"a": lonely}), loop):
        assert sample_chain(graph, random.Random(0)) == []
    assert expand_subgraph(loop, ["a"], 5) == ["a", "b"]  # the chain is given: what it lacks is its own affair
    assert walk_randomly(ToolGraph(tools={}), random.Random(0), 5) == []


def test_a_second_producer_or_a_condition_enters_now_and_then() -> None:
    need = [GraphInput(name="x")]
    graph = ToolGraph(
        tools={"one": GraphTool(), "two": GraphTool(), "open": GraphTool(), "use": GraphTool(inputs=need)},
        edges=[
            ToolEdge(source="one", target="use", argument="x"),
            ToolEdge(source="two", target="use", argument="x"),
            ToolEdge(source="open", target="use", kind=REQUIRES),
        ],
    )

    def count(again: float) -> Counter[str]:
        settings = ChainSampling(shortest=2, longest=4, again=again)
        drawn = Counter[str]()
        for number in range(500):
            chain = sample_chain(graph, random.Random(number), settings)
            before = set(chain[: chain.index("use")]) if "use" in chain else set()
            drawn["both"] += {"one", "two"} <= before
            drawn["condition"] += "open" in before
        return drawn

    never, always = count(0), count(1)
    assert always["both"] > 2 * never["both"]
    assert always["condition"] > 2 * never["condition"]


def test_a_tool_that_is_not_in_the_graph_and_an_empty_range_are_refused() -> None:
    with pytest.raises(UserError, match="the graph has no tool fly"):
        expand_subgraph(make_line(2), ["t0", "fly"], 3)
    with pytest.raises(UserError, match="raise longest"):
        ChainSampling(shortest=5, longest=4)


def test_the_ablation_counts_what_a_random_walk_lacks() -> None:
    topology, walk = count_samplers(400)
    assert isinstance(topology, SamplerFigures)
    assert topology.unsatisfied == topology.repeated == 0
    assert topology.chains == walk.chains == 400
    assert walk.unsatisfied > 0.3 * walk.chains
    assert walk.long_repeated > 0.3 * walk.long
