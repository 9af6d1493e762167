"""Measure the diversity of the accepted trajectories, and of the seeds for comparison.

Figures such as distinct-n decrease as a set grows, so a large run is measured on a sample of fixed size, every k-th
accepted trajectory. The seeds' figures only give an idea of the scale. A request counts as declined if the last answer is a
refusal in the usual phrases of its language (`quality.refusals`) and no call follows. This rate is for comparing sets; it is
not a verdict on a trajectory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any
from zlib import crc32

from simia.jobs import Ledger
from simia.quality.refusals import says_declined
from simia.quality.selection.near_duplicates import WORDS
from simia.quality.text_units import divide_dense_bytes
from simia.report.free_values import iterate_free_values, read_planned_values
from simia.tool import MAX_SCHEMA_DEPTH, ToolSpec
from simia.trajectory import Trajectory

SAMPLE = 1000
ORDERS = (1, 2, 3)
SPEAKERS = ("user", "assistant")
LONGEST_ENUM = 100
LEAST_VALUES, LEAST_GROWTH = 20, 0.2  # of an argument with an over-represented value
Use = tuple[str, ...]  # (pack, tool), (pack, tool, argument) or (pack, tool, argument, value)
SAMPLED = """
SELECT body, spec FROM (SELECT item, ROW_NUMBER() OVER (ORDER BY ord) AS place FROM accepted)
JOIN result USING (item) JOIN item ON item.id = item
WHERE place % ? = 1 OR ? = 1 ORDER BY place
"""


@dataclass(slots=True)
class Diversity:
    """Counts over a set of trajectories. `possible`: the uses that the schemas of their tools and of the seeds' tools allow."""

    possible: set[Use] = field(default_factory=set)
    used: set[Use] = field(default_factory=set)  # those of `possible` that occur
    trajectories: int = 0
    parallel: int = 0
    declined: int = 0
    sequences: Counter[Use] = field(default_factory=Counter)
    grams: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))  # by speaker and order
    gram_totals: Counter[tuple[str, int]] = field(default_factory=Counter)
    values: dict[tuple[str, str], Counter[Any]] = field(default_factory=lambda: defaultdict(Counter))
    _declared: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))  # tool → its schemas

    def add(self, t: Trajectory, planned: Mapping[str, Any] | None = None) -> None:
        """Count one trajectory. `planned`: argument → value that the request to the model gave."""
        self.declare_tools(t)
        self.trajectories += 1
        self.parallel += any(len(message.calls) > 1 for message in t.messages)
        self.declined += is_declined(t)
        calls = [call for _, _, call in t.calls()]
        self.sequences[tuple(call.name for call in calls)] += 1
        for call in calls:
            tool = t.pack or "", call.name
            self.used |= self.possible & {tool, *((*tool, *use) for use in iterate_call_uses(call.arguments or {}))}
        for name, argument, value in iterate_free_values(t, planned or {}):
            self.values[name, argument][value] += 1
        for message in t.messages:
            if message.role in SPEAKERS:
                text = divide_dense_bytes(message.text.encode("utf-8", "replace"))
                words = list(map(crc32, text.translate(WORDS).split()))
                for n in ORDERS:
                    found = list(map(hash, zip(*(words[start:] for start in range(n)), strict=False)))
                    self.grams[message.role, n].update(found)
                    self.gram_totals[message.role, n] += len(found)

    def declare_tools(self, t: Trajectory) -> None:
        pack = t.pack or ""
        for tool in t.tools:
            schema, known = hash(repr(tool.parameters)), self._declared[pack, tool.name]
            if schema not in known:
                known.add(schema)
                self.possible |= {(pack, *use) for use in iterate_tool_uses(tool)}

    def list_several_schemas(self) -> dict[str, int]:
        """Return tools with several schemas, and how many; the uses of all schemas are counted."""
        return {name: len(schemas) for (_, name), schemas in self._declared.items() if len(schemas) > 1}

    def count_coverage(self, length: int) -> tuple[int, int]:
        """Return used and possible: tools (`length` 2), optional arguments (3) or enum values (4)."""
        return sum(len(use) == length for use in self.used), sum(len(use) == length for use in self.possible)

    def compute_distinct_n(self, speaker: str, n: int) -> float:
        """Return the distinct n-grams of words as a share of all; none spans two messages."""
        return len(self.grams[speaker, n]) / max(1, self.gram_totals[speaker, n])

    @property
    def entropy(self) -> float:
        """Entropy of the tool sequences in bits; its bound is log2 of the number of trajectories."""
        shares = (count / self.trajectories for count in self.sequences.values())
        return max(0.0, -sum(share * log2(share) for share in shares))


