"""Selection: which of the results that passed the checks are accepted.

Fed in plan order (`simia.jobs.coordinator.InOrder`), so a resumed run accepts what an undisturbed one does. The first of equal contents wins, and the
first of nearly equal ones, seeds before all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simia.errors import Code
from simia.jobs.coordinator import Verdict
from simia.quality.selection.near_duplicates import NearDuplicateIndex


@dataclass(slots=True)
class Outcome:
    """What became of one item. `content_hash` only if it passed the checks; `signature` and `tools` are then its own."""

    content_hash: str | None = None
    reason: str | None = None
    signature: bytes | None = None
    tools: Sequence[str] = ()


@dataclass(slots=True)
class Decision:
    verdict: Verdict
    outcome: Outcome
    reason: str | None = None
    detail: str | None = None


@dataclass(slots=True)
class Acceptance:
    """Accepts up to n results, one call of `decide` for each item in plan order."""

    n: int
    near: NearDuplicateIndex | None = None
    accepted: int = 0
    _decided: int = 0
    _seen: set[str] = field(default_factory=set)

    def decide(self, outcome: Outcome) -> Decision:
        ord_, self._decided = self._decided, self._decided + 1
        content, signature = outcome.content_hash, outcome.signature
        if content is None:
            return Decision("rejected", outcome, outcome.reason)
        if content in self._seen:
            return Decision("rejected", outcome, str(Code.DUPLICATE))
        if self.near is not None and signature is not None and (name := self.near.find(signature)) is not None:
            return Decision("rejected", outcome, str(Code.NEAR_DUPLICATE), f"nearly the same as {name}")
        if self.accepted >= self.n:
            return Decision("surplus", outcome)
        self._seen.add(content)
        if self.near is not None and signature is not None:
            self.near.add(f"item {ord_}", signature)
        self.accepted += 1
        return Decision("accepted", outcome)
