"""Pair new rows whose keys a tool made up: the agent's rows with those of the reference.

Rows with the same made-up key, in one table or in several, are one thing. Things are paired by their values and by what mentions them,
over `ROUNDS` rounds of refinement. Ties are decided one by one, and things without an exact match are paired at the least cost. All work
is bounded; beyond the bounds, things are paired in order. A pairing is only a guess of names: the comparison afterwards decides. No two
things get the same name, so a wrong guess can lose a reward but never earn one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simia.envs.rewards.call_matching import assign_pairs, match_calls
from simia.envs.rewards.compare_values import find_policy, find_value_differences
from simia.reward_spec import Match
from simia.state import Change
from simia.trajectory import Trajectory, digest

ROUNDS = 3  # rounds in which equal rows are told apart by their neighbours, those by theirs, and so on
# The agent's calls determine the number of rows and of mentions, and the pairing blocks the event loop, so the work is limited.
WORK = (
    1_000_000  # values read while ties are decided one by one; beyond that all are decided in the order of their keys
)
MOST_READ = 500_000  # values of all rows and what mentions them; with more, mentions are ignored
MOST_COMPARED = 2_000_000  # values of rows compared with each other one by one; beyond that they are taken in order
MOST_COSTED = 100  # things on one side for the least-cost pairing (cubic); more are taken in order
# A column name or a date is never a made-up key: a wrong one is an error of the agent.
FIELD = re.compile(r"[a-z]+([_ -]?[a-z]+)*|[a-z]+([A-Z][a-z]+)+|[A-Z][a-z]+([A-Z][a-z]+)*|_*")
WORD = re.compile(r"[^\W_]+")
TIME = re.compile(r"\d{4}-\d{2}(-\d{2}.*)?|\d{1,2}:\d{2}.*")
Path = tuple[str, ...]
Policies = Mapping[str, Match]


@dataclass(slots=True)
class NewRow:
    """A new row: its table, its key, its path (by key, or by index in a list), its value."""

    table: Path
    key: str
    path: Path
    value: Any


def pair_rows(own: list[Change], expected: list[Change], trajectory: Trajectory, policies: Policies) -> dict[str, str]:
    """Return the agent's made-up key → the reference's, one to one."""
    ours, theirs = list(find_new_rows(own)), list(find_new_rows(expected))
    made_up = find_tool_made_keys({row.key for row in ours if could_be_made_up(row.key)}, trajectory)
    given = {row.key for row in ours} - made_up
    ours = [row for row in ours if row.key in made_up]
    theirs = [row for row in theirs if row.key not in given and could_be_made_up(row.key)]
    if not ours or not theirs:
        return {}
    return Pairing(MentionGraph(ours, own, policies), MentionGraph(theirs, expected, policies), policies).run()


def find_new_rows(changes: Iterable[Change]) -> Iterator[NewRow]:
    """Yield the objects under a new key, and those with an `id` that were appended to a list."""
    for change in changes:
        path = tuple(change["path"])
        if isinstance(change.get("new"), dict) and "old" not in change and path:
            yield NewRow(path[:-1], path[-1], path, change["new"])
        for place, value in find_appended(change):
            if isinstance(value, dict) and isinstance(value.get("id"), str):
                yield NewRow(path, value["id"], place, value)


def find_appended(change: Change) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of each element appended to a list; nothing if the list changed elsewhere too."""
    old, new = change.get("old"), change.get("new")
    if isinstance(old, list) and isinstance(new, list) and len(new) > len(old) and new[: len(old)] == old:
        for i in range(len(old), len(new)):
            yield (*change["path"], str(i)), new[i]


def could_be_made_up(key: str) -> bool:
    return not FIELD.fullmatch(key) and not TIME.fullmatch(key)


def find_tool_made_keys(keys: set[str], trajectory: Trajectory) -> set[str]:
    """Return the keys that tools made up. The agent chose a key if, before a result shows it, a call names it or has all of its words in
    the values of its arguments: a tool may compose the key `203:2025-05-16` of a room and a day, or write it in capitals."""
    open_keys, found = set(keys), set[str]()
    words = {key: find_key_words(key) for key in keys}
    for message in trajectory.messages:
        for call in message.calls:
            arguments = call.arguments or {}
            text, given = join_plain_values(arguments), find_key_words(join_plain_values(list(arguments.values())))
            open_keys -= {key for key in open_keys if mentions_key(text, key) or (words[key] and words[key] <= given)}
        if message.role == "tool":
            shown = {key for key in open_keys if mentions_key(message.text, key)}
            found |= shown
            open_keys -= shown
    return found | open_keys


def join_plain_values(value: Any) -> str:
    """Join the keys and plain values of a JSON value, each on a line."""
    found, waiting = list[str](), [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list):
            waiting += each
        else:
            found.append(each if isinstance(each, str) else json.dumps(each))
    return "\n".join(found)


def find_key_words(text: str) -> set[str]:
    """The runs of letters and digits of a text; case is ignored."""
    return set(WORD.findall(text.casefold()))


def mentions_key(text: str, key: str) -> bool:
    return key in text and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) is not None


