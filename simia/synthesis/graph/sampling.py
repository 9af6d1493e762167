"""Sample chains and subgraphs of a tool graph in which every tool has what it needs (EnvFactory §3.3.2, ScaleEnv §4.2.2); random walks.

A *need* of a tool is a required argument that no user knows. A tool can be executed if each of its needs has a producer that can be executed
before it. Tools that can never be executed are not sampled. No sampled chain contains a tool twice.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from simia.config import Config
from simia.errors import UserError
from simia.synthesis.graph.tool_graph import REQUIRES, ToolGraph

if TYPE_CHECKING:
    import networkx as nx

Needs = dict[str, list[list[str]]]
"""Tool → for each of its needs the tools that can provide it."""


class ChainSampling(Config):
    """How chains of tools are sampled."""

    shortest: int = Field(default=3, ge=1)
    """Minimum number of tools of a chain. The length is sampled uniformly from `shortest` to `longest`. A graph with fewer connected tools
    gives shorter chains."""
    longest: int = Field(default=10, ge=1)
    """Maximum number of tools of a chain."""
    neighbors: int = Field(default=3, ge=1)
    """Maximum number of direct successors of a tool with which the chain continues."""
    depth: int = Field(default=5, ge=0)
    """Maximum number of steps back in the search for the tools that produce arguments, the arguments of these tools, and so on."""
    again: float = Field(default=0.1, ge=0, le=1)
    """Probability of adding a tool that is not needed: a second producer of an argument, or a tool that makes a condition true."""
    environments: int = Field(default=3, ge=1)
    """Maximum number of environments whose tools one chain contains."""

    @model_validator(mode="after")
    def check_lengths(self) -> ChainSampling:
        """Refuse an empty range of lengths."""
        if self.longest < self.shortest:
            raise UserError(f"longest is {self.longest}, less than shortest, {self.shortest}: raise longest")
        return self


def sample_chain(graph: ToolGraph, rng: random.Random, settings: ChainSampling | None = None) -> list[str]:
    """Sample a chain of tools by the topology of the graph (EnvFactory §3.3.2); empty if no tool can be executed.

    The chain starts at a random tool and continues with 1 to `neighbors` successors of each tool in it. Before a tool enters, producers of
    its needs that the chain lacks enter, then the producers of their needs, and so on up to `depth` steps.
    """
    settings = settings or ChainSampling()
    sampler = _ChainSampler(graph, rng, settings)
    if not sampler.rank:
        return []
    sampler.start()
    while len(sampler.chain) < sampler.length and sampler.extend():
        pass
    return sampler.chain


def expand_subgraph(graph: ToolGraph, start: Sequence[str], most: int) -> list[str]:
    """Expand a chain to a subgraph of at most `most` tools by dependency-aware breadth-first search (ScaleEnv §4.2.2).

    A tool enters if an edge connects it with the subgraph and tools of the subgraph provide all its needs. The result has the chain first,
    then the other tools in the order in which they enter.
    """
    unknown = [name for name in start if name not in graph.tools]
    if unknown:
        raise UserError(f"the graph has no tool {unknown[0]}: start with tools of the graph")
    needs, near = list_all_needs(graph), _connect(graph, graph.tools)
    found = list(dict.fromkeys(start))
    waiting = dict.fromkeys(name for tool in found for name in near[tool])
    while len(found) < most:
        ready = next((name for name in waiting if name not in found and provides_all(found, needs[name])), None)
        if ready is None:
            break
        found.append(ready)
        waiting.update(dict.fromkeys(near[ready]))
    return found


def walk_randomly(graph: ToolGraph, rng: random.Random, length: int) -> list[str]:
    """Follow edges from a random tool, `length` tools at most. This baseline ignores needs and may visit a tool twice."""
    if not graph.tools:
        return []
    walk = [rng.choice(list(graph.tools))]
    while len(walk) < length and (following := graph.list_successors(walk[-1])):
        walk.append(rng.choice(following))
    return walk


def find_unsatisfied(graph: ToolGraph, chain: Sequence[str]) -> list[tuple[str, str]]:
    """Tools of a chain with a required argument that neither a user knows nor an earlier tool of the chain provides."""
    return [
        (tool, need.name)
        for place, tool in enumerate(chain)
        for need in graph.list_needs(tool)
        if not set(graph.list_producers(tool, need.name)) & set(chain[:place])
    ]


def list_all_needs(graph: ToolGraph) -> Needs:
    """Collect the producers of every need of every tool."""
    producers = graph.index_producers()
    return {tool: [producers.get((tool, need.name), []) for need in graph.list_needs(tool)] for tool in graph.tools}


def _order(needs: Needs, tools: list[str]) -> list[str]:
    """Order the tools that can be executed: each after producers of its needs, otherwise in the given order."""
    found: dict[str, None] = {}
    while ready := next((name for name in tools if name not in found and provides_all(found, needs[name])), None):
        found[ready] = None
    return list(found)


def provides_all(tools: Collection[str], needs: list[list[str]]) -> bool:
    """Whether some of the tools provide every need of a tool."""
    return all(any(producer in tools for producer in producers) for producers in needs)


def _connect(graph: ToolGraph, tools: Collection[str]) -> nx.Graph[str]:
    """Connect tools by edges of any kind, without direction."""
    import networkx as nx  # imported late, so that other commands start without it

    found: nx.Graph[str] = nx.Graph()
    found.add_nodes_from(tools)
    found.add_edges_from(
        (edge.source, edge.target)
        for edge in graph.edges
        if edge.source in found and edge.target in found and edge.source != edge.target
    )
    return found


def _shuffle(rng: random.Random, names: Collection[str]) -> list[str]:
    """Names in a random order."""
    return rng.sample(list(names), len(names))


class _ChainSampler:
    """Builds one chain. Each tool has a rank, and only producers with a lower rank are searched, so that the search ends."""

    def __init__(self, graph: ToolGraph, rng: random.Random, settings: ChainSampling) -> None:
        self.graph, self.rng, self.settings = graph, rng, settings
        self.needs = list_all_needs(graph)
        self.rank = {name: place for place, name in enumerate(_order(self.needs, _shuffle(rng, graph.tools)))}
        self.near = _connect(graph, self.rank)
        self.conditions: dict[str, list[str]] = {}
        for edge in graph.edges:
            if edge.kind == REQUIRES:
                self.conditions.setdefault(edge.target, []).append(edge.source)
        self.length = rng.randint(settings.shortest, settings.longest)
        self.chain: list[str] = []
        self.queue: deque[str] = deque()
        self.connected: list[str] = []

    def start(self) -> None:
        """Start at a random tool in a component with enough tools; if there is none, in the largest component."""
        from networkx import connected_components

        parts = [sorted(part, key=self.rank.__getitem__) for part in connected_components(self.near)]
        enough = min(self.length, max(len(part) for part in parts))
        homes = {name: part for part in parts if len(part) >= enough for name in part}
        first = next(name for name in _shuffle(self.rng, homes) if self.add(name))
        self.connected = homes[first]

    def extend(self) -> bool:
        """Extend the chain from the next tool of the queue; if the queue is empty, from any tool. Returns whether that was possible."""
        if self.queue:
            following = [name for name in self.graph.list_successors(self.queue.popleft()) if name in self.rank]
            branches = self.rng.randint(1, self.settings.neighbors)
            for name in _shuffle(self.rng, following)[:branches]:
                self.add(name)
            return True
        around = dict.fromkeys(name for tool in self.chain for name in self.near[tool])
        return any(self.add(name) for name in (*_shuffle(self.rng, around), *_shuffle(self.rng, self.connected)))

    def add(self, tool: str) -> bool:
        """Add a tool, and before it the producers that it lacks. Returns False if the chain has the tool or no room for them."""
        added = None if tool in self.chain else self.resolve(tool, [], self.settings.depth)
        if added is None or not self.has_room(added):
            return False
        self.chain += added
        self.queue += added
        return True

    def resolve(self, tool: str, before: list[str], depth: int) -> list[str] | None:
        """Return the missing producers of a tool's needs, then the tool; None if the search exceeds `depth`. `before`: tools already added."""
        added: list[str] = []
        needed = [(producers, False) for producers in self.needs[tool]]
        conditions = [([name], True) for name in self.conditions.get(tool, ())]
        for producers, optional in (*needed, *conditions):
            present = {*self.chain, *before, *added}
            optional = optional or any(name in present for name in producers)
            new = [
                name
                for name in producers
                if name not in present and self.rank.get(name, len(self.rank)) < self.rank[tool]
            ]
            if optional and not (new and self.rng.random() < self.settings.again):
                continue
            found = self.resolve(self.rng.choice(new), [*before, *added], depth - 1) if depth else None
            if found is None and not optional:
                return None
            if found is not None and (not optional or self.has_room([*before, *added, *found, tool])):
                added += found
        return [*added, tool]

    def has_room(self, added: list[str]) -> bool:
        """Whether the chain with these tools stays within its limits of length and environments."""
        tools = [*self.chain, *added]
        return (
            len(tools) <= self.length and len({name.rpartition("/")[0] for name in tools}) <= self.settings.environments
        )
