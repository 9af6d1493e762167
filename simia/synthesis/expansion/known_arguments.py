"""Derive arguments for a tool that shall enter a subgraph H from values of H, without a model (ScaleEnv §4.2.2).

Values come from results along the edges of the graph, from arguments of earlier calls, from keys, references and columns of the state's
rows, and finally from the tool's own tests and its schema.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from simia.envs.play.random_arguments import Sampler
from simia.json_values import iterate_strings
from simia.state_schema import StateSchema, list_rows
from simia.synthesis.building.state_model import find_singular
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.tool_graph import PROVIDES, ToolGraph
from simia.task import Action

CHOICES = 6  # values of one argument
FILLED = 4  # ways to fill the arguments that a row does not name
ROWS = 30  # rows of one table


class KnownValues:
    """Values of a subgraph: the arguments and the results of its calls."""

    def __init__(self) -> None:
        self._results: dict[str, list[Any]] = {}
        self._arguments: dict[str, list[Any]] = {}
        self._texts: set[str] = set()

    def add_call(self, call: Action, value: Any) -> None:
        """Add the arguments and the result of a call."""
        self._results.setdefault(call.name, []).append(value)
        for name, argument in call.arguments.items():
            self._arguments.setdefault(name, []).append(argument)
        self._texts.update(iterate_strings([call.arguments, value]))

    def mentions(self, key: str) -> bool:
        """Whether a call has the key of a row in its arguments or its result."""
        return key in self._texts

    def list_arguments(self, name: str) -> list[Any]:
        """What calls were given under this name."""
        return self._arguments.get(name, [])

    def list_results(self, tool: str, field: str | None) -> list[Any]:
        """Return the values of a field in the results of a tool; if there are none, the results that are no objects."""
        found: list[Any] = []
        for value in self._results.get(tool, []):
            inner = list(iterate_field(value, field)) if field else []
            found += inner or ([value] if not isinstance(value, dict | list) and value is not None else [])
        return found


class ArgumentFinder:
    """Proposes arguments for the tools of an environment, likely ones first. The same values give the same proposals."""

    def __init__(
        self, built: BuiltEnvironment, graph: ToolGraph, known: KnownValues, state: Mapping[str, Any], seed: str
    ) -> None:
        self._built, self._graph, self._known, self._state, self._seed = built, graph, known, state, seed
        self._schema: StateSchema = built.design.state
        self._designs = {tool.name: tool for tool in built.design.tools}

    def propose(self, tool: str) -> Iterator[dict[str, Any]]:
        """Arguments that the tool's schema allows, each once."""
        spec, seen = self._built.tools[tool].spec, set[str]()
        for arguments in itertools.chain(self._fill_from_rows(tool, {}), *self._vary_tests(tool)):
            text = json.dumps(arguments, sort_keys=True)
            if text not in seen and not spec.argument_errors(arguments):
                seen.add(text)
                yield arguments

    def _vary_tests(self, tool: str) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the calls of the tool's successful tests, each followed by variations of it with rows of this state."""
        for test in self._built.tests:
            if test.call.name == tool and test.expect.outcome == "success":
                yield iter([test.call.arguments])
                yield self._fill_from_rows(tool, test.call.arguments)

    def _fill_from_rows(self, tool: str, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield arguments: without `base` first combinations of likely values, then those that fit a row. `base`: fixed values."""
        parameters = self._built.tools[tool].spec.parameters
        names = list(dict.fromkeys([*parameters.get("required", []), *base]))
        choices = {name: [base[name]] if name in base else self._list_choices(tool, name) for name in names}
        if not base:
            yield from self._combine(choices, {})
        for row in self._list_rows(tool, names):
            yield from self._combine(choices, row)

    def _combine(self, choices: Mapping[str, list[Any]], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        given = {name: [row[name]] if name in row else values for name, values in choices.items()}
        for values in itertools.islice(itertools.product(*given.values()), FILLED if row else CHOICES):
            yield dict(zip(given, values, strict=True))

    def _list_rows(self, tool: str, names: list[str]) -> list[dict[str, Any]]:
        """Return the arguments' values by each row of the tool's tables; rows that give more values come first, then rows that H mentions."""
        found: list[tuple[int, bool, dict[str, Any]]] = []
        for table in self._designs[tool].tables:
            spec = self._schema.tables[table]
            rows = list_rows(self._state, table, spec)
            rows.sort(key=lambda each: not self._known.mentions(each[0]))
            for key, row in rows[:ROWS]:
                values = {
                    name: each for name in names if (each := self._read_row(table, tool, name, key, row)) is not None
                }
                if values:
                    found.append((-len(values), not self._known.mentions(key), values))
        return [values for *_, values in sorted(found, key=lambda each: each[:2])]

    def _read_row(self, table: str, tool: str, name: str, key: str, row: Any) -> Any:
        """Return the value that a row has for an argument: its key, a column, or the key of a row that it refers to; None if it has none."""
        wanted = self._find_table(name)
        value: Any = key if wanted == table else None
        if value is None and isinstance(row, Mapping):
            columns = self._schema.tables[table].columns
            refers = next((column for column, each in columns.items() if wanted and each.references == wanted), None)
            value = row.get(name, row.get(refers) if refers else None)
        return None if value is None else shape_value(self._read_schema(tool, name), value)

    def _read_schema(self, tool: str, name: str) -> dict[str, Any]:
        schema: dict[str, Any] = self._built.tools[tool].spec.parameters.get("properties", {}).get(name, {})
        return schema

    def _list_choices(self, tool: str, name: str) -> list[Any]:
        """Values of one argument, likely ones first."""
        schema = self._read_schema(tool, name)
        found: list[Any] = []
        for edge in self._graph.edges:
            if edge.kind == PROVIDES and (edge.target, edge.argument) == (tool, name):
                found += self._known.list_results(edge.source, edge.result)
        found += self._known.list_arguments(name)
        table = self._find_table(name)
        if table is not None:
            found += [key for key, _ in list_rows(self._state, table, self._schema.tables[table])]
        for each in self._designs[tool].tables:
            rows = list_rows(self._state, each, self._schema.tables[each])
            found += [row[name] for _, row in rows if isinstance(row, Mapping) and row.get(name) is not None]
        found += schema.get("enum", [])
        found += [
            test.call.arguments[name]
            for test in self._built.tests
            if test.call.name == tool and test.expect.outcome == "success" and name in test.call.arguments
        ]
        sampler = Sampler(random.Random(f"{self._seed}/{tool}/{name}"))
        found += [sampler.value(schema, schema) for _ in range(2)]
        unique = {json.dumps(each, sort_keys=True): each for each in (shape_value(schema, each) for each in found)}
        return list(unique.values())[:CHOICES]

    def _find_table(self, name: str) -> str | None:
        """Return the table whose keys an argument takes: the one that a column of that name refers to, or the one with that name."""
        for spec in self._schema.tables.values():
            if (column := spec.columns.get(name)) is not None and column.references:
                return column.references
        stem = find_singular(name.removesuffix("_ids").removesuffix("_id"))
        if stem == name and name not in self._schema.tables:
            return None
        for table in self._schema.tables:
            singular = find_singular(table)
            if stem == singular or stem.endswith(f"_{singular}") or singular.endswith(f"_{stem}"):
                return table
        return None


def shape_value(schema: dict[str, Any], value: Any) -> Any:
    """Return the value for an argument of this schema: in a list if the schema requires a list."""
    return [value] if schema.get("type") == "array" and not isinstance(value, list) else value


def iterate_field(value: Any, field: str) -> Iterator[Any]:
    """Every value of a field in a JSON value, at any depth."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == field and each is not None:
                yield each
            else:
                yield from iterate_field(each, field)
    elif isinstance(value, list):
        for each in value:
            yield from iterate_field(each, field)
