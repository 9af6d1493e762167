"""Estimate the cost of checking a value against an untrusted JSON Schema, before the schema is compiled.

References make a small schema large: 20 levels of `allOf` with two `$ref`s each are a million checks of one value. The
estimate follows the references once and adds up how often the parts of the schema can be applied to one place of a value.
A recursive schema costs more the deeper a value nests, so its cost is estimated for each depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

import orjson

from simia.json_values import iterate_objects

MOST_CHECKS = 100_000  # of one place of a value, by one schema
MOST_UNEVALUATED = 5_000  # `unevaluated…` makes the validator expand what it refers to while it compiles
MOST_STEPS = 200_000  # of the estimate itself
MOST_PATTERNS, MOST_PATTERN_STATES = 2_000, 50_000  # regular expressions of one schema; the sum of their states
PROPERTY_STATES = 20  # a class of letters of all languages, such as \p{L}, is a large automaton
MOST_LEVELS = 64  # of a value that a recursive schema checks

IN_PLACE = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
NAMED_IN_PLACE = ("dependentSchemas", "dependencies")
BELOW = ("additionalProperties", "propertyNames", "additionalItems", "contains")
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
DATA = ("enum", "const", "required", "dependentRequired", "dependencies", "type")
REPEATED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


class SchemaError(ValueError):
    """A tool's schema cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class SchemaCost:
    """The cost of a schema. `checks[d]`: checks of one place, for values that nest d levels. The last entry also holds for all
    deeper values; if the schema is recursive, deeper values are refused instead."""

    checks: tuple[int, ...]
    recursive: bool
    patterns: int
    """How many regular expressions it has."""
    alternatives: bool
    """Whether it has `anyOf` or `oneOf`, whose errors hold the errors of every branch."""

    def of(self, depth: int) -> int | None:
        """Checks of one place of a value that nests `depth` levels; None: the value is deeper than this schema is checked."""
        if depth < len(self.checks):
            return self.checks[depth]
        return None if self.recursive else self.checks[-1]


def estimate_cost(schema: dict[str, Any]) -> SchemaCost:
    """Estimate what one check costs. Raises `SchemaError` if it would be too much for any value."""
    patterns = list(find_patterns(schema))
    states = sum(map(count_states, patterns))
    if len(patterns) > MOST_PATTERNS or states > MOST_PATTERN_STATES:
        raise SchemaError(
            f"its {len(patterns):,} regular expressions have {states:,} states with repetitions written out; "
            f"{MOST_PATTERNS:,} expressions and {MOST_PATTERN_STATES:,} states are the most"
        )
    graph = SchemaGraph(schema)
    try:
        counted = [graph.checks(schema, schema, None)]
        if graph.recursive:
            by_depth = (graph.checks(schema, schema, depth) for depth in range(MOST_LEVELS + 1))
            counted = list(takewhile(lambda checks: checks <= MOST_CHECKS, by_depth))
    except RecursionError:
        raise SchemaError("its references form too long a chain") from None
    if len(counted) < 1 + graph.recursive or counted[0] > MOST_CHECKS:
        raise SchemaError(f"its references and alternatives expand to more than {MOST_CHECKS:,} checks of one value")
    return SchemaCost(tuple(counted), graph.recursive, len(patterns), graph.alternatives)