def measure_run_diversity(ledger: Ledger, seeds: list[Trajectory]) -> tuple[Diversity, Diversity] | None:
    """Measure a sample of the accepted trajectories, and the seeds; None while nothing is accepted."""
    count = ledger.accepted_count()
    if not count:
        return None
    step = -(-count // SAMPLE)
    rows = ledger.db.ledger.execute(SAMPLED, (step, step)).fetchall()
    found = measure_diversity((), seeds)
    for stored, spec in rows:
        found.add(Trajectory.from_row(ledger.body(stored)["trajectory"]), read_planned_values(spec))
    return found, measure_diversity(seeds, seeds)


def measure_diversity(trajectories: Iterable[Trajectory], seeds: Iterable[Trajectory]) -> Diversity:
    found = Diversity()
    for seed in seeds:
        found.declare_tools(seed)
    for t in trajectories:
        found.add(t)
    return found


def find_grown_values(new: Diversity, old: Diversity) -> list[tuple[str, Any, float, float]]:
    """List arguments whose most frequent value became much more frequent, the largest growth first:
    (tool.argument, value, share, share in `old`)."""
    found = []
    for (tool, argument), values in new.values.items():
        before = old.values.get((tool, argument))
        if before and values.total() >= LEAST_VALUES and len(values) > 1:
            value, count = values.most_common(1)[0]
            share, was = count / values.total(), before[value] / before.total()
            if share - was >= LEAST_GROWTH:
                found.append((f"{tool}.{argument}", value, share, was))
    return sorted(found, key=lambda row: row[3] - row[2])


def is_declined(t: Trajectory) -> bool:
    """Return whether the assistant declined and made no call afterwards; a refusal before more work is only a step."""
    for message in reversed(t.messages):
        if message.calls:
            return False
        if message.role == "assistant" and says_declined(message.text):
            return True
    return False


def iterate_tool_uses(tool: ToolSpec) -> Iterator[Use]:
    """Yield (tool), (tool, argument) for each optional one, and (tool, argument, value) for each value of an enum."""
    yield (tool.name,)
    waiting: list[tuple[Any, str, int]] = [(tool.parameters, "", 0)]
    while waiting:
        schema, at, depth = waiting.pop()
        if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
            continue
        for value in schema["enum"] if isinstance(schema.get("enum"), list) else ():
            if at and isinstance(value, str | int | float | bool):
                yield tool.name, at, str(value)
        required, properties = schema.get("required"), schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            path = f"{at}.{name}" if at else name
            if not (isinstance(required, list) and name in required):
                yield tool.name, path
            waiting.append((inner, path, depth + 1))
        waiting.append((schema.get("items"), at, depth + 1))


def iterate_call_uses(arguments: Mapping[str, Any]) -> Iterator[Use]:
    """Yield (argument) and (argument, value) at dotted paths."""
    waiting: list[tuple[str, Any]] = list(arguments.items())
    while waiting:
        path, value = waiting.pop()
        if value is None:  # an optional argument with null counts as left out
            continue
        yield (path,)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                waiting += [(f"{path}.{name}", inner) for name, inner in each.items()]
            elif isinstance(each, list):
                waiting.append((path, each))
            elif len(text := str(each)) <= LONGEST_ENUM:
                yield path, text
