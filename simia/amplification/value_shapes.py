"""Learn the shapes of identifiers from all the seeds' values, and make others of the same shape.

One value does not say which letters are fixed: XEHM4B could be followed by XEHM5B. The values of an argument in all seeds do: a place that
holds different letters may hold any. Digits may change, except for those that all values have, such as a year.
"""

from __future__ import annotations

import random
import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from simia.authoring.fresh_people import scatter
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

LEAST_VALUES = 3  # of an argument; with fewer, letters that never change cannot be told from letters that may change
MOST_VALUES = 200  # of an argument and a length that are looked at
LONGEST = 80
CAPITALS_AND_DIGITS = string.ascii_uppercase + string.digits
# A number of 16 digits or more is none: a card's, a parcel's.
HEX = re.compile(r"(?=.*[-a-f])(?:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|[0-9a-f]{16,64})")
DIGITS = re.compile(r"\d+")
ArgumentKey = tuple[int, str, int]  # group of tools, the argument's name, the value's length


@dataclass(slots=True)
class ValueShapes:
    """The values of each argument, from which their shapes are learnt. Values of one name are compared only among seeds with the same
    tools: the orders of two shops need not look alike."""

    values: dict[ArgumentKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[bytes, int] = field(default_factory=dict)  # definition of a tool → its group
    _letters: dict[ArgumentKey, dict[int, str]] = field(default_factory=dict)
    _fixed: dict[tuple[int, str, str], frozenset[int]] = field(default_factory=dict)

    def find_group(self, seed: Trajectory) -> int:
        """Return the group of a seed's tools; 0 if it has none, or if they were not learnt."""
        return self.groups.get(encode_tool(seed.tools[0]), 0) if seed.tools else 0

    def add(self, group: int, name: str, value: str) -> None:
        """Note one value of an argument."""
        known = self.values[group, name, len(value)]
        if len(value) <= LONGEST and len(known) < MOST_VALUES and value not in known:
            known.append(value)
            self._letters.pop((group, name, len(value)), None)
            self._fixed.clear()

    def vary(self, group: int, name: str, value: str, number: int, rng: random.Random) -> str:
        """Return another value of the same shape. The longest run of digits follows `number`, so that many items differ."""
        if HEX.fullmatch(value):
            return "".join(rng.choice("0123456789abcdef") if char != "-" else char for char in value)
        chars = [*renew_digits(value, number, rng, self.find_fixed_digits(group, name, value))]
        for place, letters in self.find_letters(group, name, value).items():
            chars[place] = rng.choice(letters)
        return "".join(chars)

    def is_code(self, group: int, name: str, value: str) -> bool:
        """Check whether a value is one of several codes with a place that holds a digit or a capital, such as XEHMRB and XEHM4B."""
        return any(len(letters) > 26 for letters in self.find_letters(group, name, value).values())

    def find_letters(self, group: int, name: str, value: str) -> dict[int, str]:
        """Return the places of a value whose characters change among the seeds' values, with the characters that may stand there."""
        at = (group, name, len(value))
        known = self.values.get(at, ())
        if len(known) < LEAST_VALUES or value not in known:
            return {}
        if at not in self._letters:
            self._letters[at] = find_changing_letters(known)
        return self._letters[at]

    def find_fixed_digits(self, group: int, name: str, value: str) -> frozenset[int]:
        """Return where the runs of digits begin that all the seeds' values have, such as the year of KR-2026-004417."""
        known = self.values.get((group, name, len(value)), ())
        if len(known) < LEAST_VALUES or value not in known:
            return frozenset()
        at = (group, name, value)
        if at not in self._fixed:
            runs = list(DIGITS.finditer(value))
            fixed = {run.start() for run in runs if all(run[0] == each[run.start() : run.end()] for each in known)}
            self._fixed[at] = frozenset(fixed if len(fixed) < len(runs) else ())  # else nothing would change
        return self._fixed[at]


def find_changing_letters(values: Sequence[str]) -> dict[int, str]:
    """Return the places of codes of one length that hold different capitals, with the characters that may stand there.

    Lower-case letters that differ are words (credit_card_12, gift_card_1234): they stay.
    """
    found: dict[int, str] = {}
    for place, column in enumerate(map(set, zip(*values, strict=True))):
        if len(column) == 1 or all(char.isdigit() for char in column):
            continue
        if not all(char in CAPITALS_AND_DIGITS for char in column):
            return {}
        found[place] = CAPITALS_AND_DIGITS if any(char.isdigit() for char in column) else string.ascii_uppercase
    return found


def learn_shapes(seeds: Sequence[Trajectory]) -> ValueShapes:
    """Learn from the arguments of all calls of the seeds."""
    shapes = ValueShapes(groups=group_tools(seeds))
    for seed in seeds:
        group = shapes.find_group(seed)
        for _, _, call in seed.calls():
            for name, value in (call.arguments or {}).items():
                if isinstance(value, str):
                    shapes.add(group, name, value)
    return shapes


def group_tools(seeds: Iterable[Trajectory]) -> dict[bytes, int]:
    """Return the group of each tool. Tools that a seed lists together are in one group, so that seeds with some of a pack's tools share it."""
    groups: dict[bytes, int] = {}
    members: dict[int, list[bytes]] = {}
    toolsets = {id(seed.tools): seed.tools for seed in seeds}
    for number, tools in enumerate(toolsets.values(), start=1):
        keys = [encode_tool(tool) for tool in tools]
        members[number] = [key for key in dict.fromkeys(keys) if key not in groups]
        for old in {groups[key] for key in keys if key in groups}:
            members[number] += members.pop(old)
        groups |= dict.fromkeys(members[number], number)
    return groups


def encode_tool(tool: ToolSpec) -> bytes:
    return orjson.dumps([tool.name, tool.description, tool.parameters])


def renew_digits(value: str, number: int, rng: random.Random, fixed: Collection[int] = ()) -> str:
    """Replace each run of digits by another of its length. The longest follows `number`; the others are random.
    `fixed`: where the runs begin that stay."""
    runs = [run for run in DIGITS.finditer(value) if run.start() not in fixed]
    longest = max(runs, key=lambda run: len(run[0]), default=None)

    def renew(run: re.Match[str]) -> str:
        size = len(run[0])
        if run.start() in fixed:
            return run[0]
        if size == 1:
            return rng.choice("123456789")
        least = 0 if run[0].startswith("0") else 10 ** (size - 1)
        many = 10**size - least
        at = scatter(number, many) if longest and run.start() == longest.start() else rng.randrange(many)
        return f"{least + at:0{size}d}"

    return DIGITS.sub(renew, value)
