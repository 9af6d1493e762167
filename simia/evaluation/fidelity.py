"""Fidelity of a simulated world: figures over calls that both it and the real world answered (`backend: shadow`).

Figures for each tool: whether simulated results have the shape that the tool declares (or, without a declaration, the shape of its real
results); whether success and refusal agree; and the agreement of values, as F1 over the leaves of both results, a leaf being a path with its
value.

For repeated look-ups: whether the simulator repeats the earlier answer in its history for values that have not really changed since. This
is consistency with itself: a simulator whose made-up values are all wrong can still have it in full. If the simulator continues from its
own answers (`forced: false`), also the distance, step by step, between the changes that it reported and the real ones.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

from simia.envs.worlds.compare_worlds import rename_identifiers
from simia.json_values import is_number
from simia.statistics import FEWEST_TASKS, Estimate, bootstrap_interval, compute_wilson_interval, find_ends
from simia.tool import CompiledSchema, SchemaError, ToolSpec, compile_schema
from simia.trajectory import write_compact_json

T = TypeVar("T")
RESAMPLES = 1000
FEWEST = 5  # episodes, from which on whole episodes are resampled; with fewer, calls are
Row = Mapping[str, Any]
"""One call of `shadow`: name, arguments, real, simulated or lost, step, transition, distance, drift, shown; `episode` identifies the episode, `sample` a
call of a frozen set, which was made alone."""


@dataclass
class ToolFidelity:
    """Counts over one tool's calls. `value_f1` is over calls that succeeded in both worlds. `again`: repeated look-ups, with the same
    arguments in the same episode; `held`: those that contradict no earlier answer; `past`: their earlier values that have not really
    changed; `kept`: those of `past` that were given again. `steps`: calls whose changes were compared; `exact`: those that lead to the true
    state; `rewarded`: those in which the state reward sees no difference. `invented`, `forgotten` and `entities`: see
    `compare_transitions`."""

    calls: int = 0
    lost: int = 0
    shaped: int = 0
    to_shape: int = 0
    agree: int = 0
    hits: int = 0
    real: int = 0
    simulated: int = 0
    contradicting: int = 0
    again: int = 0
    held: int = 0
    past: int = 0
    kept: int = 0
    steps: int = 0
    exact: int = 0
    rewarded: int = 0
    entities: int = 0
    invented: int = 0
    forgotten: int = 0

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

    @property
    def exact_share(self) -> float | None:
        """Share of the calls whose changes, applied to the true state, give the true next state."""
        return self.exact / self.steps if self.steps else None

    @property
    def rewarded_share(self) -> float | None:
        """Share of the calls after which the state reward sees no difference."""
        return self.rewarded / self.steps if self.steps else None

    @property
    def memory(self) -> float | None:
        """Share of the earlier values, unchanged since, that are given again."""
        return self.kept / self.past if self.past else None

    def add(self, other: ToolFidelity) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


read_counts = attrgetter(*ToolFidelity.__dataclass_fields__)
DIVISORS: dict[str, Callable[[ToolFidelity], int]] = {
    "schema_validity": attrgetter("to_shape"),
    "agreement": attrgetter("answered"),
    "value_f1": lambda counts: counts.real + counts.simulated,
    "exact_share": attrgetter("steps"),
    "rewarded_share": attrgetter("steps"),
    "memory": attrgetter("past"),
}
"""Measure → what it divides by."""


@dataclass
class Fidelity:
    """The counts of all tools of a run, and the divergence of its state by step."""

    tools: dict[str, ToolFidelity] = field(default_factory=dict)
    distance: dict[int, float] = field(default_factory=dict)
    """Step (from 1) → mean distance of the changes, 0 to 1; only if the simulator continued from its own answers."""
    calls: dict[tuple[str, int | str], ToolFidelity] = field(default_factory=dict)
    """(Episode, step) → counts of that call alone; of a frozen set, (task, id of the sample)."""
    drift: dict[int, Estimate] = field(default_factory=dict)
    """Step (from 1) → leaf fields in which the held state differs from the true one, mean over the episodes that have the step; only if
    the simulator holds a state and continued from its own answers."""

    @property
    def total(self) -> ToolFidelity:
        return sum_calls(self.tools.values())

    def interval(self, measure: str) -> Estimate | None:
        """Return a measure (`value_f1`, `memory`, …) of all calls with its 95 % bootstrap interval. Episodes are resampled or, if there
        are fewer than five, calls; the interval is then too narrow, since calls of one episode are correlated. With five episodes it held
        about nine of ten truths in a simulation. If the measure of each group is 0 or 1, it is Wilson's interval. The number of groups is
        the effective one: a group counts by its share of what the measure divides by."""
        value = getattr(self.total, measure)
        if value is None:
            return None
        groups = [sum_calls(group) for group in group_by_episode(self.calls)]
        known = [group for group in groups if getattr(group, measure) is not None]
        weights = [DIVISORS[measure](group) for group in known]
        n = sum(weights) ** 2 / sum(weight**2 for weight in weights)
        if all(getattr(group, measure) in (0.0, 1.0) for group in known):
            return Estimate(value, *compute_wilson_interval(value * n, n))
        drawn = [getattr(sum_calls(picked), measure) for picked in resample(known)]
        return Estimate(value, *find_ends(drawn, n))


def estimate_gain(one: Fidelity, other: Fidelity, measure: str) -> Estimate | None:
    """Estimate the difference `one` − `other` of a measure over the calls that both answered, with a paired bootstrap. If it is the same in
    all groups, the interval is that of `bootstrap_interval` for as many equal differences."""
    both = {
        place: (each, other.calls[place])
        for place, each in one.calls.items()
        if place in other.calls and not (each.lost or other.calls[place].lost)
    }
    found = measure_difference(list(both.values()), measure)
    if found is None:
        return None
    groups = [
        (sum_calls(one for one, _ in group), sum_calls(two for _, two in group)) for group in group_by_episode(both)
    ]
    n = sum(any(getattr(each, measure) is not None for each in group) for group in groups)
    gaps = {measure_difference([group], measure) for group in groups} - {None}
    if len(gaps) == 1:  # a bootstrap of equal values would give an interval of width 0
        return bootstrap_interval([found] * n, lowest=-1.0)
    drawn = [measure_difference(picked, measure) for picked in resample(groups)]
    return Estimate(found, *find_ends([each for each in drawn if each is not None] or [found], n))


def measure_difference(pairs: Sequence[tuple[ToolFidelity, ToolFidelity]], measure: str) -> float | None:
    one, two = (getattr(sum_calls([pair[n] for pair in pairs]), measure) for n in (0, 1))
    return None if one is None or two is None else one - two


def sum_calls(calls: Iterable[ToolFidelity]) -> ToolFidelity:
    counts = map(read_counts, calls)  # column by column: a bootstrap adds up millions of them
    return ToolFidelity(*map(sum, zip(*counts, strict=True)))


def group_by_episode(calls: Mapping[tuple[str, int | str], T]) -> list[list[T]]:
    grouped: dict[str, list[T]] = defaultdict(list)
    for (episode, _), each in calls.items():
        grouped[episode].append(each)
    return list(grouped.values()) if len(grouped) >= FEWEST else [[each] for each in calls.values()]


def resample(groups: Sequence[T]) -> Iterator[list[T]]:
    chance = random.Random(0)
    for _ in range(RESAMPLES):
        yield chance.choices(groups, k=len(groups))


def measure_fidelity(rows: Sequence[Row], specs: Mapping[str, ToolSpec]) -> Fidelity:
    """Compute the figures of all calls of some episodes."""
    found = Fidelity()
    schemas = {
        name: find_result_schema(specs.get(name), results) for name, results in collect_real_results(rows).items()
    }
    distances: dict[int, list[float]] = defaultdict(list)
    drifts: dict[int, list[float]] = defaultdict(list)
    before: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        episode = row.get("episode", "")
        place = (episode, row["name"], write_compact_json(row["arguments"]))
        each = compare_call(row, schemas.get(row["name"]), None if "sample" in row else before.get(place))
        before[place] = row
        found.tools.setdefault(row["name"], ToolFidelity()).add(each)
        found.calls[episode, row.get("sample", row["step"])] = each
        if "distance" in row:
            distances[row["step"]].append(row["distance"])
        if "drift" in row:
            drifts[row["step"]].append(row["drift"])
    found.distance = {step: sum(values) / len(values) for step, values in sorted(distances.items())}
    found.drift = {step: estimate_drift(values) for step, values in sorted(drifts.items())}
    return found


def estimate_drift(values: Sequence[float]) -> Estimate:
    """The mean of one step's drift, with a bootstrap interval over episodes. Fewer than ten episodes, or equal ones, have none (NaN): counts
    of fields have no upper bound, which Wilson's interval needs."""
    mean = sum(values) / len(values)
    if len(values) < FEWEST_TASKS or len(set(values)) == 1:
        return Estimate(mean, math.nan, math.nan)
    return Estimate(mean, *find_ends([sum(drawn) / len(drawn) for drawn in resample(values)], len(values)))


