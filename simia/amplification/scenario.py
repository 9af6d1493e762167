"""Plan the scenario of an item: a manner of speaking, tools that are rare among the accepted trajectories, a turn of events.

Without one, a model that sees the same exemplar many times writes the same story. A plan samples from combinations
of tools that could occur (the graph of calls that the seeds make one after another, widened by tools whose results hold
what another takes as an identifier), rare ones first. `plan_scenario` is pure: it depends on the item's number and on counts
that the coordinator takes at fixed places, so a resumed run plans what the first one planned.
"""

from __future__ import annotations

import copy
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, pairwise

import orjson

from simia import search_path
from simia.prompts import read_lines
from simia.quality.grounding import infer_identifiers
from simia.schema_cost import find_objects
from simia.trajectory import Trajectory

MOST_TOOLS = 4
MOST_A_SIZE = 1500  # combinations of one size that are considered; enough for every set of some twenty tools
STRETCH = 1000  # items that are planned from the same counts
PLAIN_SHARE = 1 / 3  # share of the items without a twist
PERSONAS, TWISTS = "scenario/personas.txt", "scenario/twists.txt"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`tools` in an order in which they could be called; `twist` may be empty."""

    persona: str
    tools: tuple[str, ...]
    twist: str


@dataclass(slots=True)
class ToolCounts:
    """How often the accepted trajectories used a tool, two tools together, and exactly these tools (in name order)."""

    tools: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    sets: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, tools: Sequence[str]) -> None:
        """Count the tools that one accepted trajectory called."""
        names = tuple(sorted(set(tools)))
        self.tools.update(names)
        self.pairs.update(combinations(names, 2))
        if 0 < len(names) <= MOST_TOOLS:  # larger ones are never planned, and there could be very many
            self.sets[names] += 1

    def seen(self, tools: Sequence[str]) -> float:
        """Measure how well a combination is covered: by its rarest pair, since two pairs of three do not make the three."""
        names = tuple(sorted(set(tools)))
        if len(names) == 1:  # within larger ones nearly every tool is common; alone it may still be rare
            return self.sets[names] + self.tools[names[0]] / MOST_TOOLS
        rarest = min(self.pairs[pair] for pair in combinations(names, 2))
        return max(self.sets[names], rarest / 2)


class PlanCounts:
    """Counts of accepted tools, taken at fixed places, so that a resumed run plans the same items.

    Items come in stretches of `STRETCH`. Each is planned from what was accepted up to the end of the stretch before the previous one. A
    stretch is longer than what is in flight, so this is nearly always known in time.
    """

    def __init__(self, *, used: bool) -> None:
        """`used`: whether items are planned from the counts at all."""
        self._used = used
        self._latest = ToolCounts()
        self._taken = [ToolCounts(), ToolCounts()]  # by stretch

    def note(self, tools: Sequence[str]) -> None:
        if self._used:
            self._latest.add(tools)

    def decided(self, ord_: int) -> None:
        if self._used and (ord_ + 1) % STRETCH == 0:
            self._taken.append(copy.deepcopy(self._latest))

    def is_known(self, ord_: int) -> bool:
        """Check whether enough is decided for the counts of an item."""
        return not self._used or ord_ // STRETCH < len(self._taken)

    def counts(self, ord_: int) -> ToolCounts:
        """Return the counts for an item; the latest ones while its own are not known."""
        return self._taken[min(ord_ // STRETCH, len(self._taken) - 1)]


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
        if tools not in self._combinations:
            self._combinations[tools] = list(self._grown(tools))
        return self._combinations[tools]

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
    """Write the hint for a prompt."""
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
        return {name for node in find_objects(orjson.loads(text)) for name in node}
    except orjson.JSONDecodeError:
        return set()
