"""Coverage: which tools, optional arguments and enum values the data uses, beside what the seeds use.

An agent learns no tool that it never sees called. What the seeds use and the data does not was lost in the making; what neither
uses is missing from the seeds. Memory is bounded by the schemas: what stands in no schema is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from simia.tool import MAX_SCHEMA_DEPTH, ToolSpec
from simia.trajectory import Trajectory

Use = tuple[str, ...]  # (tool), (tool, argument) or (tool, argument, value)
KINDS = {1: "tools", 2: "optional_arguments", 3: "enum_values"}
MOST_NAMED = 50


@dataclass(slots=True)
class PackCoverage:
    """Of one pack: what could be used, how often it was, and what the seeds use."""

    possible: set[Use] = field(default_factory=set)
    used: Counter[Use] = field(default_factory=Counter)
    seeds: set[Use] = field(default_factory=set)
    known: set[str] = field(default_factory=set)

    def declare(self, tools: list[ToolSpec]) -> None:
        for tool in tools:
            if tool.name not in self.known:
                self.known.add(tool.name)
                self.possible |= list_schema_uses(tool)

    def uses(self, t: Trajectory) -> Iterator[Use]:
        for _, _, call in t.calls():
            for use in iterate_call_uses(call.name, call.arguments or {}):
                if use in self.possible:
                    yield use

    def report(self) -> dict[str, dict[str, Any]]:
        """Count, for each kind, what is possible and what the data and the seeds use; name what is missing."""
        found = {}
        for length, kind in KINDS.items():
            possible = {use for use in self.possible if len(use) == length}
            never = sorted(use for use in possible if not self.used[use])
            found[kind] = {
                "possible": len(possible),
                "used": len(possible) - len(never),
                "used_by_seeds": sum(len(use) == length for use in self.seeds),
                "never": [format_use(use) for use in never[:MOST_NAMED]],
                "only_in_seeds": [format_use(use) for use in never if use in self.seeds][:MOST_NAMED],
            }
        return found


class ToolCoverage:
    """Of a stream of trajectories against the seeds, each pack by itself."""

    def __init__(self, seeds: list[Trajectory]) -> None:
        self._packs: dict[str, PackCoverage] = {}
        for seed in seeds:
            pack = self._pack(seed)
            pack.seeds.update(pack.uses(seed))

    def add(self, t: Trajectory) -> None:
        pack = self._pack(t)
        pack.used.update(pack.uses(t))

    def report(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {name: pack.report() for name, pack in sorted(self._packs.items())}

    def _pack(self, t: Trajectory) -> PackCoverage:
        pack = self._packs.setdefault(t.pack or "", PackCoverage())
        if not all(tool.name in pack.known for tool in t.tools):
            pack.declare(t.tools)
        return pack


def format_use(use: Use) -> str:
    tool, *rest = use
    return tool + (f"({'='.join(rest)})" if rest else "")


def list_schema_uses(tool: ToolSpec) -> set[Use]:
    return {(tool.name,), *((tool.name, *use) for use in _list_cached_uses(orjson.dumps(tool.parameters)))}


@lru_cache(maxsize=1024)
def _list_cached_uses(schema: bytes) -> frozenset[Use]:
    return frozenset(iterate_schema_uses(orjson.loads(schema), "", 0))


def iterate_schema_uses(schema: Any, at: str, depth: int) -> Iterator[Use]:
    """Yield (argument) for each optional one and (argument, value) for each value of an enum, at dotted paths."""
    if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
        return
    for value in schema["enum"] if isinstance(schema.get("enum"), list) else ():
        if at and isinstance(value, str | int | float | bool):
            yield at, str(value)
    required = schema.get("required")
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        path = f"{at}.{name}" if at else name
        if not (isinstance(required, list) and name in required):
            yield (path,)
        yield from iterate_schema_uses(inner, path, depth + 1)
    yield from iterate_schema_uses(schema.get("items"), at, depth + 1)


def iterate_call_uses(tool: str, arguments: Mapping[str, Any]) -> Iterator[Use]:
    yield (tool,)
    stack: list[tuple[str, Any]] = list(arguments.items())
    while stack:
        path, value = stack.pop()
        if value is None:  # an optional argument of null is one left out
            continue
        yield tool, path
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                stack += [(f"{path}.{name}", inner) for name, inner in each.items()]
            elif isinstance(each, list):
                stack.append((path, each))
            elif len(text := str(each)) <= 100:
                yield tool, path, text
