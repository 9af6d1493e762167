"""Build the graph of an environment's tools from declarations and recorded results, without a model (EnvFactory §3.3.1, ScaleEnv §4.1.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

from simia.pack import Pack
from simia.pack_provenance import ToolEdge
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.parameter_matching import Parameter, ParameterMatcher, Vectors, describe_parameter
from simia.synthesis.graph.tool_graph import CHANGES, PROVIDES, GraphInput, GraphTool, ToolGraph
from simia.synthesis.graph.tool_results import DescribedTools, describe_tools

Inputs = dict[tuple[str, str], Parameter]
Outputs = dict[str, list[tuple[str, Parameter]]]


def make_graph(
    source: BuiltEnvironment | Pack, settings: GraphSettings | None = None, *, vectors: Vectors | None = None
) -> ToolGraph:
    """Build the graph of the agent's tools.

    Args:
        source: a built environment or a pack; the edges that the pack keeps are not read.
        settings: the threshold of the matcher.
        vectors: text of a parameter → vector of length 1, for the texts of `list_parameter_texts`. None: only names are compared.

    Returns:
        The graph. Every required argument that is not external has a producer that can be called before.
    """
    described = describe_tools(source)
    matcher = ParameterMatcher(described.schema, settings or GraphSettings(), vectors)
    inputs, outputs = read_parameters(described, matcher)
    edges = [*match_parameters(described, matcher, inputs, outputs), *share_tables(described, inputs, outputs)]
    nodes = {name: tool.node for name, tool in described.tools.items()}
    return mark_external(ToolGraph(tools=nodes, edges=edges), list_known(described, inputs))


def read_pack_graph(pack: Pack) -> ToolGraph:
    """Return the graph of a pack's tools with the edges that the pack keeps; if it keeps none, edges are found by names."""
    if not pack.graph:
        return make_graph(pack)
    nodes = {name: tool.node for name, tool in describe_tools(pack).tools.items()}
    return mark_external(ToolGraph(tools=nodes, edges=pack.graph).select(nodes), list_known_arguments(pack))


def join_graphs(graphs: Mapping[str, ToolGraph]) -> ToolGraph:
    """Join the graphs of several environments to one, with tools named `environment/tool`. No edge leads to another environment."""
    parts = [graph.rename({name: f"{key}/{name}" for name in graph.tools}) for key, graph in graphs.items()]
    tools = {name: tool for part in parts for name, tool in part.tools.items()}
    return ToolGraph(tools=tools, edges=[edge for part in parts for edge in part.edges])


def read_parameters(described: DescribedTools, matcher: ParameterMatcher) -> tuple[Inputs, Outputs]:
    """Return (tool, argument) → the argument, and tool → fields of its result, without those that are required arguments of the call."""
    inputs: Inputs = {}
    outputs: Outputs = {}
    for name, tool in described.tools.items():
        had = set()
        for each in tool.node.inputs:
            if (found := matcher.read_input(tool, each)) is not None:
                inputs[name, each.name] = found
                if each.required:
                    had.add((found.words, found.table))
        fields = [(each.name, matcher.read_output(tool, each)) for each in tool.node.outputs]
        outputs[name] = [(field, found) for field, found in fields if (found.words, found.table) not in had]
    return inputs, outputs


def list_known_arguments(source: BuiltEnvironment | Pack) -> set[tuple[str, str]]:
    """Return (tool, argument) for the arguments that a user states: all except identifiers."""
    described = describe_tools(source)
    inputs, _ = read_parameters(described, ParameterMatcher(described.schema, GraphSettings()))
    return list_known(described, inputs)


def list_known(described: DescribedTools, inputs: Inputs) -> set[tuple[str, str]]:
    places = {(name, each.name) for name, tool in described.tools.items() for each in tool.node.inputs}
    return {place for place in places if place not in inputs or not inputs[place].identifier}


