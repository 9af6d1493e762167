"""Accept results that passed the checks, without duplicates and near-duplicates.

Results arrive in plan order (`simia.jobs.coordinator.InOrder`), so a resumed run accepts the same ones as an
uninterrupted run. Of equal or nearly equal contents the first is accepted; seeds come before all results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simia.errors import Code
from simia.jobs.coordinator import Verdict
from simia.quality.selection.near_duplicates import NearDuplicateIndex


@dataclass(slots=True)
class Outcome:
    """Outcome of one item. `content_hash`, `signature` and `tools` are set only if it passed the checks."""

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
    """Accept up to n results: call `decide` once for each item, in plan order."""

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
