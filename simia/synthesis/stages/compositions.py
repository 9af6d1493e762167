"""Stage `compositions`: join up to three built environments to one, in which all their tests pass (EnvFactory §3.3.2). No questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.synthesis.building.tool_runs import LoadFault, open_sandbox, run_tool_tests
from simia.synthesis.conversations.chain_turns import group_environments
from simia.synthesis.conversations.conversation import ComposedEnvironment
from simia.synthesis.conversations.environment_composition import Composition, compose_environments
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.graph_building import join_graphs, list_known_arguments, make_graph
from simia.synthesis.graph.tool_graph import PROVIDES, ToolGraph
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.states import list_environments


class Compositions:
    """Compose the built environments in groups. Key: the names of the group, joined with `+`. Output: a `ComposedEnvironment`."""

    name = "compositions"

    def __init__(self, together: int) -> None:
        """`together`: most environments of a group."""
        self._together = together

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        graphs = outputs.of("graph")
        built = {key: each for key, each in list_environments(outputs).items() if key in graphs}
        return [
            StageInput("+".join(group), {"built": [[key, built[key], graphs[key]] for key in group]})
            for group in group_environments(list(built), self._together)
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        parts = {key: BuiltEnvironment.model_validate(row) for key, row, _ in given.value["built"]}
        graphs = {key: ToolGraph.model_validate(row) for key, _, row in given.value["built"]}
        try:
            composition = compose_environments(parts)
        except ValueError as error:
            raise Refused(Reason.NOT_COMPOSABLE, str(error)) from None
        if len(parts) > 1:
            await check_composition(composition.built, context)
        graph = connect_environments(composition, graphs)
        across = sum(edge.source.partition("/")[0] != edge.target.partition("/")[0] for edge in graph.edges)
        context.note(
            environments=len(parts),
            tools=len(composition.tools),
            tests=len(composition.built.tests),
            edges_across=across,
        )
        return dump(ComposedEnvironment.from_composition(composition, graph))


async def check_composition(built: BuiltEnvironment, context: StageContext) -> None:
    """Run the tests of the originals in the composition. Raises `Refused` for the first that fails there."""
    try:
        async with open_sandbox(context, built) as backend:
            runs = await run_tool_tests(backend, built.design, built.tests)
    except LoadFault as fault:
        raise Refused(Reason.NOT_COMPOSABLE, str(fault)) from None
    failed = [run for run in runs if run.reason is not None]
    if failed:
        raise Refused(Reason.NOT_COMPOSABLE, f"{failed[0].test.name}: {failed[0].detail}")


def connect_environments(composition: Composition, graphs: dict[str, ToolGraph]) -> ToolGraph:
    """Join the graphs of the environments, with tools named `environment/tool`.

    A result of one environment can be an argument in another one if it is a value that a user knows, such as a date. An identifier is valid in
    only one environment.
    """
    joined = join_graphs(graphs).select(composition.tools)  # an environment may have fewer tools than its graph
    if len(graphs) == 1:
        return joined
    names = {new: name for name, new in composition.tools.items()}
    known = {(names[tool], argument) for tool, argument in list_known_arguments(composition.built)}
    across = [
        edge
        for edge in make_graph(composition.built).rename(names).edges
        if edge.kind == PROVIDES
        and edge.source.partition("/")[0] != edge.target.partition("/")[0]
        and (edge.target, edge.argument) in known
    ]
    return joined.model_copy(update={"edges": [*joined.edges, *across]})
