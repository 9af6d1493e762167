"""How far a simulated world is from the real one: figures over calls that both answered (`backend: shadow`).

For each tool: whether a simulated result has the shape that the tool declares (or, where it declares none, that its real
results have), whether success and refusal agree, and how many of the values agree: F1 over the leaves of both results, each
leaf its path and its value. Where the simulator goes on from its own answers (`forced: false`), the distance of the changes
it named from those that really happened, step by step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.tool import CompiledSchema, SchemaError, ToolSpec, compile_schema

Row = Mapping[str, Any]
"""One call in the shadow: name, arguments, real, simulated or lost, step, distance."""


@dataclass
class ToolFidelity:
    """One tool's calls. `value_f1` is over calls that succeeded in both worlds."""

    calls: int = 0
    lost: int = 0
    shaped: int = 0
    to_shape: int = 0
    agree: int = 0
    hits: int = 0
    real: int = 0
    simulated: int = 0
    contradicting: int = 0

    @property
    def answered(self) -> int:
        return self.calls - self.lost

    @property
    def schema_validity(self) -> float | None:
        return self.shaped / self.to_shape if self.to_shape else None

    @property
    def agreement(self) -> float | None:
        return self.agree / self.answered if self.answered else None

    @property
    def value_f1(self) -> float | None:
        total = self.real + self.simulated
        return 2 * self.hits / total if total else None

    def add(self, other: ToolFidelity) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Fidelity:
    """All tools of a run, and how far its state had gone astray after so many calls."""

    tools: dict[str, ToolFidelity] = field(default_factory=dict)
    distance: dict[int, float] = field(default_factory=dict)
    """Step (from 1) → mean distance of the changes, 0 to 1; only where the simulator went on from its own answers."""

    @property
    def total(self) -> ToolFidelity:
        found = ToolFidelity()
        for each in self.tools.values():
            found.add(each)
        return found


def figures(rows: Sequence[Row], specs: Mapping[str, ToolSpec]) -> Fidelity:
    """The figures of all calls of some episodes."""
    found = Fidelity()
    schemas = {name: schema_of(specs.get(name), results) for name, results in real_results(rows).items()}
    distances: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        each = found.tools.setdefault(row["name"], ToolFidelity())
        each.calls += 1
        if "simulated" not in row:
            each.lost += 1
            continue
        real, simulated = row["real"], row["simulated"]
        each.agree += real["failed"] == simulated["failed"]
        each.contradicting += "issue" in row
        schema = schemas.get(row["name"])
        if not simulated["failed"] and schema is not None:
            each.to_shape += 1
            each.shaped += schema.valid(simulated["content"])
        if not real["failed"] and not simulated["failed"]:
            one, two = Counter(leaves(real["content"])), Counter(leaves(simulated["content"]))
            each.hits += (one & two).total()
            each.real += one.total()
            each.simulated += two.total()
        if "distance" in row:
            distances[row["step"]].append(row["distance"])
    found.distance = {step: sum(values) / len(values) for step, values in sorted(distances.items())}
    return found


def real_results(rows: Iterable[Row]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if not row["real"]["failed"]:
            found[row["name"]].append(row["real"]["content"])
    return found


def schema_of(spec: ToolSpec | None, results: Sequence[Any]) -> CompiledSchema | None:
    """What a result looks like: as declared, else as the real ones of this run do."""
    declared = spec.returns if spec is not None else None
    try:
        return compile_schema(declared if isinstance(declared, dict) else shape(results))
    except SchemaError:
        return None


def shape(values: Sequence[Any]) -> dict[str, Any]:
    """A JSON Schema that all values fit: types, the keys that every object has, what lists hold."""
    types = sorted({kind(value) for value in values})
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        keys = {key for value in objects for key in value}
        # Keys that are identifiers differ from one result to the next; those that all have are the shape.
        always = sorted(key for key in keys if all(key in value for value in objects))
        found["required"] = always
        found["properties"] = {key: shape([value[key] for value in objects]) for key in always}
    lists = [each for value in values if isinstance(value, list) for each in value]
    if lists:
        found["items"] = shape(lists)
    return found


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value of every plain value; the place in a list does not count, numbers that are equal are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    elif isinstance(value, str):
        yield path, " ".join(value.split()).casefold()
    else:
        yield (
            path,
            repr(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else repr(value),
        )
