"""What a sample is about, beyond its values: a manner of speaking, tools that were rare so far, a turn of events.

Left alone, a model that sees one exemplar again and again writes its story again and again. A plan draws from combinations
of tools that could occur (the graph of calls that the seeds make one after another, widened by tools whose results hold
what another takes as an identifier), rare ones first. `plan` is pure: it depends on the item's number and on counts
that the coordinator takes at fixed places, so a resumed run plans what the first one planned.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, pairwise
from typing import Any

import orjson

from simia import search_path
from simia.prompts import read_lines
from simia.quality.grounding import infer_identifiers
from simia.trajectory import Trajectory

MOST_TOOLS = 4
MOST_A_SIZE = 1500  # combinations of one size that are considered; enough for every set of some twenty tools
PLAIN_SHARE = 1 / 3  # share of the items without a twist
PERSONAS, TWISTS = "scenario/personas.txt", "scenario/twists.txt"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`tools` in an order in which they could be called; `twist` may be empty."""

    persona: str
    tools: tuple[str, ...]
    twist: str


@dataclass(frozen=True, slots=True)
class ToolCounts:
    """How often the accepted trajectories used a tool, two tools together, and exactly these tools (in name order)."""

    accepted: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)
    sets: dict[tuple[str, ...], int] = field(default_factory=dict)

    def seen(self, tools: Sequence[str]) -> float:
        """Measure how well a combination is covered: by its rarest pair, since two pairs of three do not make the three."""
        names = tuple(sorted(set(tools)))
        if len(names) == 1:  # within larger ones nearly every tool is common; alone it may still be rare
            return self.sets.get(names, 0) + self.tools.get(names[0], 0) / MOST_TOOLS
        rarest = min(self.pairs.get(pair, 0) for pair in combinations(names, 2))
        return max(self.sets.get(names, 0), rarest / 2)


class AcceptedCoverage:
    """Counts what was accepted. Tools are told apart by name; feed it in item order."""

    def __init__(self) -> None:
        self._accepted = 0
        self._tools: Counter[str] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._sets: Counter[tuple[str, ...]] = Counter()

    def note(self, tools: Sequence[str]) -> None:
        """Count the tools that one accepted trajectory called."""
        names = tuple(sorted(set(tools)))
        self._accepted += 1
        self._tools.update(names)
        self._pairs.update(combinations(names, 2))
        if 0 < len(names) <= MOST_TOOLS:  # larger ones are never planned, and there could be very many
            self._sets[names] += 1

    def snapshot(self) -> ToolCounts:
        return ToolCounts(self._accepted, dict(self._tools), dict(self._pairs), dict(self._sets))


class CallGraph:
    """Which tool may follow which, and with which a conversation may begin. One for all the seeds of a pack."""

    def __init__(self, seeds: Sequence[Trajectory]) -> None:
        self.after: dict[str, set[str]] = defaultdict(set)
        self.starts: set[str] = set()
        self.called: set[str] = set()
        outputs: dict[str, set[str]] = defaultdict(set)
        for seed in seeds:
            names = [call.name for _, _, call in seed.calls()]
            self.starts.update(names[:1])
            self.called.update(names)
            for one, other in pairwise(names):
                self.after[one].add(other)
            by_id = {call.id: call.name for _, _, call in seed.calls()}
            for message in seed.messages:
                if message.role == "tool" and message.call_id in by_id:
                    outputs[by_id[message.call_id]] |= {to_singular(name) for name in find_field_names(message.text)}
        tools = {tool.name: tool for seed in seeds for tool in seed.tools}
        needed = {
            name: {to_singular(path[-1]) for path in paths}
            for name, paths in infer_identifiers(list(tools.values()), seeds).paths.items()
        }
        for one, gives in outputs.items():
            self.after[one] |= {other for other, takes in needed.items() if gives & takes}
        self._combinations: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        self._weights: tuple[ToolCounts, tuple[str, ...], list[float]] | None = None

    def combinations(self, tools: tuple[str, ...]) -> list[tuple[str, ...]]:
        """List one to four of these tools, each reachable from a first one through the others; smallest first."""
        known = self._combinations.get(tools)
        if known is None:
            known = self._combinations[tools] = list(self._grown(tools))
        return known

    def _grown(self, tools: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        place = {name: i for i, name in enumerate(tools)}
        # A tool that no seed calls may well stand alone: nothing is known of what it needs.
        firsts = [name for name in tools if name in self.starts or name not in self.called] or list(tools)
        layer: dict[frozenset[str], tuple[str, ...]] = {frozenset((name,)): (name,) for name in firsts}
        for _ in range(MOST_TOOLS):
            # Where there are too many, a fixed but scattered choice: the first ones would all begin alike.
            kept = sorted(layer.values(), key=lambda names: zlib.crc32(" ".join(names).encode()))[:MOST_A_SIZE]
            kept.sort(key=lambda names: [place[name] for name in names])
            yield from kept
            layer = {}
            for names in kept:
                follow = {name for one in names for name in self.after.get(one, ()) if name in place} - set(names)
                for name in sorted(follow, key=place.__getitem__):
                    layer.setdefault(frozenset((*names, name)), (*names, name))

    def draw(self, tools: tuple[str, ...], counts: ToolCounts, rng: random.Random) -> tuple[str, ...]:
        """Sample a combination; the rarer among the accepted, the likelier."""
        known = self.combinations(tools)
        if not known:
            return ()
        # All items between two snapshots ask with the same counts: the weights are made once for them.
        last = self._weights
        if last is None or last[0] is not counts or last[1] != tools:
            sizes = Counter(map(len, known))
            # Sizes share evenly at first: there are many more combinations of four than of one.
            weights = [1 / sizes[len(names)] / (1 + counts.seen(names)) ** 2 for names in known]
            last = self._weights = (counts, tools, list(accumulate(weights)))
        return rng.choices(known, cum_weights=last[2])[0]


def plan_scenario(seed: Trajectory, counts: ToolCounts, number: int, graph: CallGraph | None = None) -> Scenario:
    """Plan the item of this number. `graph`: of all the pack's seeds (default: of this one alone)."""
    rng = random.Random(f"scenario {number}")
    persona = rng.choice(read_lines(PERSONAS))
    twist = "" if rng.random() < PLAIN_SHARE else rng.choice(read_lines(TWISTS))
    tools = (graph or CallGraph([seed])).draw(tuple(tool.name for tool in seed.tools), counts, rng)
    return Scenario(persona, tools, twist)


def render_scenario(scenario: Scenario) -> str:
    """The hint for a prompt."""
    parts = [f"The user {scenario.persona}."]
    if scenario.tools:
        parts.append(f"Calls, in whatever order fits: {', '.join(scenario.tools)}.")
    return " ".join([*parts, scenario.twist]).strip()


def hash_scenario_files() -> dict[str, str]:
    """Return the files that plans are sampled from, with their hashes."""
    return {name: search_path.file_hash(search_path.find_resource("prompts", name)) for name in (PERSONAS, TWISTS)}


def to_singular(name: str) -> str:
    return name[:-1] if name.endswith("s") else name


def find_field_names(text: str) -> set[str]:
    """Return every field name in a result, at any depth."""
    try:
        stack: list[Any] = [orjson.loads(text)]
    except orjson.JSONDecodeError:
        return set()
    found: set[str] = set()
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            found |= value.keys()
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return found