def compare_call(row: Row, schema: CompiledSchema | None, before: Row | None) -> ToolFidelity:
    """Compare one call in both worlds. `before`: the same call, made earlier in the episode."""
    if "simulated" not in row:
        return ToolFidelity(calls=1, lost=1)
    real, simulated = row["real"], row["simulated"]
    simulated = {**simulated, "content": rename_identifiers(simulated["content"], row.get("names", {}))}
    each = ToolFidelity(calls=1, agree=real["failed"] == simulated["failed"], contradicting="issue" in row)
    if not simulated["failed"] and schema is not None:
        each.to_shape, each.shaped = 1, schema.valid(simulated["content"])
    if not real["failed"] and not simulated["failed"]:
        one, two = Counter(iterate_leaves(real["content"])), Counter(iterate_leaves(simulated["content"]))
        each.hits, each.real, each.simulated = (one & two).total(), one.total(), two.total()
    if (step := row.get("transition")) is not None:
        each.steps, each.exact, each.rewarded = 1, step["exact"], step["rewarded"]
        each.entities, each.invented, each.forgotten = (
            step["entities"], len(step["invented"]), len(step["forgotten"]),
        )  # fmt: skip
    if before is not None and not before["real"]["failed"] and not real["failed"]:
        # The earlier answer in the history: the real one, or the simulator's own.
        own = "distance" in row and "simulated" in before
        then = before["simulated"] if own else before["real"]
        then = {**then, "content": rename_identifiers(then["content"], row.get("names", {}))}
        each.again, each.past, each.kept = 1, *count_remembered(then, simulated, before["real"], real)
        each.held = each.kept == each.past and then["failed"] == simulated["failed"]
    return each


