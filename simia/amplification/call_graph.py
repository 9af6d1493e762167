"""Learn from the seeds of one list of tools: which calls come before a call, which are made together, which the user confirms.

A planned conversation takes its prerequisites (authentication, look-ups) from here, so simia need not know any tool by name.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import orjson

from simia.json_values import iterate_keys
from simia.quality.grounding import infer_identifiers
from simia.quality.tool_effects import Effect, find_effect
from simia.trajectory import Message, Trajectory

RARE = 0.02  # a way to a tool that a smaller share of its seeds takes is ignored as a mistake
MOST_WAYS = 8
MOSTLY = 0.5
ENOUGH = 5  # seeds that a tool must begin with before it counts as an alternative to another first tool
FIRST_SHARE, MOST_FIRST = 0.9, 3  # nearly all seeds begin with one of a few tools: these identify the user

Way = tuple[str, ...]


@dataclass(slots=True)
class ToolUse:
    """How the seeds use one tool. `ways`: way (the distinct calls before the tool's first call) → number of seeds."""

    ways: Counter[Way] = field(default_factory=Counter)
    calls: int = 0
    confirmed: int = 0
    last: int = 0
    again: bool = False


class CallGraph:
    """The calls of seeds that have the same tools. Pure: it depends on the seeds alone."""

    def __init__(self, seeds: Sequence[Trajectory]) -> None:
        self._seeds = seeds
        self.tools = {tool.name: tool for seed in seeds for tool in seed.tools}
        self.effects: dict[str, Effect] = {name: find_effect(tool) for name, tool in self.tools.items()}
        self.uses: dict[str, ToolUse] = defaultdict(ToolUse)
        self.lengths: Counter[int] = Counter()
        """Seeds by their number of calls."""
        self.together: set[tuple[str, str]] = set()
        """Pairs of look-ups that a seed makes one after the other in one turn."""
        self.user_turns = 0
        """Most user turns of a seed."""
        self.most_changes = 1
        """Most tools that change something in one seed, at least 1: what one message of a user may ask for."""
        self.several: list[tuple[tuple[Way, str], ...]] = []
        """Of each seed with several changes: the calls before each change, and the change."""
        firsts: Counter[str] = Counter()
        asked = calling = 0
        self._called: set[frozenset[str]] = set()
        for seed in seeds:
            names = [call.name for _, _, call in seed.calls() if call.name in self.tools]
            users = [i for i, message in enumerate(seed.messages) if message.role == "user"]
            self.user_turns = max(self.user_turns, len(users))
            if not names:
                continue
            calling += 1
            firsts[names[0]] += 1
            self._called.add(frozenset(names))
            self.lengths[len(names)] += 1
            changes = {name for name in names if self.effects[name] == "change"}
            self.most_changes = max(self.most_changes, len(changes))
            if len(goals := self._split_goals(names)) > 1:
                self.several.append(goals)
            self.uses[names[-1]].last += 1
            first_turn = next(i for i, message in enumerate(seed.messages) if message.calls)
            asked += len(users) > 1 and users[1] < first_turn
            self._read_calls(seed)
        self.instead = self._find_alternatives(frozenset(firsts))
        """First tool of seeds → other first tools that no seed calls together with it, such as another way to identify the user."""
        common = [name for name, _ in firsts.most_common(MOST_FIRST)]
        covered = sum(firsts[name] for name in common)
        self.identifying = tuple(common) if calling >= 5 and covered >= FIRST_SHARE * calling else ()
        self.asks_first = calling > 0 and asked > MOSTLY * calling
        self._ways: dict[str, list[Way]] = {}
        self._weights: dict[tuple[str, int], list[float]] = {}
        self._gaps: dict[tuple[str, float], float] = {}
        self.final = frozenset(name for name in self.tools if self._is_final(name))
        """Tools that the seeds end with, such as a transfer to a person."""
        self.confirmed = frozenset(name for name in self.tools if self._is_confirmed(name))
        """Tools that the seeds mostly call right after the user has answered the assistant."""
        self._providers: dict[str, list[str]] | None = None

    def _find_alternatives(self, firsts: frozenset[str]) -> dict[str, frozenset[str]]:
        first = {name for name in firsts if self.uses[name].ways.get((), 0) == self.uses[name].ways.total() >= ENOUGH}
        besides = {name: {other for way in self._called if name in way for other in way} for name in first}
        return {name: frozenset(first - besides[name]) for name in first if first - besides[name]}

    def _split_goals(self, names: Sequence[str]) -> tuple[tuple[Way, str], ...]:
        """Split a seed's calls after each change. What follows the last change belongs to no goal."""
        ends = [at for at, name in enumerate(names) if self.effects[name] == "change"]
        starts = [0, *(end + 1 for end in ends)]
        return tuple((tuple(names[start:end]), names[end]) for start, end in zip(starts, ends, strict=False))

    def _read_calls(self, seed: Trajectory) -> None:
        before: dict[str, None] = {}
        met: set[str] = set()
        for i, message in enumerate(seed.messages):
            names = [call.name for call in message.calls if call.name in self.tools]
            for name in names:
                use = self.uses[name]
                use.calls += 1
                use.confirmed += is_confirmed(seed.messages, i)
                if name in met:
                    use.again = True
                else:
                    use.ways[tuple(each for each in before if each != name)] += 1
                    met.add(name)
            # A tool whose effect is not known counts as a look-up where a seed calls it in one turn with others.
            if len(names) > 1 and all(self.effects[name] != "change" for name in names):
                self.together.update(pairwise(names))
            before.update(dict.fromkeys(names))

    def list_ways(self, tool: str) -> list[Way]:
        """List the sequences of calls that may come before a tool, as seeds have them: the shortest, then the most frequent, up to `MOST_WAYS`."""
        if tool not in self._ways:
            use = self.uses.get(tool)
            self._ways[tool] = self._choose_ways(use.ways) if use and use.ways else self._guess_ways(tool)
        return self._ways[tool]

    def sample_way(self, rng: random.Random, tool: str, calls: int) -> Way:
        """Sample the calls before a tool. Ways with about `calls` calls, the tool included, are likelier."""
        ways = self.list_ways(tool)
        if len(ways) == 1:
            return ways[0]
        if (tool, calls) not in self._weights:
            self._weights[tool, calls] = list(accumulate(0.3 ** abs(len(way) + 1 - calls) for way in ways))
        weights = self._weights[tool, calls]
        return ways[bisect(weights, rng.random() * weights[-1], 0, len(ways) - 1)]

    def measure_gap(self, tool: str, calls: float) -> float:
        """Return the smallest difference between `calls` and the number of calls of a way to a tool, the tool included."""
        if (tool, calls) not in self._gaps:
            self._gaps[tool, calls] = min(abs(len(way) + 1 - calls) for way in self.list_ways(tool))
        return self._gaps[tool, calls]

    def is_own_wish(self, tool: str) -> bool:
        """Return whether a user may ask for a tool's call alone; False if seeds make it only on the way to another call."""
        return tool not in self.uses or self.uses[tool].last > 0 or self.effects[tool] == "change"

    def _choose_ways(self, ways: Counter[Way]) -> list[Way]:
        least = RARE * ways.total()
        kept = [way for way, count in ways.items() if count >= least] or list(ways)
        always = frozenset.intersection(*map(frozenset, kept))
        found: Counter[Way] = Counter()
        for way in kept:  # without the changes of earlier wishes, unless every seed makes them
            rest = tuple(name for name in way if name in always or self.effects[name] != "change")
            if self.user_turns == 1 and rest != way and any(set(other) < set(rest) for other in kept):
                continue  # the other look-ups were made for the earlier wish
            found[rest] += ways[way]
        shortest = {len(min(found, key=len))}
        chosen = sorted(found, key=lambda way: (len(way) not in shortest, -found[way], way))[:MOST_WAYS]
        return sorted(chosen, key=lambda way: (len(way), way))

    def _guess_ways(self, tool: str) -> list[Way]:
        """Guess the ways to a tool that no seed calls: those of the change with the most shared arguments; else a look-up whose results hold
        its identifiers; else the identification of the user."""
        if self.effects[tool] == "change" and (like := self._find_like(tool)):
            return [way for way in self.list_ways(like) if tool not in way] or [()]
        if self._providers is None:
            self._providers = self._find_providers()
        givers = [name for name in self._providers.get(tool, []) if name != tool]
        ways = [(*self.list_ways(name)[0], name) for name in givers if name in self.uses]
        if not ways and self.identifying and tool not in self.identifying:
            ways = [(name,) for name in self.identifying]
        return sorted({way for way in ways if tool not in way}, key=lambda way: (len(way), way))[:MOST_WAYS] or [()]

    def _find_like(self, tool: str) -> str:
        """Return the change of the seeds that shares the most required arguments with a tool; empty if none does."""
        own = set(self.tools[tool].parameters.get("required") or ())
        shared = {
            name: len(own & set(self.tools[name].parameters.get("required") or ()))
            for name, use in self.uses.items()
            if use.ways and self.effects[name] == "change"
        }
        best = max(sorted(shared), key=shared.__getitem__, default="")
        return best if best and shared[best] else ""

    def _find_providers(self) -> dict[str, list[str]]:
        outputs: dict[str, set[str]] = defaultdict(set)
        for seed in self._seeds:
            by_id = {call.id: call.name for _, _, call in seed.calls()}
            for message in seed.messages:
                if message.role == "tool" and message.call_id in by_id:
                    outputs[by_id[message.call_id]] |= {to_singular(name) for name in find_field_names(message.text)}
        paths = infer_identifiers(list(self.tools.values()), self._seeds).paths
        needed = {name: {to_singular(path[-1]) for path in found} for name, found in paths.items()}
        return {
            name: sorted(one for one, gives in outputs.items() if gives & takes and self.effects.get(one) == "look_up")
            for name, takes in needed.items()
        }

    def _is_confirmed(self, tool: str) -> bool:
        use = self.uses.get(tool)
        if use and use.calls:
            return use.confirmed > MOSTLY * use.calls
        if self.effects.get(tool) != "change":
            return False
        changes = [each for name, each in self.uses.items() if self.effects[name] == "change"]
        return sum(each.confirmed for each in changes) > MOSTLY * sum(each.calls for each in changes) > 0

    def _is_final(self, tool: str) -> bool:
        use = self.uses.get(tool)
        return bool(use and self.effects[tool] == "" and use.calls == use.last and len(self.tools) > 1)


def is_confirmed(messages: Sequence[Message], at: int) -> bool:
    """Return whether an assistant's text and a user's answer stand right before a call."""
    return (
        at > 2
        and messages[at - 1].role == "user"
        and messages[at - 2].role == "assistant"
        and bool(messages[at - 2].text)
    )


def to_singular(name: str) -> str:
    return name[:-1] if name.endswith("s") else name


def find_field_names(text: str) -> set[str]:
    """Return every field name in a result, at any depth."""
    try:
        return set(iterate_keys(orjson.loads(text)))
    except orjson.JSONDecodeError:
        return set()
