"""Check functions on the final state (EnvScaler §3.3). Checks that already hold at reset earn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simia.envs.rewards.reward_part import PartResult
from simia.reward_spec import ChecklistSpec
from simia.trajectory import Trajectory

SHOWN = 4
TIMED_OUT = "error: timed out: "
"""Prefix of the result of a check that its time limit stopped. Such a result says nothing about the state."""


def list_timed_out(evidence: Mapping[str, Any]) -> list[str]:
    """List the checks that a time limit stopped, on the final state, at reset or after a turn, as `0.paid: no answer within 5 s`."""
    results = [evidence.get(name) for name in ("checks", "at_reset")]
    found = [
        f"{item}: {value.removeprefix(TIMED_OUT)}"
        for each in results
        if isinstance(each, Mapping)
        for item, value in each.items()
        if isinstance(value, str) and value.startswith(TIMED_OUT)
    ]
    return found + [line for turn in evidence.get("turns") or [] for line in list_timed_out(turn)]


def judge_checklist(trajectory: Trajectory, spec: ChecklistSpec, first: int = 0) -> PartResult:
    """Judge one checklist: 1 if all items hold; with `partial`, the share of the counted items that hold. An item that held at reset is
    counted only if it no longer holds, as damage by the agent. `first`: the number of the part's first call among the calls of all
    checklists of the task, by which the world names their results."""
    evidence = trajectory.evidence or {}
    results: dict[str, Any] | None = evidence.get("checks")
    if results is None:
        return PartResult(None, "the checks were not run")
    items = [*spec.functions, *spec.code, *(f"{n}.{call.get('name')}" for n, call in enumerate(spec.calls, first))]
    missing = [item for item in items if item not in results]
    broken = [item for item in items if item in results and not isinstance(results[item], bool)]
    if missing or broken or not items:
        item = (missing or broken or ["no item"])[0]
        return PartResult(None, f"{item}: {results.get(item, 'not run')}"[:300])
    before = evidence.get("at_reset")
    if before is None and spec.partial:
        return PartResult(None, "which checks held at reset is not known")
    before = before or {}
    unknown = [item for item in items if str(before.get(item)).startswith(TIMED_OUT)]
    if unknown:
        return PartResult(None, f"{unknown[0]} at reset: {before[unknown[0]]}"[:300])
    free = [item for item in items if before.get(item) is True and results[item] is True]
    counted = [item for item in items if item not in free]
    failed = [item for item in counted if results[item] is not True]
    reason = f"{len(items) - len(failed)} of {len(items)} checks hold"
    if free:
        reason += f"; from the start: {format_items(free)}"
    if failed:
        reason += f"; fail: {format_items(failed)}"
    if not spec.partial:
        return PartResult(float(not failed), reason)
    return PartResult(1.0 if not counted else (len(counted) - len(failed)) / len(counted), reason)


def format_items(items: list[str]) -> str:
    return ", ".join(items[:SHOWN]) + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")
