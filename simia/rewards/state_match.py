"""The final state against the one that the reference leaves, both as changes from the same start (ScaleEnv §3.4).

Rows that exist are compared by their key. A row that is new on both sides may bear another key, where the key is one that
a tool made up: such rows are paired by what they hold and by which rows mention them, and the agent's keys are then read
as the reference's wherever they occur, keys and references alike. A key that the agent itself gave (it stands in the
arguments of a call before any result shows it) is meant, and never renamed. What the reference did not change must not
change.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from simia.rewards.matching import match
from simia.rewards.part import Judged
from simia.rewards.values import ABSENT, differences, policy_of
from simia.state import Change
from simia.task import Match, StateSpec
from simia.trajectory import Trajectory, digest

ROUNDS = 3  # how far a row's neighbours' neighbours tell equal rows apart
WORK = (
    20_000  # rows looked at while ties are decided one by one; beyond that they are paired in the order of their keys
)
SHOWN = 4
Path = tuple[str, ...]
Policies = Mapping[str, Match]


@dataclass(slots=True)
class Row:
    """A new row of a table: where, its key, what it holds."""

    table: Path
    key: str
    value: Any

    @property
    def path(self) -> Path:
        return (*self.table, self.key)


def judge(trajectory: Trajectory, spec: StateSpec, policies: Policies) -> Judged:
    evidence = trajectory.evidence or {}
    if evidence.get("changes") is None:
        return Judged(None, "no evidence of the final state")
    if evidence.get("expected") is None:
        return Judged(None, "no reference to compare the state with")
    own, expected = evidence["changes"], evidence["expected"]
    own = renamed(own, pairing(own, expected, trajectory, policies))
    have, want = leaves(own), leaves(expected)
    wrong: list[str] = []
    right = total = 0
    for path in [*want, *(path for path in have if path not in want)]:
        if policy_of(path, policies) == "exempt":
            continue
        total += 1
        told = list(compared(path, have, want, policies))
        wrong += told
        right += not told
    if not wrong:
        return Judged(1.0, f"the state is as expected ({total} changes)")
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return Judged(right / total if spec.partial else 0.0, "; ".join(wrong[:SHOWN]) + more)


def leaves(changes: Iterable[Change]) -> dict[Path, Any]:
    """Path → new value, ABSENT where something goes."""
    return {tuple(change["path"]): change.get("new", ABSENT) for change in changes}


def compared(path: Path, have: dict[Path, Any], want: dict[Path, Any], policies: Policies) -> Iterable[str]:
    name = ".".join(path)
    if path not in have:
        return [f"{name} is not changed as expected"]
    if path not in want:
        whole = next(iter(differences(have[path], ABSENT, path, policies)), None)
        return [f"{name} changes, which was not expected"] if whole else []
    return differences(have[path], want[path], path, policies)


# -- rows whose key was made up ---------------------------------------------------------------------------------------


def pairing(own: list[Change], expected: list[Change], trajectory: Trajectory, policies: Policies) -> dict[str, str]:
    """The agent's made-up keys → the reference's."""
    mine, theirs = new_rows(own), new_rows(expected)
    made_up = given_by_tools({row.key for row in mine}, trajectory)
    mine = [row for row in mine if row.key in made_up]
    natural = {row.path for row in new_rows(own)} - {row.path for row in mine}
    theirs = [row for row in theirs if row.path not in natural]
    if not mine or not theirs:
        return {}
    if [r.path for r in mine] == [r.path for r in theirs] and leaves(own) == leaves(expected):
        return {}
    hidden = dict.fromkeys((row.key for row in (*mine, *theirs)), "")
    left, right = Graph(mine, own, policies), Graph(theirs, expected, policies)
    names: dict[str, str] = {}
    for spent in itertools.count(0, len(mine) + len(theirs)):
        tied: tuple[str, str] | None = None
        for ours, others in buckets(left, right):
            # Equal in all that must be equal; what is compared by its words decides who is whose.
            found = match(ours, others, lambda a, b: alike(a, b, hidden, policies))
            if len(found) < min(len(ours), len(others)):
                found = dict(enumerate(range(min(len(ours), len(others)))))
            pairs = [(ours[i].key, others[j].key) for i, j in found.items()]
            if len(ours) == len(others) == 1 or spent > WORK or not any(left.involved(key) for key, _ in pairs):
                names |= dict(pairs)
            elif tied is None and pairs:
                tied = pairs[0]
        if tied is None:
            break
        # Rows that nothing tells apart and that are bound to others: one pair is decided, which may decide those others.
        names[tied[0]] = tied[1]
        for graph, decided in (
            (left, {a: f"pair {i}" for i, a in enumerate(names)}),
            (right, {b: f"pair {i}" for i, b in enumerate(names.values())}),
        ):
            graph.decided = decided
    return leftovers(mine, theirs, names)


def buckets(left: Graph, right: Graph) -> Iterable[tuple[list[Row], list[Row]]]:
    """Rows of both sides that look the same and are not decided yet."""
    found: dict[str, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, graph in enumerate((left, right)):
        signatures = graph.signatures()
        for row in sorted(graph.rows, key=lambda row: row.path):
            if row.key not in graph.decided:
                found[signatures[row.key]][side].append(row)
    return found.values()


def alike(a: Row, b: Row, hidden: Mapping[str, str], policies: Policies) -> bool:
    """Whether two rows hold the same, made-up keys aside."""
    one, two = replace(a.value, hidden), replace(b.value, hidden)
    return next(iter(differences(one, two, (*a.table, "*"), policies)), None) is None


def leftovers(mine: list[Row], theirs: list[Row], names: dict[str, str]) -> dict[str, str]:
    """Rows that match no other: paired in order within their table, so that what differs can be named field by field."""
    taken = set(names.values())
    free: dict[Path, list[str]] = defaultdict(list)
    for row in theirs:
        if row.key not in taken:
            free[row.table].append(row.key)
    for row in mine:
        if row.key not in names and free[row.table]:
            names[row.key] = free[row.table].pop(0)
    return names


def new_rows(changes: Iterable[Change]) -> list[Row]:
    return [
        Row(tuple(change["path"][:-1]), change["path"][-1], change["new"])
        for change in changes
        if "old" not in change and change["path"]
    ]


def given_by_tools(keys: set[str], trajectory: Trajectory) -> set[str]:
    """The keys that no call named before a result showed them."""
    open_keys, found = set(keys), set[str]()
    for message in trajectory.messages:
        for call in message.calls:
            text = orjson.dumps(call.arguments, option=orjson.OPT_NON_STR_KEYS).decode() if call.arguments else ""
            open_keys -= {key for key in open_keys if mentions(text, key)}
        if message.role == "tool":
            shown = {key for key in open_keys if mentions(message.text, key)}
            found |= shown
            open_keys -= shown
    return found | open_keys


def mentions(text: str, key: str) -> bool:
    return key in text and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) is not None


class Graph:
    """New rows and what mentions them. `decided`: rows whose counterpart is known, each with the name of the pair."""

    def __init__(self, rows: list[Row], changes: list[Change], policies: Policies) -> None:
        self.rows, self.decided = rows, dict[str, str]()
        self._held = {row.key: hard(row.value, (*row.table, "*"), policies) for row in rows}
        self.uses: dict[str, list[tuple[Path, Any]]] = defaultdict(list)
        self._mentions = {row.key: mentioned(row.value, set(self._held)) - {row.key} for row in rows}
        for change in changes:
            path, value = tuple(change["path"]), change.get("new")
            for key in mentioned((path, value), set(self._held)):
                if path[-1] != key or len(path) < 2:
                    self.uses[key].append((path, hard(value, path, policies)))

    def involved(self, key: str) -> bool:
        """Whether it is mentioned, or mentions one that is not decided."""
        return bool(self.uses[key]) or bool(self._mentions[key] - self.decided.keys())

    def signatures(self) -> dict[str, str]:
        """A name for each row that does not depend on made-up keys: what it holds, and what mentions it, some rounds deep."""
        names = {row.key: self.decided.get(row.key, "new") for row in self.rows}
        for _ in range(ROUNDS):
            fresh = dict(self.decided)
            for row in self.rows:
                if row.key in fresh:
                    continue
                around = sorted(
                    digest([[replace(step, names) for step in path], replace(value, names)])
                    for path, value in self.uses[row.key]
                )
                fresh[row.key] = digest([row.table, replace(self._held[row.key], {**names, row.key: "self"}), around])
            names = fresh
        return names


def mentioned(value: Any, keys: set[str]) -> set[str]:
    if isinstance(value, str):
        return {value} & keys
    if isinstance(value, dict):
        return set().union(*(mentioned(k, keys) | mentioned(v, keys) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return set().union(*(mentioned(each, keys) for each in value))
    return set()


def hard(value: Any, path: Path, policies: Policies) -> Any:
    """Without what is not compared, or only by its words."""
    if policy_of(path, policies) != "exact":
        return None
    if isinstance(value, dict):
        return {k: hard(v, (*path, str(k)), policies) for k, v in value.items()}
    if isinstance(value, list):
        return [hard(v, (*path, str(i)), policies) for i, v in enumerate(value)]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def replace(value: Any, names: Mapping[str, str]) -> Any:
    """Keys read as others, as whole strings: in keys, values and lists."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(k, k): replace(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [replace(each, names) for each in value]
    return value


def renamed(changes: list[Change], names: Mapping[str, str]) -> list[Change]:
    """The changes with made-up keys read as the reference's; also within texts that mention them."""
    names = {old: new for old, new in names.items() if old != new}
    if not names:
        return changes
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")(?!\w)")

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda found: names[found[1]], value)
        if isinstance(value, dict):
            return {read(k): read(v) for k, v in value.items()}
        if isinstance(value, list):
            return [read(each) for each in value]
        return value

    return [
        {"path": [read(step) for step in change["path"]], **{k: read(change[k]) for k in ("old", "new") if k in change}}
        for change in changes
    ]
