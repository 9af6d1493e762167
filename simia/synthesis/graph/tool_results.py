"""Describe the arguments, results and tables of an environment's tools, from declarations or recorded results.

The fields of a result come from the first of these that exists: the declared result (a JSON Schema, or words such as `{order_id, items}`),
results in tests and references, the columns of the table in the tool's name. The tables that a tool changes come from its tests, since a
declaration may list all tables in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from simia.pack import Pack
from simia.quality.grounding import looks_like_identifier
from simia.quality.tool_effects import find_effect, split_tool_name
from simia.state_schema import StateSchema, TableSpec
from simia.synthesis.building.state_model import find_singular
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.tool_graph import GraphInput, GraphOutput, GraphTool
from simia.tool import ToolSpec
from simia.tool_test import ToolTest

FIELD = re.compile(r"[A-Za-z_]\w{0,60}")
BRACES = re.compile(r"\{([^{}]*)\}")
COMPOUND = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
BARE = frozenset(("id", "ids", "key", "uuid", "guid", "code", "ref", "reference", "number", "no"))
"""Names that are ambiguous without the name of their entity."""
MOST_FIELDS, MOST_DEPTH, MOST_ROWS = 200, 8, 5
KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


@dataclass(slots=True)
class DescribedTool:
    """A tool with all facts from which edges are derived."""

    spec: ToolSpec
    node: GraphTool
    changes: frozenset[str] = frozenset()
    """Tables that it changes."""


@dataclass(slots=True)
class DescribedTools:
    """The tools of an environment, with the schema of its state if it has one."""

    schema: StateSchema = field(default_factory=StateSchema)
    tools: dict[str, DescribedTool] = field(default_factory=dict)


def describe_tools(source: BuiltEnvironment | Pack) -> DescribedTools:
    """Describe the agent's tools of a built environment or of a pack."""
    if isinstance(source, BuiltEnvironment):
        designs = {tool.name: tool for tool in source.design.tools}
        schema, tests, results = source.design.state, source.tests, {}
        specs = {
            name: tool.spec.model_copy(
                update={
                    "returns": tool.spec.returns or designs[name].returns or None,
                    "reads": designs[name].tables,
                    "writes": designs[name].tables if tool.writes else [],
                }
            )
            for name, tool in source.tools.items()
        }
    else:
        schema, tests = source.state_schema or StateSchema(), source.tests
        specs = {tool.name: tool for tool in source.tools}
        results = read_recorded_results(source)
    found = DescribedTools(schema)
    for name, spec in specs.items():
        own = [test for test in tests if test.call.name == name and test.expect.outcome == "success"]
        observed = [*results.get(name, ()), *(test.expect.result for test in own)]
        found.tools[name] = describe_one(spec, schema, own, observed)
    return found


def describe_one(spec: ToolSpec, schema: StateSchema, tests: list[ToolTest], observed: list[Any]) -> DescribedTool:
    """Describe one tool from its declaration, its successful tests and its recorded results."""
    touched = list(dict.fromkeys([*(spec.reads or ()), *(spec.writes or ())]))
    seen = [test.expect.changes for test in tests if test.expect.changes]
    tables = {schema.find_table(path.split(".")) for changes in seen for path in changes} - {None}
    writes = find_effect(spec) != "look_up"
    changes = frozenset(str(table) for table in tables) or frozenset(spec.writes or ())
    node = GraphTool(
        description=spec.description,
        writes=writes,
        inputs=list_graph_inputs(spec),
        outputs=list_graph_outputs(spec, schema, touched, observed),
        tables=touched or sorted(changes),
    )
    return DescribedTool(spec, node, changes if writes else frozenset())


def list_graph_inputs(spec: ToolSpec) -> list[GraphInput]:
    """The arguments of a tool; all are external until edges show which are not."""
    properties = spec.parameters.get("properties")
    listed = spec.parameters.get("required")
    required = listed if isinstance(listed, list) else []
    return [
        GraphInput(
            name=name, type=find_kind(schema), description=str(schema.get("description", "")), required=name in required, external=True
        )
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(schema, dict)
    ]  # fmt: skip


def find_kind(schema: Mapping[str, Any], depth: int = 0) -> str:
    """The JSON type of a schema: the first that is not null, or `any`."""
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, list) else []
    if not names and depth < MOST_DEPTH:
        names = [find_kind(part, depth + 1) for part in list_branches(schema) if isinstance(part, dict)]
    return next((str(name) for name in names if name not in ("null", "any")), "any")