def match_parameters(
    described: DescribedTools, matcher: ParameterMatcher, inputs: Inputs, outputs: Outputs
) -> Iterator[ToolEdge]:
    """Yield an edge from each tool whose result has a value for an argument. Of several fields that match, the one with the same name is
    taken, otherwise the first."""
    similar: dict[str | tuple[str, ...], set[str]] = defaultdict(set)
    for source, fields in outputs.items():
        for _, given in fields:
            similar[given.words[-2:]].add(source)
            similar[given.table or ""].add(source)
    for (target, argument), wanted in inputs.items():
        near = similar[wanted.words[-2:]] | (similar[wanted.table] if wanted.table else set())  # others cannot match
        for source, fields in outputs.items():
            if source == target or (source not in near and not matcher.embeds):
                continue
            tool = described.tools[target]
            matches = [
                ((origin != "words", given.words != wanted.words), field, origin)
                for field, given in fields
                if (origin := matcher.find_match(given, wanted, tool)) is not None
            ]
            if matches:
                _, field, origin = min(matches, key=itemgetter(0))
                yield ToolEdge(
                    source=source, target=target, kind=PROVIDES, argument=argument, result=field, origin=origin
                )


def share_tables(described: DescribedTools, inputs: Inputs, outputs: Outputs) -> Iterator[ToolEdge]:
    """Yield an edge from each tool that changes a table to each other tool that uses it, if both concern its rows (ScaleEnv: state)."""
    concerns = {name: find_concerned(name, described, inputs, outputs) for name in described.tools}
    for source, tool in described.tools.items():
        for target in described.tools:
            if source != target and tool.changes & concerns[source] & concerns[target]:
                yield ToolEdge(source=source, target=target, kind=CHANGES, origin="state")


def find_concerned(name: str, described: DescribedTools, inputs: Inputs, outputs: Outputs) -> set[str]:
    """Return the tables of a tool whose keys occur in its arguments or results; all of its tables if there are none."""
    tables = set(described.tools[name].node.tables)
    named = {found.table for (tool, _), found in inputs.items() if tool == name and found.table}
    named |= {found.table for _, found in outputs[name] if found.table}
    return (named & tables) or tables


def mark_external(graph: ToolGraph, known: Iterable[tuple[str, str]] = ()) -> ToolGraph:
    """Return the graph with `external` set for each argument: a user knows it, or no tool can provide it.

    Args:
        graph: the graph; its edges stay.
        known: (tool, argument) of values that a user knows. Enumerated arguments, and arguments without an edge, may be left out.

    Returns:
        The graph. If tools need each other's identifiers first (a cycle), the identifiers are external for one of them, so that every tool
        can be called.
    """
    users = set(known)
    producers = graph.index_producers()
    internal: dict[str, set[str]] = {name: set() for name in graph.tools}
    for name, tool in graph.tools.items():
        for each in tool.inputs:
            if (name, each.name) not in users and (name, each.name) in producers:
                internal[name].add(each.name)
    release_circular(graph, internal, producers)
    tools = {
        name: tool.model_copy(update={"inputs": [set_external(each, each.name not in internal[name]) for each in tool.inputs]})
        for name, tool in graph.tools.items()
    }  # fmt: skip
    return ToolGraph(tools=tools, edges=graph.edges)


def set_external(argument: GraphInput, external: bool) -> GraphInput:
    return argument.model_copy(update={"external": external})


def release_circular(
    graph: ToolGraph, internal: dict[str, set[str]], producers: Mapping[tuple[str, str], list[str]]
) -> None:
    """Remove arguments from `internal` until every tool can be called. In a cycle, reading tools and those that lack few come first."""
    required = {name: {each.name for each in tool.inputs if each.required} for name, tool in graph.tools.items()}
    callable_: set[str] = set()
    while len(callable_) < len(graph.tools):
        lacking = {
            name: [
                argument
                for argument in sorted(internal[name] & required[name])
                if callable_.isdisjoint(producers[name, argument])
            ]
            for name in graph.tools
            if name not in callable_
        }
        ready = [name for name, missing in lacking.items() if not missing]
        if not ready:
            first = min(lacking, key=lambda name: (graph.tools[name].writes, len(lacking[name])))
            internal[first] -= set(lacking[first])
            ready = [first]
        callable_ |= set(ready)


def list_parameter_texts(source: BuiltEnvironment | Pack) -> list[str]:
    """The texts of all arguments and fields of results that are compared, each once, for embeddings."""
    nodes: list[GraphTool] = [tool.node for tool in describe_tools(source).tools.values()]
    inputs = [describe_parameter(each) for node in nodes for each in node.inputs]
    return list(dict.fromkeys([*inputs, *(describe_parameter(each) for node in nodes for each in node.outputs)]))