class MentionGraph:
    """The new things of one side (the agent's or the reference's), and what mentions them."""

    def __init__(self, rows: list[NewRow], changes: list[Change], policies: Policies) -> None:
        self.things: dict[str, list[NewRow]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.path):
            self.things[row.key].append(row)
        self.decided: dict[str, str] = {}
        self.near: dict[str, set[str]] = defaultdict(set)
        self._held = {
            key: [(row.table, strip_uncompared(row.value, (*row.table, "*"), policies)) for row in held]
            for key, held in self.things.items()
        }
        self._uses: dict[str, list[tuple[Path, Any]]] = defaultdict(list)
        self.sizes = {key: sum(measure_value(row.value) for row in held) for key, held in self.things.items()}
        self.weight = sum(self.sizes.values())
        keys, places = set(self.things), {row.path: row.key for row in rows}
        for path, value in split_changes(changes):
            named, whose = find_mentioned_keys([list(path), value], keys), places.get(path)
            named.discard(whose or "")
            if not named:
                continue
            self.weight += len(named) * measure_value(value)
            use = (path if whose is None else (*path[:-1], whose), strip_uncompared(value, path, policies))
            for key in named:
                self._uses[key].append(use)
                if whose is not None:
                    self.near[key].add(whose)
                    self.near[whose].add(key)

    def forget_mentions(self) -> None:
        """Ignore mentions, so that things are compared by their values only."""
        self._uses.clear()
        self.near.clear()
        self.weight = sum(self.sizes.values())

    def involved(self, key: str) -> bool:
        """Whether a thing is mentioned, or is a neighbour of an undecided thing."""
        return bool(self._uses[key]) or bool(self.near[key] - self.decided.keys())

    def signatures(self) -> dict[str, str]:
        """Return a digest of each thing that does not depend on made-up keys: of its values, and of what mentions it."""
        names = {key: self.decided.get(key, "new") for key in self.things}
        for _ in range(ROUNDS):
            fresh, seen = dict(self.decided), dict(names)
            for key, held in self._held.items():
                if key not in fresh:
                    seen[key] = "self"
                    facts = sorted(digest([table, replace_keys(value, seen)]) for table, value in held)
                    around = sorted(
                        digest([[seen.get(step, step) for step in path], replace_keys(value, seen)])
                        for path, value in self._uses[key]
                    )
                    seen[key] = names[key]
                    fresh[key] = digest([facts, around])
            names = fresh
        return names


