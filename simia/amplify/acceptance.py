"""Acceptance: which results count, decided in ord order alone, so that a resumed run accepts what an undisturbed one does.

Results arrive in any order; they wait here until everything before them is decided. The first of equal contents wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simia.errors import Code

Verdict = Literal["accepted", "rejected", "surplus"]


@dataclass(slots=True)
class Decision:
    ord: int
    verdict: Verdict
    reason: str | None = None
    content_hash: str | None = None


@dataclass(slots=True)
class Acceptance:
    """`add` a result's outcome in any order; get the decisions that became possible, in ord order."""

    n: int
    next_ord: int = 0
    accepted: int = 0
    _waiting: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        """Results that passed and wait for an earlier one."""
        return sum(1 for content, _ in self._waiting.values() if content is not None)

    def add(self, ord_: int, content_hash: str | None, reason: str | None) -> list[Decision]:
        """`content_hash` of a result that passed the checks; None with its reason for one that did not."""
        self._waiting[ord_] = (content_hash, reason)
        decisions = []
        while self.next_ord in self._waiting:
            content, why = self._waiting.pop(self.next_ord)
            decisions.append(self._decide(self.next_ord, content, why))
            self.next_ord += 1
        return decisions

    def _decide(self, ord_: int, content: str | None, reason: str | None) -> Decision:
        if content is None:
            return Decision(ord_, "rejected", reason)
        if content in self._seen:
            return Decision(ord_, "rejected", str(Code.DUPLICATE), content)
        if self.accepted >= self.n:
            return Decision(ord_, "surplus", None, content)
        self._seen.add(content)
        self.accepted += 1
        return Decision(ord_, "accepted", None, content)
