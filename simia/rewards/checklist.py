"""Check functions on the final state (EnvScaler §3.3), with those that hold before anybody has done anything set apart."""

from __future__ import annotations

from typing import Any

from simia.rewards.part import Judged
from simia.task import ChecklistSpec
from simia.trajectory import Trajectory


def judge(trajectory: Trajectory, spec: ChecklistSpec) -> Judged:
    """All items must hold, or with `partial` the share of those that the agent had to bring about. An item that held at reset
    counts only if it no longer does: then it is harm."""
    evidence = trajectory.evidence or {}
    results: dict[str, Any] | None = evidence.get("checks")
    if results is None:
        return Judged(None, "the checks were not run")
    items = [*spec.functions, *spec.code, *(name for name in results if is_call(name, spec))]
    missing = [item for item in items if item not in results]
    broken = [item for item in items if isinstance(results.get(item), str)]
    if missing or broken or not items:
        item = (missing or broken or ["no item"])[0]
        return Judged(None, f"{item}: {results.get(item, 'not run')}"[:300])
    before = evidence.get("at_reset") or {}
    free = [item for item in items if before.get(item) is True and results[item] is True]
    counted = [item for item in items if item not in free]
    failed = [item for item in counted if results[item] is not True]
    reason = f"{len(items) - len(failed)} of {len(items)} checks hold"
    if free:
        reason += f", {len(free)} of them from the start"
    if failed:
        reason += f"; fails: {failed[0]}"
    if not spec.partial:
        return Judged(float(not failed), reason)
    return Judged(1.0 if not counted else (len(counted) - len(failed)) / len(counted), reason)


def is_call(name: str, spec: ChecklistSpec) -> bool:
    number, _, rest = name.partition(".")
    return number.isdigit() and any(call.get("name") == rest for call in spec.calls)
