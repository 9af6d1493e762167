"""Random tool graphs: loops, arguments that nothing provides, several environments, tools without edges; and plain ones of one environment."""

from __future__ import annotations

import random
from collections.abc import Iterator

from simia.pack_provenance import ToolEdge
from simia.synthesis.graph.tool_graph import CHANGES, PROVIDES, REQUIRES, GraphInput, GraphTool, ToolGraph


def draw_graph(key: int, largest: int = 24) -> ToolGraph:
    """A graph of up to `largest` tools that has no mercy: any edge may exist, and any need may be without a producer."""
    rng = random.Random(f"graph/{key}")
    environments = rng.choice([1, 1, 2, 5])
    names = [
        f"env{rng.randrange(environments)}/tool{number}" if environments > 1 else f"tool{number}"
        for number in range(rng.randint(0, largest))
    ]
    tools: dict[str, GraphTool] = {}
    edges: list[ToolEdge] = []
    density, unprovided = rng.choice([0.05, 0.3, 0.8]), rng.choice([0, 0, 0.1, 0.5])
    for name in names:
        inputs = [
            GraphInput(name=f"a{number}", required=rng.random() < 0.8, external=rng.random() < 0.4)
            for number in range(rng.randint(0, 3))
        ]
        tools[name] = GraphTool(inputs=inputs)
        edges += [
            ToolEdge(source=rng.choice(names), target=name, kind=PROVIDES, argument=each.name)
            for each in inputs
            if rng.random() >= unprovided
            for _ in range(rng.randint(1, 3))
        ]
        edges += [
            ToolEdge(source=rng.choice(names), target=name, kind=kind)
            for kind in (REQUIRES, CHANGES)
            if rng.random() < density
        ]
    rng.shuffle(edges)
    return ToolGraph(tools=tools, edges=edges)


def draw_domain(key: int) -> ToolGraph:
    """A graph with the look of a domain: 20 to 40 tools over 5 to 9 tables, where look-ups give the ids that other tools take."""
    rng = random.Random(f"domain/{key}")
    tables = [f"table{number}" for number in range(rng.randint(5, 9))]
    tools: dict[str, GraphTool] = {}
    edges: list[ToolEdge] = []
    finders = {table: f"find_{table}" for table in tables}
    for table, name in finders.items():
        parent = rng.choice([each for each in tables if each < table] or [""])
        inputs = [GraphInput(name="text", external=True)]
        if parent and rng.random() < 0.5:  # found only through another table
            inputs.append(GraphInput(name=f"{parent}_id"))
            edges.append(ToolEdge(source=finders[parent], target=name, argument=f"{parent}_id"))
        tools[name] = GraphTool(inputs=inputs, tables=[table])
    for number in range(rng.randint(20, 40) - len(tables)):
        name = f"tool{number}"
        used = rng.sample(tables, rng.choice([1, 1, 2, 3]))
        tools[name] = GraphTool(
            inputs=[GraphInput(name=f"{table}_id") for table in used], tables=used, writes=rng.random() < 0.5
        )
        edges += [ToolEdge(source=finders[table], target=name, argument=f"{table}_id") for table in used]
    writers = [name for name, tool in tools.items() if tool.writes]
    for name in writers:
        others = [each for each in tools if each != name and set(tools[each].tables) & set(tools[name].tables)]
        edges += [ToolEdge(source=name, target=each, kind=CHANGES) for each in others]
    return ToolGraph(tools=tools, edges=edges)


def draw_graphs(number: int) -> Iterator[ToolGraph]:
    """The first graphs, half of either kind."""
    for key in range(number):
        yield draw_domain(key) if key % 2 else draw_graph(key)
