"""Acceptance: which results count, decided in ord order alone, so that a resumed run accepts what an undisturbed one does.

Results arrive in any order; they wait here until everything before them is decided. The first of equal contents wins, and
the first of nearly equal ones, seeds before all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from simia.errors import Code
from simia.quality.selection.near_duplicates import NearIndex

Verdict = Literal["accepted", "rejected", "surplus"]


@dataclass(slots=True)
class Outcome:
    """What became of one item. `content_hash` only if it passed the checks; `signature` and `tools` are then its own."""

    content_hash: str | None = None
    reason: str | None = None
    signature: bytes | None = None
    tools: Sequence[str] = ()


@dataclass(slots=True)
class Decision:
    ord: int
    verdict: Verdict
    outcome: Outcome
    reason: str | None = None
    detail: str | None = None


@dataclass(slots=True)
class Acceptance:
    """`add` an item's outcome in any order; get the decisions that became possible, in ord order."""

    n: int
    near: NearIndex | None = None
    next_ord: int = 0
    accepted: int = 0
    _waiting: dict[int, Outcome] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        """Results that passed and wait for an earlier one."""
        return sum(1 for outcome in self._waiting.values() if outcome.content_hash is not None)

    def add(self, ord_: int, outcome: Outcome) -> list[Decision]:
        self._waiting[ord_] = outcome
        decisions = []
        while self.next_ord in self._waiting:
            decisions.append(self._decide(self.next_ord, self._waiting.pop(self.next_ord)))
            self.next_ord += 1
        return decisions

    def _decide(self, ord_: int, outcome: Outcome) -> Decision:
        content, signature = outcome.content_hash, outcome.signature
        if content is None:
            return Decision(ord_, "rejected", outcome, outcome.reason)
        if content in self._seen:
            return Decision(ord_, "rejected", outcome, str(Code.DUPLICATE))
        if self.near is not None and signature is not None and (name := self.near.find(signature)) is not None:
            return Decision(ord_, "rejected", outcome, str(Code.NEAR_DUPLICATE), f"nearly the same as {name}")
        if self.accepted >= self.n:
            return Decision(ord_, "surplus", outcome)
        self._seen.add(content)
        if self.near is not None and signature is not None:
            self.near.add(f"item {ord_}", signature)
        self.accepted += 1
        return Decision(ord_, "accepted", outcome)
