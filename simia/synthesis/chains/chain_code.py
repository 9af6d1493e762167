"""Read the code of a chain, and check that each of its values is known to the user or comes from a result (ScaleEnv §4.2.1).

The code is one block: `KNOWN`, a literal dictionary of what the user knows, and the function `chain(call)`. So one reply has the tools and
their arguments, and the result of one call is passed to the next as a variable.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simia.json_values import iterate_plain_values
from simia.synthesis.chains.chain_runs import CHAIN_FUNCTION, PlayedChain
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.gyms.function_runs import find_forbidden
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_python

KNOWN, IMPOSSIBLE = "KNOWN", "IMPOSSIBLE"


@dataclass(slots=True)
class ChainCode:
    """The code of a chain as it was written."""

    source: str
    """Python source."""
    known: dict[str, Any] = field(default_factory=dict)
    """What the user knows, by name."""
    impossible: str = ""
    """Why there is no chain, in the writer's words; empty: there is one."""


def read_chain(text: str, tools: Collection[str], others: Collection[str]) -> ChainCode:
    """Return the code of a reply. `tools`: each must be called. `others`: further tools that may be called. Raises `Unreadable`."""
    source = read_python(text)
    tree = ast.parse(source)
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if IMPOSSIBLE in names:
        return ChainCode(source, impossible=str(read_literal(names[IMPOSSIBLE], IMPOSSIBLE)))
    if KNOWN not in names:
        raise Unreadable(f"{KNOWN}, the dictionary of what the user knows, is missing")
    known = read_literal(names[KNOWN], KNOWN)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == CHAIN_FUNCTION]
    if not functions or len(functions[-1].args.args) != 1:
        raise Unreadable("the function chain(call) is missing")
    if words := find_forbidden(source):
        raise Unreadable(f"the code may not use this: {words}")
    check_known(known, tree)
    check_called_tools(functions[-1], tools, others)
    return ChainCode(source, known)


def read_literal(node: ast.expr, name: str) -> Any:
    """The value of a literal, as JSON has it. Raises `Unreadable`."""
    try:
        value = ast.literal_eval(node)
        return json.loads(json.dumps(value, allow_nan=False))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise Unreadable(f"{name} must be a literal of texts, numbers, booleans, lists and dictionaries") from None


def check_known(known: Any, tree: ast.Module) -> None:
    """Raise `Unreadable` unless the chain uses every value of `KNOWN`, only as `KNOWN["name"]`, and only names that it has."""
    if not isinstance(known, dict):
        raise Unreadable(f"{KNOWN} must be a dictionary of names and values")
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == KNOWN]
    read = [
        node.slice.value if isinstance(node.slice, ast.Constant) else None
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == KNOWN
    ]
    if None in read or len(names) != len(read) + 1:
        raise Unreadable(f'assign {KNOWN} once, and use it only as {KNOWN}["name"]')
    if unused := [name for name in known if name not in read]:
        raise Unreadable(f"{KNOWN} has {unused[0]!r}, which the chain does not use")
    if missing := sorted(str(name) for name in read if name not in known):
        raise Unreadable(f"{KNOWN} has no {missing[0]!r}")


def check_called_tools(function: ast.FunctionDef, tools: Collection[str], others: Collection[str]) -> None:
    """Refuse code that lacks a sampled tool, or calls one that does not exist."""
    (argument,) = function.args.args
    called = {
        node.args[0].value
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == argument.arg
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    if missing := [name for name in tools if name not in called]:
        raise Unreadable(f"the chain does not call {missing[0]}")
    if strange := sorted(str(name) for name in called - {*tools, *others}):
        raise Unreadable(f"the chain calls {strange[0]}, which is no tool")


def find_ungrounded_values(
    code: ChainCode, played: PlayedChain, state: Mapping[str, Any], graph: ToolGraph | None
) -> list[str]:
    """List values of the executed calls that no agent could know, one line each.

    A value can be known if the user knows it, an earlier result holds it, or the code computes it. It cannot be known if it is a constant of
    the code, or a row id that the chain takes from the user although, by the graph, only tools provide it.
    """
    ids = {key for rows in state.values() if isinstance(rows, Mapping) for key in rows}
    known = list(iterate_plain_values(code.known))
    constants = list(list_constants(code.source))
    found: list[str] = []
    for number, call in enumerate(played.calls):
        external = {
            each.name
            for each in (graph.tools[call.name].inputs if graph and call.name in graph.tools else [])
            if each.external
        }
        earlier = played.values[:number]
        for argument, value in call.arguments.items():
            for leaf in iterate_plain_values(value):
                if isinstance(leaf, bool) or leaf is None or any(holds_value(each, leaf) for each in earlier):
                    continue
                place = f"{call.name}({argument}={leaf!r})"
                if leaf in known:
                    if leaf in ids and graph is not None and argument not in external:
                        found.append(f"{place}: a user does not know this id: find the row by what the user says of it")
                elif leaf in constants:
                    found.append(f"{place}: the value is a constant of the code: take it from a result or from {KNOWN}")
                elif leaf in ids:
                    found.append(f"{place}: no earlier result holds this id")
    return list(dict.fromkeys(found))


def list_constants(source: str) -> Iterator[Any]:
    """Yield the texts and numbers in the function `chain`, except names of tools and fields, and indices."""
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef) and function.name == CHAIN_FUNCTION:
            skipped = {id(node.slice) for node in ast.walk(function) if isinstance(node, ast.Subscript)}
            skipped |= {id(node.args[0]) for node in ast.walk(function) if isinstance(node, ast.Call) and node.args}
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Constant)
                    and id(node) not in skipped
                    and isinstance(node.value, str | int | float)
                ):
                    yield node.value


def holds_value(result: Any, value: Any) -> bool:
    """Whether a result has a value: as a leaf, as a key of an object, or within a text."""
    if isinstance(result, Mapping):
        return value in result or any(holds_value(each, value) for each in result.values())
    if isinstance(result, list):
        return any(holds_value(each, value) for each in result)
    if isinstance(result, str) and isinstance(value, str):
        return value == result or (len(value) > 2 and value in result)
    return isinstance(result, bool) is isinstance(value, bool) and bool(result == value)
