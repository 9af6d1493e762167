"""How much of what was made is the seeds again: words of the users, order of the tools, identifiers in calls.

A model that is shown a seed and asked for something new tends to hand the seed back with other names. None of these
figures rejects anything; they tell a reviewer where to look.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from simia.amplify.ground import infer, scalars
from simia.amplify.said import decoded
from simia.report.figures import Overlap
from simia.trajectory import Trajectory

GRAM = 5
WORD = re.compile(r"\w+")


class SeedIndex:
    """What the seeds say, ready to be looked up. Grams are kept as hashes: only whether one occurs is asked."""

    def __init__(self, seeds: dict[str, Trajectory]) -> None:
        groups: dict[str, list[Trajectory]] = defaultdict(list)
        for seed in seeds.values():
            groups[seed.pack or ""].append(seed)
        self._grams = {gram for seed in seeds.values() for gram in grams(seed)}
        self._sequences = {seed_id: sequence(seed) for seed_id, seed in seeds.items()}
        self._values = {pack: {value for seed in group for value in values(seed)} for pack, group in groups.items()}
        self._identifiers = {
            pack: infer([tool for seed in group for tool in seed.tools], group) for pack, group in groups.items()
        }
        self._seen: set[int] = set()

    def add(self, t: Trajectory, seed_id: str, total: Overlap) -> None:
        """Count one accepted trajectory."""
        own = set(grams(t))
        known = len(own & self._grams)
        total.grams += len(own)
        total.grams_in_seeds += known
        total.some += known > 0
        total.half += known > 0 and 2 * known >= len(own)
        called = sequence(t)
        self._seen.add(hash(called))
        total.sequences = len(self._seen)
        total.same_sequence += self._sequences.get(seed_id) == called
        used = self._identifiers_of(t)
        copied = len(used & self._values.get(t.pack or "", set()))
        total.identifiers += len(used)
        total.identifiers_in_seeds += copied
        total.copiers += copied > 0

    def _identifiers_of(self, t: Trajectory) -> set[str]:
        """Those that the system text gives are everybody's (the signed-in person's address): nothing is copied there."""
        ids, system = self._identifiers.get(t.pack or ""), (t.system or "").lower()
        if ids is None:
            return set()
        found = {plain(value) for _, _, call in t.calls() for _, value in ids.of(call.name, call.arguments or {})}
        return {value for value in found if value not in system}


def grams(t: Trajectory) -> Iterator[int]:
    """Hashes of the user's word 5-grams; a gram does not reach from one message into the next."""
    for message in t.messages:
        if message.role == "user":
            words = WORD.findall(message.text.lower())
            for i in range(len(words) - GRAM + 1):
                yield hash(tuple(words[i : i + GRAM]))


def sequence(t: Trajectory) -> tuple[str, ...]:
    return tuple(call.name for _, _, call in t.calls())


def values(seed: Trajectory) -> Iterator[str]:
    """Every value in a seed's calls and results."""
    for message in seed.messages:
        found: Sequence[Any] = decoded(message.text) if message.role == "tool" else []
        for value in (*found, *(value for call in message.calls for _, value in scalars(call.arguments, None, ""))):
            yield plain(value)


def plain(value: Any) -> str:
    return str(value).strip().lower()