class SchemaGraph:
    """The schema as a graph: parts applied to the same place of a value, parts applied one level below, references."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.root = schema
        self.recursive = False
        self.alternatives = False
        self._known: dict[tuple[int, int | None], int] = {}
        self._path: dict[tuple[int, int | None], bool] = {}  # being counted → whether it was entered one level below
        self._loops: set[tuple[int, int]] = set()
        self._steps = self._unevaluated = 0
        self._anchors: dict[str, list[Any]] = {}
        for node in iterate_objects(schema):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := node.get(key), str):
                    self._anchors.setdefault(name, []).append(node)

    def checks(self, node: Any, resource: Any, depth: int | None, *, below: bool = False) -> int:
        """Count the checks that the part `node` makes of one place and of one path below it. `depth`: levels of the value
        that are followed; None: all, where a recursive part is counted once. `resource`: what its `#` refers to."""
        if not isinstance(node, dict):
            return 1
        key = (id(node), depth)
        if key in self._known:
            return self._known[key]
        if key in self._path:
            self._meet_again(key, below)
            return 0
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise SchemaError("its references are too many to be followed")
        if node is not self.root and isinstance(node.get("$id"), str) and not node["$id"].startswith("#"):
            resource = node
        self._path[key] = below
        here = sum(self.checks(part, resource, depth) for part in self._in_place(node, resource))
        if any(name in node for name in UNEVALUATED):
            here *= 3  # the branches are checked again to know what they have evaluated
            self._unevaluated += here if depth is None else 0
            if self._unevaluated > MOST_UNEVALUATED:
                raise SchemaError("its parts with unevaluatedProperties or unevaluatedItems expand to too many checks")
        total = count_own(node) + here
        if depth != 0:
            under = None if depth is None else depth - 1
            for parts in group_below(node):
                total += max((self.checks(part, resource, under, below=True) for part in parts), default=0)
        del self._path[key]
        self._known[key] = total
        return total

    def _meet_again(self, key: tuple[int, int | None], below: bool) -> None:
        """Note that a part reaches itself. If the path goes down a level of the value, the schema is recursive; else it is a loop. The
        validator ends a single loop, but follows every path through several connected loops."""
        path = list(self._path.items())
        start = next(i for i, (each, _) in enumerate(path) if each == key)
        if below or any(entered for _, entered in path[start + 1 :]):
            self.recursive = True
            return
        self._loops.add((key[0], path[-1][0][0]))
        if len(self._loops) > 1:
            raise SchemaError("its references loop in more than one way")

    def _in_place(self, node: dict[str, Any], resource: Any) -> Iterator[Any]:
        for name in IN_PLACE:
            part = node.get(name)
            if isinstance(part, str) and name.startswith("$"):
                yield from self._referred(part, resource)
            elif isinstance(part, list):
                self.alternatives |= name in ("anyOf", "oneOf")
                yield from part
            elif isinstance(part, dict):
                yield part
        for name in NAMED_IN_PLACE:
            if isinstance(part := node.get(name), dict):
                yield from part.values()

    def _referred(self, reference: str, resource: Any) -> list[Any]:
        """Return the target of a reference within the schema; nothing where the validator will find nothing either."""
        fragment = unquote(reference.removeprefix("#"))
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment, [])
        node = resource
        try:
            for step in fragment.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                node = node[int(step)] if isinstance(node, list) else node[step]
        except (LookupError, ValueError, TypeError):
            return []
        return [node]


def group_below(node: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the parts for places one level below, in groups; at most one part of a group applies to one place."""
    for name in (*BELOW, *UNEVALUATED):
        if name in node:
            yield [node[name]]
    if isinstance(part := node.get("patternProperties"), dict):
        yield from ([each] for each in part.values())
    if isinstance(part := node.get("properties"), dict):
        yield list(part.values())
    for name in ("items", "prefixItems"):
        part = node.get(name)
        if isinstance(part, dict | list):
            yield part if isinstance(part, list) else [part]


def count_own(node: dict[str, Any]) -> int:
    """Count what a part costs by itself: its own keywords, the data in them, the states of its regular expressions."""
    data = [node[name] for name in DATA if name in node and not isinstance(node[name], str)]
    properties = node.get("properties")
    cost = 1 + (len(properties) if isinstance(properties, dict) else 0)
    cost += sum(len(orjson.dumps(value)) // 4 for value in data)
    return cost + sum(map(count_states, list_own_patterns(node)))


def find_patterns(schema: Any) -> Iterator[str]:
    """Yield every regular expression that the validator may compile, at any depth."""
    return (pattern for node in iterate_objects(schema) for pattern in list_own_patterns(node))


def list_own_patterns(node: dict[str, Any]) -> list[str]:
    pattern, named = node.get("pattern"), node.get("patternProperties")
    return [*([pattern] if isinstance(pattern, str) else []), *(named if isinstance(named, dict) else [])]


def count_states(pattern: str) -> int:
    """Estimate the size of a regular expression with its counted repetitions written out. For an invalid one, the result is arbitrary."""
    sizes, last, at = [0], 0, 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "{" and (counted := REPEATED.match(pattern, at)):
            times = max(int(counted[1]), int(counted[2] or 0), 1)
            sizes[-1] += last * (times - 1)
            last *= times
            at = counted.end()
            continue
        if letter == "(":
            sizes.append(0)
            last = 0
        elif letter == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif letter not in "*+?|^$":
            last = PROPERTY_STATES if pattern.startswith(("\\p", "\\P"), at) else 1
            at = find_class_end(pattern, at) if letter == "[" else at + (letter == "\\")
            sizes[-1] += last
        at += 1
    return sum(sizes) + 1


def find_class_end(pattern: str, at: int) -> int:
    """Return the index of the `]` that closes the class that opens at `at`; the last index without one."""
    depth = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(pattern)
