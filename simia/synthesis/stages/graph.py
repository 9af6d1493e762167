"""Stage `graph`: the graph of an environment's tools (EnvFactory §3.3.1, ScaleEnv §4.1.3). Key: the environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.graph_building import list_known_arguments, list_parameter_texts, make_graph
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.parameter_matching import Vectors
from simia.synthesis.graph.refinement import GraphCorrections, correct_graph, describe_graph
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.reasons import Refused
from simia.synthesis.reply_reading import dump, read_json
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.states import list_environments

PROMPT = "synthesis/graph.j2"


class GraphStage:
    """Find the edges between the tools of each environment. Output: a `ToolGraph`."""

    name = "graph"

    def __init__(self, settings: GraphSettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, built) for key, built in list_environments(outputs).items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        built = BuiltEnvironment.model_validate(given.value)
        vectors = await self._embed(built, context)
        graph = make_graph(built, self._settings, vectors=vectors)
        if self._settings.refine:
            graph = await self._refine(graph, built, context)
        kinds = Counter(edge.kind for edge in graph.edges)
        context.note(compared_by="words" if vectors is None else "embeddings", edges=dict(sorted(kinds.items())))
        return dump(graph)

    async def _refine(self, graph: ToolGraph, built: BuiltEnvironment, context: StageContext) -> ToolGraph:
        """Ask a model for corrections. Without a readable reply the graph stays unchanged; the environment is not refused."""
        try:
            corrections = await context.ask(PROMPT, describe_graph(graph, built), read_corrections, label="refine")
        except Refused as refused:
            context.note(refined=False, detail=refused.detail)
            return graph
        found = correct_graph(graph, list_known_arguments(built), corrections)
        context.note(refined=True, added=found.added, removed=found.removed, ignored=found.ignored)
        return found.graph

    async def _embed(self, built: BuiltEnvironment, context: StageContext) -> Vectors | None:
        """Return the vectors of the parameters; None if embeddings are not used or the config names no model for them."""
        if self._settings.matcher == "words":
            return None
        texts = list_parameter_texts(built)
        vectors = await context.embed(texts, label="vectors") if texts else None
        return None if vectors is None else dict(zip(texts, vectors, strict=True))


def read_corrections(text: str) -> GraphCorrections:
    found: GraphCorrections = read_json(text, GraphCorrections)
    return found