def count_remembered(then: Row, now: Row, real_then: Row, real_now: Row) -> tuple[int, int]:
    """Count the values given earlier whose real values have not changed, and those of them that are given again."""
    if then["failed"]:
        return 0, 0
    was, real = index_leaves(real_then["content"]), index_leaves(real_now["content"])
    changed = {path for path in was.keys() | real.keys() if was.get(path) != real.get(path)}
    # If a list lost or gained elements, its other elements still count as unchanged.
    left = {path: values & real.get(path, Counter()) for path, values in was.items()}
    past = kept = 0
    again = index_leaves(None if now["failed"] else now["content"])
    for path, values in index_leaves(then["content"]).items():
        if path in changed:
            if values != was.get(path):
                continue  # a made-up value of something changed: its unchanged part is unknown
            values = left[path]
        past += values.total()
        kept += (values & again.get(path, Counter())).total()
    return past, kept


def index_leaves(value: Any) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path, each in iterate_leaves(value):
        found[path][each] += 1
    return found


def collect_real_results(rows: Iterable[Row]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if not row["real"]["failed"]:
            found[row["name"]].append(row["real"]["content"])
    return found


def find_result_schema(spec: ToolSpec | None, results: Sequence[Any]) -> CompiledSchema | None:
    """Return the schema of a tool's results: the declared one, else the shape of the real results of this run."""
    declared = spec.result_schema if spec is not None else None
    try:
        return compile_schema(declared if isinstance(declared, dict) else infer_shape(results))
    except SchemaError:
        return None


def infer_shape(values: Sequence[Any]) -> dict[str, Any]:
    """Infer a JSON Schema that fits all values: types, the keys that all objects have, the elements of lists."""
    types = sorted({json_kind(value) for value in values})
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        keys = {key for value in objects for key in value}
        # Identifiers as keys differ between results; the keys common to all are the shape.
        always = sorted(key for key in keys if all(key in value for value in objects))
        found["required"] = always
        found["properties"] = {key: infer_shape([value[key] for value in objects]) for key in always}
    lists = [each for value in values if isinstance(value, list) for each in value]
    if lists:
        found["items"] = infer_shape(lists)
    return found


def json_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def iterate_leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and value of every leaf. Indices of lists are left out of the path, and equal numbers are written alike."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from iterate_leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_leaves(inner, f"{path}[]")
    elif isinstance(value, str):
        yield path, " ".join(value.split()).casefold()
    else:
        yield (
            path,
            repr(float(value)) if is_number(value) else repr(value),
        )
