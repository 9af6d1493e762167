"""Counting what is too much to hold: exact up to a cap, then on a sample drawn by hash.

When more than `cap` different things have come, only those whose hash ends in a zero bit stay, then in two, and so on: a thing is
in the sample for what it is, not for when it came, so its count is complete. With s things kept of a 2^-k sample there are about
s·2^k, off by one part in √s (0.6 % at the smallest sample of the default cap); `exact` says whether any sampling was needed.
Hashes come from CRCs of words and from tuples of integers, which Python hashes alike in every process.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import log2

CAP = 65_536


class HashSample:
    """What both sketches hold: everything up to `cap` things, then those whose mixed hash ends in enough zero bits."""

    def __init__(self, cap: int = CAP) -> None:
        self.total = 0
        self._cap, self._bits = cap, 0

    @property
    def exact(self) -> bool:
        return not self._bits

    def _keeps(self, value: int) -> bool:
        return not mix_hash(value) & ((1 << self._bits) - 1)


class Distinct(HashSample):
    """Count different things: about 70 bytes for each that is held, at most `cap` of them."""

    def __init__(self, cap: int = CAP) -> None:
        super().__init__(cap)
        self._kept: set[int] = set()

    def add(self, hashes: list[int]) -> None:
        self.total += len(hashes)
        self._kept.update(filter(self._keeps, hashes) if self._bits else hashes)
        while len(self._kept) > self._cap:
            self._bits += 1
            self._kept = set(filter(self._keeps, self._kept))

    @property
    def count(self) -> int:
        return len(self._kept) << self._bits

    @property
    def share(self) -> float:
        """Return distinct-n: different things as a share of all."""
        return min(1.0, self.count / self.total) if self.total else 0.0


class Frequencies(HashSample):
    """Count how often each thing comes, for the entropy; at most `cap` different ones are held."""

    def __init__(self, cap: int = CAP) -> None:
        super().__init__(cap)
        self._counts: dict[int, int] = {}

    def add(self, value: int) -> None:
        self.total += 1
        if not self._keeps(value):
            return
        self._counts[value] = self._counts.get(value, 0) + 1
        while len(self._counts) > self._cap:
            self._bits += 1
            self._counts = {value: count for value, count in self._counts.items() if self._keeps(value)}

    @property
    def distinct(self) -> int:
        return len(self._counts) << self._bits

    @property
    def most(self) -> int:
        """Return the count of the most frequent thing held."""
        return max(self._counts.values(), default=0)

    @property
    def entropy(self) -> float:
        """Return the entropy in bits; 0 if all are equal. In a sample each thing stands for 2^k like it."""
        if not self.total:
            return 0.0
        shares = (count / self.total for count in self._counts.values())
        return max(0.0, (1 << self._bits) * -sum(share * log2(share) for share in shares))


def mix_hash(value: int) -> int:
    """Return the upper half of a multiplication: the lower bits of a tuple's hash are not uniform."""
    return (value * 0x9E3779B97F4A7C15 >> 32) & 0xFFFFFFFF


def hash_grams(items: Sequence[Hashable], n: int) -> list[int]:
    """Return a hash of each n items in a row."""
    return list(map(hash, zip(*(items[start:] for start in range(n)), strict=False)))