def list_graph_outputs(
    spec: ToolSpec, schema: StateSchema, tables: Iterable[str], observed: Iterable[Any]
) -> list[GraphOutput]:
    """List the fields of a tool's result, each once; a field `id` of a nested object gets the object's name: `order.id`."""
    declared = spec.result_schema
    found: dict[str, GraphOutput] = {}
    if isinstance(declared, dict):
        for path, part in iterate_fields(declared):
            add_output(found, path, find_kind(part), str(part.get("description", "")))
    elif isinstance(declared, str):
        for name in read_fields(declared):
            add_output(found, (name,), find_column_kind(name, schema, tables), "")
    if not found:
        for result in observed:
            for path, value in iterate_values(result):
                add_output(found, path, KINDS.get(type(value), "any"), "")
    if not found and (main := find_named_table(spec.name, schema)) is not None:
        for name, kind in list_table_fields(main, schema.tables[main]):
            add_output(found, (name,), kind, "")
    return list(found.values())[:MOST_FIELDS]


def add_output(found: dict[str, GraphOutput], path: tuple[str, ...], kind: str, description: str) -> None:
    name = ".".join(path[-2:]) if path[-1].lower() in BARE and len(path) > 1 else path[-1]
    known = found.get(name)
    if known is None or (known.type == "any" and kind != "any"):
        found[name] = GraphOutput(name=name, type=kind, description=description)


def iterate_fields(
    schema: Mapping[str, Any], path: tuple[str, ...] = (), depth: int = 0
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, schema) of every property of a result's schema; elements of lists have the path of their list."""
    if depth > MOST_DEPTH:
        return
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if isinstance(part, dict):
            yield (*path, str(name)), part
            yield from iterate_fields(part, (*path, str(name)), depth + 1)
    for part in (*list_branches(schema), schema.get("items")):
        if isinstance(part, dict):
            yield from iterate_fields(part, path, depth + 1)


def list_branches(schema: Mapping[str, Any]) -> list[Any]:
    """The alternatives of a schema."""
    found = [schema.get(key) for key in ("anyOf", "oneOf", "allOf")]
    return [part for parts in found if isinstance(parts, list) for part in parts]


def read_fields(text: str) -> list[str]:
    """Names of fields in the words of a declared result: those in braces, else all that are written with underscores."""
    names = []
    for inside in BRACES.findall(text):
        names += [part.split(":")[0].strip().strip("\"'`") for part in inside.split(",")]
    fields = [name for name in names if FIELD.fullmatch(name)]
    return list(dict.fromkeys(fields or COMPOUND.findall(text)))


def iterate_values(value: Any, path: tuple[str, ...] = (), depth: int = 0) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) of every field of a recorded result. Keys that are data, such as ids, are not treated as fields."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str) or not FIELD.fullmatch(name):
                yield from iterate_values(part, path, depth + 1)
                continue
            if part is not None:
                yield (*path, name), part
            yield from iterate_values(part, (*path, name), depth + 1)
    elif isinstance(value, list):
        for part in value[:MOST_ROWS]:
            yield from iterate_values(part, path, depth + 1)


def read_recorded_results(pack: Pack) -> dict[str, list[Any]]:
    """Tool → its results in the pack's references and seeds that are JSON."""
    found: dict[str, list[Any]] = {}
    for episode in (*pack.references.values(), *pack.seeds):
        names = {call.id: call.name for _, _, call in episode.calls()}
        for message in episode.messages:
            name = names.get(message.call_id or "") if message.role == "tool" else None
            if name is None or not message.text:
                continue
            try:
                value = orjson.loads(message.text)
            except orjson.JSONDecodeError:
                continue
            if not (isinstance(value, dict) and value.keys() == {"error"}):
                found.setdefault(name, []).append(value)
    return found


def find_named_table(tool: str, schema: StateSchema) -> str | None:
    """The table whose name a tool's name ends with or holds: `get_order` → `orders`."""
    words = [find_singular(word) for word in split_tool_name(tool)]
    best: str | None = None
    for table in schema.tables:
        own = [find_singular(word) for word in split_tool_name(table)]
        holds = any(words[n : n + len(own)] == own for n in range(len(words)))
        if holds and (best is None or len(own) > len(split_tool_name(best))):
            best = table
    return best


def list_table_fields(name: str, table: TableSpec) -> list[tuple[str, str]]:
    """(name, kind) of the key and the columns of a table."""
    key = [] if table.key else [(f"{find_singular(name)}_id", "string")]
    return [*key, *((column, find_kind(spec.values)) for column, spec in table.columns.items())]


def find_column_kind(field_name: str, schema: StateSchema, tables: Iterable[str]) -> str:
    """The JSON type of a field that is named as a column of one of these tables; keys are strings."""
    for table in tables:
        columns = schema.tables[table].columns if table in schema.tables else {}
        if field_name in columns:
            return find_kind(columns[field_name].values)
    return "string" if looks_like_identifier(field_name, {}) and not field_name.endswith("ids") else "any"
