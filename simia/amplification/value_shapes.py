"""Learn the shapes of identifiers from all the seeds' values, and make others of the same shape.

One value does not say which letters are fixed: XEHM4B could be followed by XEHM5B. The values of an argument in all seeds do: a place that
holds different letters may hold any. Digits may always change.
"""

from __future__ import annotations

import random
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simia.authoring.fresh_people import scatter
from simia.trajectory import Trajectory

LEAST_VALUES = 3  # of an argument; with fewer, letters that never change cannot be told from letters that may change
MOST_VALUES = 200  # of an argument and a length that are looked at
LONGEST = 80
CAPITALS_AND_DIGITS = string.ascii_uppercase + string.digits
HEX = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|[0-9a-f]{16,64}")
DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class ValueShapes:
    """The values of each argument, from which their shapes are learnt. `values`: by the argument's name and the value's length."""

    values: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    _letters: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        """Note one value of an argument."""
        known = self.values[name, len(value)]
        if len(value) <= LONGEST and len(known) < MOST_VALUES and value not in known:
            known.append(value)
            self._letters.pop((name, len(value)), None)

    def vary(self, name: str, value: str, number: int, rng: random.Random) -> str:
        """Return another value of the same shape. The longest run of digits follows `number`, so that many items differ."""
        if HEX.fullmatch(value):
            return "".join(rng.choice("0123456789abcdef") if char != "-" else char for char in value)
        chars = [*renew_digits(value, number, rng)]
        for place, letters in self.find_letters(name, value).items():
            chars[place] = rng.choice(letters)
        return "".join(chars)

    def is_code(self, name: str, value: str) -> bool:
        """Check whether a value is one of several codes with a place that holds a digit or a capital, such as XEHMRB and XEHM4B."""
        return any(len(letters) > 26 for letters in self.find_letters(name, value).values())

    def find_letters(self, name: str, value: str) -> dict[int, str]:
        """Return the places of a value whose characters change among the seeds' values, with the characters that may stand there."""
        known = self.values.get((name, len(value)), ())
        if len(known) < LEAST_VALUES or value not in known:
            return {}
        if (name, len(value)) not in self._letters:
            self._letters[name, len(value)] = find_changing_letters(known)
        return self._letters[name, len(value)]


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


def learn_shapes(seeds: Iterable[Trajectory]) -> ValueShapes:
    """Learn from the arguments of all calls of the seeds."""
    shapes = ValueShapes()
    for seed in seeds:
        for _, _, call in seed.calls():
            for name, value in (call.arguments or {}).items():
                if isinstance(value, str):
                    shapes.add(name, value)
    return shapes


def renew_digits(value: str, number: int, rng: random.Random) -> str:
    """Replace each run of digits by another of its length. The longest follows `number`; the others are random."""
    runs = list(DIGITS.finditer(value))
    longest = max(runs, key=lambda run: len(run[0]), default=None)

    def renew(run: re.Match[str]) -> str:
        size = len(run[0])
        if size == 1:
            return rng.choice("123456789")
        least = 0 if run[0].startswith("0") else 10 ** (size - 1)
        many = 10**size - least
        at = scatter(number, many) if longest and run.start() == longest.start() else rng.randrange(many)
        return f"{least + at:0{size}d}"

    return DIGITS.sub(renew, value)
