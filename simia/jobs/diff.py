"""Two runs side by side: how they were made, what they made, what they share, and where one item went another way.

Items of two runs can be compared one by one where their plans agree: the same id, from the same seed. A changed prompt or
check then shows itself in the items whose verdict it turned, which says more than two totals.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, Field

from simia.jobs.ledger import REJECTED
from simia.jobs.run import Run
from simia.jobs.tables import COST, build_token_sum

MOST_EXAMPLES = 10
# How an item stands, as a reader counts it: left beside right, each with its reason.
FATE = "CASE WHEN {0}.ord IS NOT NULL THEN 'accepted' WHEN {1}.status = 'passed' THEN 'surplus' ELSE {1}.status END"
JUDGED = f"""
SELECT i.id, i.spec, j.spec, {FATE.format("a", "i")}, i.reason, {FATE.format("b", "j")}, j.reason
FROM main.item AS i JOIN other.item AS j ON i.id = j.id
LEFT JOIN main.accepted AS a ON a.ord = i.ord LEFT JOIN other.accepted AS b ON b.ord = j.ord ORDER BY i.ord
"""
FIGURES = f"""
SELECT COUNT(*), {build_token_sum("prompt")}, {build_token_sum("completion")}, {build_token_sum("cached")}, {COST}, COUNT(cost)
FROM attempt WHERE status = 'got'
"""


class Change(BaseModel):
    """A setting or fact that differs."""

    name: str
    left: Any = None
    right: Any = None


class RunSummary(BaseModel):
    """One run's figures."""

    run: str
    model: str
    planned: int = 0
    accepted: int = 0
    rejected: dict[str, int] = Field(default_factory=dict)
    failed: int = 0
    replies: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float | None = None
    unpriced: int = 0
    diversity: dict[str, float] = Field(default_factory=dict)

    @property
    def rate(self) -> float | None:
        decided = self.accepted + sum(self.rejected.values())
        return self.accepted / decided if decided else None

    def each(self, total: float | None) -> float | None:
        return None if total is None or not self.accepted else total / self.accepted


class Turned(BaseModel):
    """An item that the two runs judged differently."""

    item: str
    left: str
    left_reason: str = ""
    right: str
    right_reason: str = ""

    @property
    def kind(self) -> str:
        return f"{format_verdict(self.left, self.left_reason)} → {format_verdict(self.right, self.right_reason)}"


class Difference(BaseModel):
    """All that `simia runs diff` shows."""

    left: RunSummary
    right: RunSummary
    identity: list[Change] = Field(default_factory=list)
    operational: list[Change] = Field(default_factory=list)
    facts: list[Change] = Field(default_factory=list)
    shared: int = Field(default=0, description="Accepted conversations that both runs hold, by content.")
    comparable: int = Field(default=0, description="Items of the same id and seed that both runs have judged.")
    other_plan: int = Field(default=0, description="Items of the same id that are planned from different seeds.")
    turned: dict[str, int] = Field(
        default_factory=dict, description="`verdict → verdict`, reasons included, and how many."
    )
    examples: list[Turned] = Field(default_factory=list)


def compare_runs(left: Run, right: Run, diversity: Callable[[Run], dict[str, float]] | None = None) -> Difference:
    """Compare two runs. `diversity`: a function from a run to named figures, for callers that want them beside."""
    found = Difference(left=side(left), right=side(right))
    if diversity is not None:
        found.left.diversity, found.right.diversity = diversity(left), diversity(right)
    found.identity = changes(left.ledger.meta("identity") or {}, right.ledger.meta("identity") or {})
    known = {change.name for change in found.identity}
    everything = changes(left.saved_config(), right.saved_config())
    found.operational = [change for change in everything if change.name not in known]
    found.facts = changes(left.ledger.meta("facts") or {}, right.ledger.meta("facts") or {})
    connection = beside(left.folder, right.folder)
    try:
        (found.shared,) = connection.execute(
            "SELECT COUNT(*) FROM accepted JOIN other.accepted AS theirs USING (content_hash)"
        ).fetchone()
        items(connection, found)
    finally:
        connection.close()
    return found


def side(run: Run) -> RunSummary:
    ledger = run.ledger
    connection = ledger.db.ledger
    counts, about = ledger.counts(), ledger.meta("facts") or {}
    replies, prompt, completion, cached, cost, priced = connection.execute(FIGURES).fetchone()
    reasons = "SELECT reason, COUNT(*) FROM item WHERE status = ? GROUP BY reason ORDER BY 2 DESC, 1"
    return RunSummary(
        run=run.id,
        model=str(about.get("model", "unknown")),
        planned=sum(counts.values()),
        accepted=ledger.accepted_count(),
        rejected={str(reason): count for reason, count in connection.execute(reasons, (REJECTED,))},
        failed=counts.get("failed", 0),
        replies=replies,
        prompt=prompt,
        completion=completion,
        cached=cached,
        cost=cost,
        unpriced=replies - priced,
    )


def changes(left: Any, right: Any, at: str = "") -> list[Change]:
    """Leaves that differ, by dotted name."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [
            change
            for key in sorted(left.keys() | right.keys())
            for change in changes(left.get(key), right.get(key), f"{at}.{key}".lstrip("."))
        ]
    return [] if left == right else [Change(name=at, left=left, right=right)]


def beside(left: Path, right: Path) -> sqlite3.Connection:
    """Both ledgers in one connection, to read only: `main` is the left one, `other` the right one."""
    uris = [f"{(folder / 'ledger.db').resolve().as_uri()}?mode=ro" for folder in (left, right)]
    connection = sqlite3.connect(uris[0], uri=True, timeout=30)
    connection.execute("ATTACH ? AS other", (uris[1],))
    return connection


def items(connection: sqlite3.Connection, found: Difference) -> None:
    turned: Counter[str] = Counter()
    candidates: list[tuple[int, Turned]] = []
    for item, same_seed, one, why, two, because in iterate_judged(connection):
        if not same_seed:
            found.other_plan += 1
            continue
        if "open" in (one, two):
            continue
        found.comparable += 1
        if (one, why) == (two, because):
            continue
        example = Turned(item=item, left=one, left_reason=why or "", right=two, right_reason=because or "")
        turned[example.kind] += 1
        if turned[example.kind] <= MOST_EXAMPLES:
            candidates.append((turned[example.kind], example))
    found.turned = dict(turned.most_common())
    # One of the most frequent kind first, then of the next one: a reader wants to see each before a second of any.
    rank = {kind: place for place, kind in enumerate(found.turned)}
    candidates.sort(key=lambda each: (each[0], rank[each[1].kind]))
    found.examples = [example for _, example in candidates[:MOST_EXAMPLES]]


def iterate_judged(connection: sqlite3.Connection) -> Iterator[tuple[str, bool, str, str | None, str, str | None]]:
    for item, spec, other_spec, one, why, two, because in connection.execute(JUDGED):
        same = orjson.loads(spec).get("seed") == orjson.loads(other_spec).get("seed")
        yield item, same, one, why, two, because


def format_verdict(verdict: str, reason: str | None) -> str:
    return f"{verdict} ({reason})" if reason else verdict