class Pairing:
    """The search for pairs. `names`: the agent's key → the reference's, for the pairs decided so far."""

    def __init__(self, left: MentionGraph, right: MentionGraph, policies: Policies) -> None:
        self.left, self.right, self.policies = left, right, policies
        self.names: dict[str, str] = {}
        self._hidden = dict.fromkeys((*left.things, *right.things), "")
        self._looks: dict[tuple[bool, str], str] = {}
        self._compared = 0  # values of rows compared one by one
        if left.weight + right.weight > MOST_READ:
            left.forget_mentions()
            right.forget_mentions()

    def run(self) -> dict[str, str]:
        for spent in itertools.count(0, self.left.weight + self.right.weight):
            one, two = self.left.signatures(), self.right.signatures()
            ties: list[list[tuple[str, str]]] = []
            for ours, theirs in group_by_signature(one, two, self.left.things, self.right.things, self):
                pairs = self.pairs(ours, theirs)
                if len(ours) == len(theirs) == 1 or not any(self.left.involved(key) for key, _ in pairs):
                    for ours_key, theirs_key in pairs:
                        self.decide(ours_key, theirs_key)
                elif pairs:
                    ties.append(pairs)
            if not ties:
                break
            # A decision may determine others, so follow it to the neighbours before the next one.
            rushed = spent > WORK
            for ours_key, theirs_key in itertools.chain(*ties) if rushed else ties[0][:1]:
                self.follow(ours_key, theirs_key, one, two, rushed)
            if rushed:
                break
        self.leftovers()
        return self.names

    def decide(self, ours: str, theirs: str) -> bool:
        if ours in self.left.decided or theirs in self.right.decided:
            return False
        self.left.decided[ours] = self.right.decided[theirs] = f"pair {len(self.names)}"
        self.names[ours] = theirs
        return True

    def follow(self, ours: str, theirs: str, one: dict[str, str], two: dict[str, str], rushed: bool) -> None:
        """Decide a pair, then the pairs of their neighbours that have the same signature and no rival neighbour with it."""
        stack = [(ours, theirs)]
        while stack:
            ours, theirs = stack.pop()
            if not self.decide(ours, theirs):
                continue
            for a, b in group_by_signature(one, two, self.left.near[ours], self.right.near[theirs], self):
                if rushed or len(a) == len(b) == 1:
                    stack.extend(self.pairs(a, b))

    def pairs(self, ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
        """Pair things with the same signature; among these, values that are compared by their words decide."""
        looks: dict[str, list[str]] = defaultdict(list)
        for key in reversed(theirs):
            looks[self.look(key, self.right)].append(key)
        found: list[tuple[str, str]] = []
        rest: list[str] = []
        for key in ours:
            same = looks[self.look(key, self.left)]
            if same:
                found.append((key, same.pop()))
            else:
                rest.append(key)
        others = [key for same in looks.values() for key in same]
        more = self.matched(rest, others)
        if len(more) < min(len(rest), len(others)) and max(len(ours), len(theirs)) <= MOST_COSTED:
            # Texts can be similar without being equal, so the best overall matching may have to split an equal pair.
            return self.matched(ours, theirs)
        return found + more

    def matched(self, ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
        pairs = match_calls(ours, theirs, lambda a, b: self._compared > MOST_COMPARED or not self.cost(a, b, 1))
        return [(ours[i], theirs[j]) for i, j in pairs.items()]

    def look(self, key: str, graph: MentionGraph) -> str:
        known = (graph is self.left, key)
        if known not in self._looks:
            self._looks[known] = digest([replace_keys(row.value, self._hidden) for row in graph.things[key]])
        return self._looks[known]

    def cost(self, ours: str, theirs: str, most: int = 50) -> int:
        """Count the fields in which two things differ, up to `most`. Undecided keys are ignored."""
        self._compared += 20 + self.left.sizes[ours] + self.right.sizes[theirs]
        known = {**self._hidden, **self.names} if most > 1 else self._hidden
        target = {**self._hidden, **{key: key for key in self.names.values()}} if most > 1 else self._hidden
        found = (
            line
            for a, b in zip(self.left.things[ours], self.right.things[theirs], strict=False)
            for line in find_value_differences(
                replace_keys(a.value, known), replace_keys(b.value, target), (*a.table, "*"), self.policies
            )
        )
        return sum(1 for _ in itertools.islice(found, most))

    def leftovers(self) -> None:
        """Pair the remaining things at the least cost within their tables, so that differences are reported by field."""
        free: dict[tuple[Path, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, graph in enumerate((self.left, self.right)):
            for key, rows in graph.things.items():
                if key not in graph.decided:
                    free[tuple(row.table for row in rows)][side].append(key)
        for ours, theirs in free.values():
            all_sizes = len(theirs) * sum(self.left.sizes[key] for key in ours)
            all_sizes += len(ours) * sum(self.right.sizes[key] for key in theirs)
            names = (
                len(ours) * len(theirs) * len(self._hidden) // 10
            )  # each comparison builds a dictionary of the names
            if max(len(ours), len(theirs)) > MOST_COSTED or self._compared + all_sizes + names > MOST_COMPARED:
                chosen = list(zip(range(len(ours)), range(len(theirs)), strict=False))
            else:
                chosen = assign_pairs([[self.cost(a, b) for b in theirs] for a in ours])
            for i, j in chosen:
                self.decide(ours[i], theirs[j])


def group_by_signature(
    one: dict[str, str], two: dict[str, str], ours: Iterable[str], theirs: Iterable[str], pairing: Pairing
) -> Iterable[tuple[list[str], list[str]]]:
    """Group the undecided things of both sides by signature; only groups with things of both sides are returned."""
    found: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    sides = ((one, ours, pairing.left.decided), (two, theirs, pairing.right.decided))
    for side, (signatures, keys, decided) in enumerate(sides):
        for key in sorted(keys):
            if key not in decided:
                found[signatures[key]][side].append(key)
    return [both for both in found.values() if all(both)]


def split_changes(changes: Iterable[Change]) -> Iterator[tuple[Path, Any]]:
    """Yield path and new value of each change; for a list that only grew, of each new element."""
    for change in changes:
        added = list(find_appended(change))
        yield from added or [(tuple(change["path"]), change.get("new"))]


def measure_value(value: Any) -> int:
    """Count the values in a JSON value; a long text counts as several."""
    size, level = 0, [value]
    while level:
        size += sum(1 + len(each) // 16 if isinstance(each, str) else 1 for each in level)
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return size


def find_mentioned_keys(value: Any, keys: set[str]) -> set[str]:
    if isinstance(value, str):
        return {value} & keys
    if isinstance(value, dict):
        return set().union(*(find_mentioned_keys(k, keys) | find_mentioned_keys(v, keys) for k, v in value.items()))
    if isinstance(value, list):
        return set().union(*(find_mentioned_keys(each, keys) for each in value))
    return set()


def strip_uncompared(value: Any, path: Path, policies: Policies) -> Any:
    """Return the value without the parts that are not compared exactly, and with numbers in one form."""
    if find_policy(path, policies) != "exact":
        return None
    if isinstance(value, dict):
        below = ((k, (*path, str(k))) for k in value)
        return {k: strip_uncompared(value[k], at, policies) for k, at in below if find_policy(at, policies) == "exact"}
    if isinstance(value, list):
        return [strip_uncompared(v, (*path, str(i)), policies) for i, v in enumerate(value)]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
        return round(float(value), 9) + 0.0  # no negative zero
    return value


def replace_keys(value: Any, names: Mapping[str, str]) -> Any:
    """Replace whole strings by name, in keys, values and lists."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(k, k): replace_keys(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [replace_keys(each, names) for each in value]
    return value
