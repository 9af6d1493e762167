"""Describe an environment for the prompts of chains, and parse the reply with a repair."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from simia.state import merge_patch
from simia.synthesis.building.example_states import SHOWN, find_state_faults
from simia.synthesis.building.state_model import fill_defaults
from simia.synthesis.chains.chain_code import ChainCode, read_chain
from simia.synthesis.chains.chain_runs import write_result
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.tool_graph import PROVIDES, ToolGraph
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import list_blocks, read_json, refuse_faults
from simia.task import Action

MOST_RESULT = 400  # characters of a result
STATE_PURPOSE = (
    "The calls of the code below start in this state, and all of them must succeed in it; `KNOWN` is what a user says. About {rows} rows in each "
    "table that they use, up to 2 in others. Besides the rows that the calls need there are some that resemble them in part, so that one has "
    "to look which is meant. By what the user says, what the code chooses is the only right choice, whatever the order of the rows.\n\n"
    "```python\n{code}```"
)


def describe_chain_tools(built: BuiltEnvironment, graph: ToolGraph, names: Collection[str]) -> list[str]:
    """Describe tools in one line each: schema, result, and the arguments that a user knows."""
    designs = {tool.name: tool for tool in built.design.tools}
    found = []
    for name in names:
        row = {**built.tools[name].spec.flat(), "returns": designs[name].returns, "refused if": designs[name].refusals}
        known = [each.name for each in graph.tools[name].inputs if each.external] if name in graph.tools else []
        found.append(orjson.dumps({**row, "known by the user": known}).decode())
    return found


def describe_other_tools(built: BuiltEnvironment, graph: ToolGraph, names: Collection[str]) -> list[str]:
    """Tools that are not among the names, with arguments and result, in a short form; a star marks an argument that a user knows."""
    designs = {tool.name: tool for tool in built.design.tools}
    found = []
    for name, tool in built.tools.items():
        if name not in names:
            known = {each.name for each in graph.tools[name].inputs if each.external} if name in graph.tools else set()
            arguments = [f"{each}*" if each in known else each for each in tool.spec.parameters.get("properties", {})]
            what = f"{name}({', '.join(arguments)}): {tool.spec.description.rstrip('.')}"
            found.append(f"- {what}. Returns: {designs[name].returns or 'nothing'}")
    return found


def describe_edges(graph: ToolGraph, names: Collection[str]) -> list[str]:
    """The edges between tools in words."""
    found = []
    for edge in graph.edges:
        if edge.source in names and edge.target in names and edge.source != edge.target:
            how = (
                f": {edge.result or 'its result'} is its {edge.argument}"
                if edge.kind == PROVIDES and edge.argument
                else ""
            )
            found.append(f"{edge.source} before {edge.target}{how}")
    return list(dict.fromkeys(found))


def describe_calls(calls: Sequence[Action], values: Sequence[Any]) -> list[str]:
    """Executed calls with shortened results, a line each."""
    return [
        f"{call.name}({write_result(call.arguments)}) returned {write_result(value)[:MOST_RESULT]}"
        for call, value in zip(calls, values, strict=True)
    ]


def read_repair(
    text: str, built: BuiltEnvironment, state: Mapping[str, Any], tools: Collection[str]
) -> tuple[dict[str, Any] | None, ChainCode | None]:
    """Return what a repair changes: a state, or a code. Raises `Unreadable`."""
    blocks = list_blocks(text)
    if (blocks and blocks[-1][0].startswith("py")) or "def chain" in text:
        return None, read_chain(text, tools, built.tools)
    patch: dict[str, Any] = read_json(text, dict[str, Any])
    if unknown := sorted(set(patch) - set(built.design.state.tables)):
        raise Unreadable(f"there is no table {unknown[0]!r}")
    changed = merge_patch(dict(state), patch)
    refuse_faults(find_state_faults(built.design.state, changed), SHOWN)
    return fill_defaults(built.design.state, changed), None
