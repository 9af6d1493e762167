"""A number that the world itself keeps, such as a game's points, as a part of the reward.

Evidence lists only changes of the state, so a number that never changed is missing. The world therefore adds `values`: for each path
that the task names, the number at that path. `pick_values` makes them, and `judge_environment_value` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simia.envs.rewards.reward_part import PartResult
from simia.reward_spec import Part, ValueSpec
from simia.trajectory import Trajectory

NOTHING: Any = object()
MOST = 1e300  # limit of a world's numbers, since JSON can hold larger ones


def list_value_paths(parts: Iterable[Part]) -> list[str]:
    """The paths that the value parts name, each once."""
    return list(dict.fromkeys(part.path for part in parts if isinstance(part, ValueSpec)))


def pick_values(state: Any, wanted: Iterable[str]) -> dict[str, Any]:
    """Return path → the number at that path of the state, or `{"kind": TYPE}` for another value. Missing paths are left out."""
    found = {path: value_at_path(state, path) for path in wanted}
    return {path: value_to_evidence(value) for path, value in found.items() if value is not NOTHING}


def value_at_path(state: Any, path: str) -> Any:
    """Return the value at a dotted path, in which a number is an index of a list; `NOTHING` if there is none."""
    for step in path.split("."):
        if isinstance(state, dict):
            state = state.get(step, NOTHING)
        elif isinstance(state, list) and step.isdecimal() and int(step) < len(state):
            state = state[int(step)]
        else:
            return NOTHING
    return state


def value_to_evidence(value: Any) -> Any:
    if not is_bounded_number(value):
        return {"kind": type(value).__name__}
    return value if abs(value) < 1 << 53 else float(value)


def is_bounded_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST < value < MOST


def scale_value(value: float, spec: ValueSpec) -> float:
    """The number as a share from `low` to `high`, clipped."""
    return min(1.0, max(0.0, (value - spec.low) / (spec.high - spec.low)))


def judge_environment_value(trajectory: Trajectory, spec: ValueSpec) -> PartResult:
    """Judge a value part. If the value is missing or not a number, the result is None, not 0."""
    values = (trajectory.evidence or {}).get("values")
    if not isinstance(values, dict):
        return PartResult(None, "no evidence of the final state's values")
    if spec.path not in values:
        return PartResult(None, f"the final state has no {spec.path}")
    value = values[spec.path]
    if not is_bounded_number(value):
        kind = value.get("kind", "value") if isinstance(value, dict) else type(value).__name__
        return PartResult(None, f"{spec.path} is no number in the final state, but a {kind}")
    return PartResult(scale_value(value, spec), f"{spec.path} is {value:g}, of {spec.low:g} to {spec.high:g}")
