"""Compare the distribution of plans that the settings ask for with the planned and the accepted ones.

If a share is planned less often than the settings ask for, the planner found no fitting combination of the seeds' calls, or another
setting excludes it. If it is accepted less often than planned, the model fails at it or the checks reject it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from simia.amplification.plan_settings import DIFFICULTIES
from simia.amplification.request_plan import RequestPlan
from simia.terminal import write_count

PLANS = """
SELECT spec ->> '$.plan', accepted.ord IS NOT NULL FROM item LEFT JOIN accepted ON accepted.ord = item.ord
WHERE stage = 'amplify' AND spec ->> '$.plan' IS NOT NULL
"""
MANY_CALLS = 6
# Setting → name in the table; the outcome of a goal, or `parallel`.
SHARES = {
    "errors": "recovered",
    "refusals": "refused",
    "missing": "missing",
    "withdrawals": "withdrawn",
    "parallel": "parallel",
}
NAMES = {
    "recovered": "tool error with recovery",
    "refused": "refused by the policy",
    "missing": "missing detail asked for",
    "withdrawn": "wish withdrawn",
    "parallel": "look-ups in parallel",
}


@dataclass(frozen=True, slots=True)
class PlanShare:
    """One line: the share that the settings ask for (None if they do not set it), and the plans with it, of all and of the accepted."""

    name: str
    wanted: float | None
    planned: int
    of_planned: int
    accepted: int
    of_accepted: int

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The line as text: name, wanted, planned, accepted."""
        wanted = "" if self.wanted is None else f"{self.wanted:.0%}"
        return (
            self.name,
            wanted,
            format_planned_share(self.planned, self.of_planned),
            format_planned_share(self.accepted, self.of_accepted),
        )


def count_plans(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> list[PlanShare]:
    """Count the plans of a run. `settings`: its config's section `plan`. Empty where items hold no plan."""
    planned: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for spec, is_accepted in connection.execute(PLANS):
        names = ["all", *list_properties(RequestPlan.from_spec(orjson.loads(spec)))]
        planned.update(names)
        if is_accepted:
            accepted.update(names)
    if not planned["all"]:
        return []
    rows = list(list_wanted(settings))
    known = {name for name, _ in rows}
    rows += [(name, None) for name in sorted(planned.keys() - known - {"all"})]
    return [
        PlanShare(NAMES.get(name, name), wanted, planned[name], planned["all"], accepted[name], accepted["all"])
        for name, wanted in sorted(rows, key=lambda row: rank(row[0]))
        if wanted or planned[name]
    ]


def list_properties(plan: RequestPlan) -> Iterator[str]:
    """List the lines of the table in which a plan is counted."""
    calls = len(plan.calls)
    if plan.goals:
        yield write_count(len(plan.goals), "goal")
    if calls:
        yield f"{MANY_CALLS} calls or more" if calls >= MANY_CALLS else write_count(calls, "call")
        yield plan.difficulty
    yield from plan.outcomes & NAMES.keys()
    if plan.is_parallel:
        yield "parallel"


def list_wanted(settings: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """List the lines whose shares the settings define, with these shares."""
    goals = settings.get("goals") or {}
    for number, weight in goals.items():
        yield write_count(int(number), "goal"), weight / sum(goals.values())
    calls: Counter[str] = Counter()
    for number, weight in (settings.get("calls") or {}).items():
        name = f"{MANY_CALLS} calls or more" if int(number) >= MANY_CALLS else write_count(int(number), "call")
        calls[name] += weight
    total = sum(calls.values())
    yield from ((name, weight / total) for name, weight in calls.items())
    yield from ((name, settings.get(setting)) for setting, name in SHARES.items())
    levels = settings.get("difficulty") or {}
    yield from ((level, weight / sum(levels.values())) for level, weight in levels.items())


def rank(name: str) -> tuple[int, str]:
    """Order the lines: goals, calls, events, difficulty."""
    if name in DIFFICULTIES:
        return 3, str(DIFFICULTIES.index(name))
    if name in NAMES:
        return 2, str(list(NAMES).index(name))
    return ("goal" not in name), name


def format_planned_share(count: int, total: int) -> str:
    """Write a share, with its count: `1 of 90,000` is not 0 %."""
    if not total:
        return ""
    share = count / total
    text = f"{share:.0%}" if count in (0, total) or 0.005 <= share < 0.995 else f"{share:.2%}"
    return f"{text} ({count:,})"
