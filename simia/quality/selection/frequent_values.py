"""Favourite values: how often an argument has the same value. A model that amplifies likes some values better than others, and what is
trained on the result may learn the favourite in place of the request: of 35 amplified holds 16 were for seven days, one in five of the seeds'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from simia.trajectory import Trajectory

KEPT = 256  # distinct values of an argument; identifiers have more, and none of them is a favourite
LISTED = 5
LONGEST = 60  # characters of a value


class FrequentValues:
    """Feed it one trajectory at a time."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], Counter[str | float | bool]] = {}
        self._totals: Counter[tuple[str, str]] = Counter()

    def add(self, t: Trajectory) -> None:
        for message in t.messages:
            for call in message.calls:
                for name, value in (call.arguments or {}).items():
                    if isinstance(value, str | int | float) and len(str(value)) <= LONGEST:
                        self._count((call.name, name), value)

    def _count(self, place: tuple[str, str], value: str | float | bool) -> None:
        known = self._values.setdefault(place, Counter())
        self._totals[place] += 1
        if value in known or len(known) < KEPT:
            known[value] += 1

    def finish(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return tool → argument → {"of": how many values, "most": [[value, count], …]}."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for (tool, argument), known in sorted(self._values.items()):
            most = [[value, count] for value, count in known.most_common(LISTED)]
            found.setdefault(tool, {})[argument] = {"of": self._totals[tool, argument], "most": most}
        return found


def find_grown_values(
    new: Mapping[str, Any], old: Mapping[str, Any], *, least: int = 20, by: float = 0.2
) -> list[dict[str, Any]]:
    """List the arguments whose most frequent value grew by at least the share `by`, the largest growth first.
    `new`, `old`: what `finish` gave; an argument with fewer values than `least` is left out, and one that had no value before."""
    found = []
    for tool, arguments in new.items():
        for argument, told in arguments.items():
            before = old.get(tool, {}).get(argument)
            if before is None or told["of"] < least or len(told["most"]) < 2:
                continue
            value, count = told["most"][0]
            share, was = count / told["of"], dict(map(tuple, before["most"])).get(value, 0) / before["of"]
            if share - was >= by:
                found.append({"tool": tool, "argument": argument, "value": value, "share": share, "was": was})
    return sorted(found, key=lambda row: row["was"] - row["share"])
