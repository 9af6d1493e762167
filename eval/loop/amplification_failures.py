"""Why a test task failed, from the calls of the episode and those of the solution; the kinds of docs/experiments/amplification.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CHANGES = ("move_parcel", "hold_parcel", "return_parcel")
FAILURES = (
    "one of two requests done",
    "another tool than asked",
    "another parcel than found",
    "wrong number of days",
    "nothing done",
    "other",
)


def classify_failure(task: Mapping[str, Any], calls: Sequence[Sequence[Any]]) -> str:
    """Name the first of these that applies: nothing done, another tool, one of two requests, another parcel, wrong days, other.

    Only calls that change something count, whether they succeeded or not. A made-up parcel counts as another parcel.

    Args:
        task: The task, whose script holds the solution's calls.
        calls: Name and arguments of the calls that were made.
    """
    solution = [step["calls"][0] for step in task["script"] if "calls" in step]
    wanted = {call["name"]: call["arguments"] for call in solution if call["name"] in CHANGES}
    made = [(name, arguments or {}) for name, arguments in calls if name in CHANGES]
    tools = {name for name, _ in made}
    if not made:
        return "nothing done"
    if tools - set(wanted):
        return "another tool than asked"
    if tools != set(wanted):
        return "one of two requests done"
    if any(arguments.get("parcel") != wanted[name]["parcel"] for name, arguments in made):
        return "another parcel than found"
    if any(arguments.get("days") != wanted[name].get("days") for name, arguments in made):
        return "wrong number of days"
    return "other"
