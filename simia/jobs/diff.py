"""Compare two runs: settings, facts, figures, common trajectories, and items with different verdicts.

Items of two runs are compared one by one if they have the same id and were planned alike: from the same seed, goals and values. The items whose verdict changed,
such as after a change of a prompt or check, tell more than two totals.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
from pydantic import BaseModel, Field

from simia.jobs.ledger import REJECTED
from simia.jobs.run import Run
from simia.jobs.tables import attach, open_read_only

MOST_EXAMPLES = 10
# The verdict on an item as the report counts it.
FATE = "CASE WHEN {0}.ord IS NOT NULL THEN 'accepted' WHEN {1}.status = 'passed' THEN 'surplus' ELSE {1}.status END"
JUDGED = f"""
SELECT i.id, i.spec, j.spec, {FATE.format("a", "i")}, i.reason, {FATE.format("b", "j")}, j.reason
FROM main.item AS i JOIN other.item AS j ON i.id = j.id
LEFT JOIN main.accepted AS a ON a.ord = i.ord LEFT JOIN other.accepted AS b ON b.ord = j.ord ORDER BY i.ord
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
    comparable: int = Field(default=0, description="Items of the same id and plan that both runs have judged.")
    other_plan: int = Field(
        default=0, description="Items of the same id whose prompts have different seeds, goals or values."
    )
    turned: dict[str, int] = Field(
        default_factory=dict, description="`verdict → verdict`, reasons included, and how many."
    )
    examples: list[Turned] = Field(default_factory=list)


def compare_runs(left: Run, right: Run, diversity: Callable[[Run], dict[str, float]] | None = None) -> Difference:
    """Compare two runs. `diversity`: returns further named figures of a run."""
    found = Difference(left=summarize_run(left), right=summarize_run(right))
    if diversity is not None:
        found.left.diversity, found.right.diversity = diversity(left), diversity(right)
    found.identity = changes(left.ledger.meta("identity") or {}, right.ledger.meta("identity") or {})
    known = {change.name for change in found.identity}
    everything = changes(left.saved_config(), right.saved_config())
    found.operational = [change for change in everything if change.name not in known]
    found.facts = changes(left.ledger.meta("facts") or {}, right.ledger.meta("facts") or {})
    with open_read_only(left.folder / "ledger.db") as connection:
        attach(connection, right.folder / "ledger.db", "other")
        (found.shared,) = connection.execute(
            "SELECT COUNT(*) FROM accepted JOIN other.accepted AS theirs USING (content_hash)"
        ).fetchone()
        compare_items(connection, found)
    return found


def summarize_run(run: Run) -> RunSummary:
    ledger = run.ledger
    counts, facts, (usage, attempts) = ledger.counts(), ledger.meta("facts") or {}, ledger.spent()
    replies = attempts.get("got", 0)
    reasons = "SELECT reason, COUNT(*) FROM item WHERE status = ? GROUP BY reason ORDER BY 2 DESC, 1"
    (priced,) = ledger.db.ledger.execute("SELECT COUNT(cost) FROM attempt WHERE status = 'got'").fetchone()
    return RunSummary(
        run=run.id,
        model=str(facts.get("model", "unknown")),
        planned=sum(counts.values()),
        accepted=ledger.accepted_count(),
        rejected={str(reason): count for reason, count in ledger.db.ledger.execute(reasons, (REJECTED,))},
        failed=counts.get("failed", 0),
        replies=replies,
        unpriced=replies - priced,
        **usage.model_dump(exclude={"reasoning"}),
    )


def changes(left: Any, right: Any, at: str = "") -> list[Change]:
    """The values that differ, by dotted name."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [
            change
            for key in sorted(left.keys() | right.keys())
            for change in changes(left.get(key), right.get(key), f"{at}.{key}".lstrip("."))
        ]
    return [] if left == right else [Change(name=at, left=left, right=right)]


def read_origin(spec: str) -> tuple[Any, ...]:
    """Return what an item was planned from: a seed trajectory, the input of a synthesis stage, and the plan of its goals and values."""
    planned = orjson.loads(spec)
    return planned.get("seed"), planned.get("input"), planned.get("plan")


def compare_items(connection: sqlite3.Connection, found: Difference) -> None:
    turned: Counter[str] = Counter()
    candidates: list[tuple[int, Turned]] = []
    reseeded = any(change.name == "seed" for change in found.identity)
    for item, spec, other_spec, one, why, two, because in connection.execute(JUDGED):
        origin = read_origin(spec)
        # The random seed determines the fresh values in the prompt of an item that has a seed trajectory.
        if origin != read_origin(other_spec) or (reseeded and origin[0] is not None):
            found.other_plan += 1
        elif "open" not in (one, two):
            found.comparable += 1
            if (one, why) != (two, because):
                example = Turned(item=item, left=one, left_reason=why or "", right=two, right_reason=because or "")
                turned[example.kind] += 1
                if turned[example.kind] <= MOST_EXAMPLES:
                    candidates.append((turned[example.kind], example))
    found.turned = dict(turned.most_common())
    # One of the most frequent kind first, then of the next one: each kind is shown before a second example of any.
    rank = {kind: place for place, kind in enumerate(found.turned)}
    candidates.sort(key=lambda each: (each[0], rank[each[1].kind]))
    found.examples = [example for _, example in candidates[:MOST_EXAMPLES]]


def format_verdict(verdict: str, reason: str | None) -> str:
    return f"{verdict} ({reason})" if reason else verdict
