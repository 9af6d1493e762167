"""The tool graph: tools with their inputs and outputs, and typed edges between them (ScaleEnv §4.1.3, EnvFactory §3.3.1).

A graph may span several environments; a tool is then named `environment/tool`. The output of the stage `graph` is a `ToolGraph` as JSON, and
`pack.yaml` keeps its edges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pydantic import Field

from simia.pack_provenance import ToolEdge
from simia.reward_spec import StrictModel

PROVIDES, REQUIRES, CHANGES = "provides", "requires", "changes"


class GraphInput(StrictModel):
    """One argument of a tool."""

    name: str
    """The argument."""
    type: str = "string"
    """Its JSON type."""
    description: str = ""
    """What it means."""
    required: bool = True
    """Whether a call must have it."""
    external: bool = False
    """Whether a user knows its value (a city); False if only another tool's result gives it (an id)."""


class GraphOutput(StrictModel):
    """One field of a tool's result."""

    name: str
    """The field, or what the whole result is called."""
    type: str = "string"
    """Its JSON type; unknown types are `any`."""
    description: str = ""
    """What it means."""


class GraphTool(StrictModel):
    """A node of the graph."""

    description: str = ""
    """What the tool does."""
    writes: bool = False
    """Whether it may change the state."""
    inputs: list[GraphInput] = Field(default_factory=list)
    """Its arguments."""
    outputs: list[GraphOutput] = Field(default_factory=list)
    """The fields of its result."""
    tables: list[str] = Field(default_factory=list)
    """Tables that it reads or changes."""


class ToolGraph(StrictModel):
    """Tools and typed edges, in a fixed order."""

    tools: dict[str, GraphTool]
    """Nodes by name."""
    edges: list[ToolEdge] = Field(default_factory=list)
    """From the tool that comes first to the tool that needs it."""

    def list_producers(self, tool: str, argument: str) -> list[str]:
        """Return the tools whose result can be this argument, as in `index_producers`."""
        return self.index_producers().get((tool, argument), [])

    def index_producers(self) -> dict[tuple[str, str], list[str]]:
        """(tool, argument) → the tools whose result can be the argument, in the order of the edges; never the tool itself."""
        found: dict[tuple[str, str], dict[str, None]] = {}
        for edge in self.edges:
            if edge.kind == PROVIDES and edge.argument is not None and edge.source != edge.target:
                found.setdefault((edge.target, edge.argument), {})[edge.source] = None
        return {place: list(names) for place, names in found.items()}

    def list_successors(self, tool: str) -> list[str]:
        """Return the tools that an edge of any kind leads to, each once."""
        found = (edge.target for edge in self.edges if edge.source == tool)
        return [name for name in dict.fromkeys(found) if name != tool]

    def list_needs(self, tool: str) -> Iterator[GraphInput]:
        """The required arguments that no user knows: each must come from the result of an earlier tool."""
        return (each for each in self.tools[tool].inputs if each.required and not each.external)

    def select(self, names: Collection[str]) -> ToolGraph:
        """Return the part with these tools alone."""
        tools = {name: tool for name, tool in self.tools.items() if name in names}
        return ToolGraph(tools=tools, edges=[e for e in self.edges if e.source in tools and e.target in tools])

    def rename(self, names: Mapping[str, str]) -> ToolGraph:
        """Return the graph with other names of its tools."""
        edges = [e.model_copy(update={"source": names[e.source], "target": names[e.target]}) for e in self.edges]
        return ToolGraph(tools={names[name]: tool for name, tool in self.tools.items()}, edges=edges)
