"""Compare the final state with the reference's, both as changes from the same start (ScaleEnv §3.4).

Existing rows are compared by their key. Rows that are new on both sides may have different keys if a tool made the keys up: such rows
are paired (`simia.envs.rewards.row_pairing`), and the agent's keys are then replaced by the reference's wherever they occur, as keys and
as values. A key that the agent itself chose (a call names it, or has all of its words in its arguments, before any result shows it) is never
replaced. What the reference did not change must not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from simia.envs.rewards.compare_values import ABSENT, abbreviate_value, find_policy, find_value_differences
from simia.envs.rewards.reward_part import PartResult
from simia.envs.rewards.row_pairing import Path, Policies, pair_rows
from simia.reward_spec import Match, StateSpec
from simia.state import Change
from simia.trajectory import Trajectory

SHOWN = 4
OWN = " (the agent's)"  # marks a key of the reference that the agent's world uses for something else


def judge_state(trajectory: Trajectory, spec: StateSpec, policies: Policies) -> PartResult:
    evidence = trajectory.evidence or {}
    if evidence.get("changes") is None:
        return PartResult(None, "no evidence of the final state")
    if evidence.get("expected") is None:
        return PartResult(None, "no reference to compare the state with")
    compared = compare_changes(trajectory, policies)
    wrong = [line for lines in compared.values() for line in lines]
    total, right = len(compared), sum(not lines for lines in compared.values())
    if not wrong:
        vacuous = not has_compared_changes(evidence["expected"], policies)
        return PartResult(1.0, f"the state is as expected ({total} changes)", vacuous=vacuous)
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return PartResult(right / total if spec.partial else 0.0, "; ".join(wrong[:SHOWN]) + more)


def compare_changes(trajectory: Trajectory, policies: Policies) -> dict[Path, list[str]]:
    """Return path → differences, for each compared path that the agent or the reference changed; `evidence` has the changes of both."""
    evidence = trajectory.evidence or {}
    own, expected = evidence["changes"], evidence["expected"]
    if own != expected:
        # `before`: messages of earlier turns, which may have shown the agent a key that it uses in this one.
        whole = trajectory.model_copy(update={"messages": [*evidence.get("before", ()), *trajectory.messages]})
        own = rename_keys(own, pair_rows(own, expected, whole, policies))
    have, want = index_changes(own), index_changes(expected)
    return {
        path: list(compare_path(path, have, want, policies))
        for path in [*want, *(path for path in have if path not in want)]
        if find_policy(path, policies) != "exempt"
    }


def has_compared_changes(changes: Iterable[Change], policies: Policies) -> bool:
    """Whether changes have any effect on values that are not `exempt`."""
    strict: dict[str, Match] = {path: "exact" if each == "semantic" else each for path, each in policies.items()}
    want = index_changes(changes)
    return any(line for path in want for line in compare_path(path, {}, want, strict))


def index_changes(changes: Iterable[Change]) -> dict[Path, Change]:
    return {tuple(change["path"]): change for change in changes}


def compare_path(
    path: Path, have: Mapping[Path, Change], want: Mapping[Path, Change], policies: Policies
) -> Iterable[str]:
    """Compare both states at a path. On a side without a change there, the value is the old one."""
    if path in have and path in want:
        return find_value_differences(have[path].get("new", ABSENT), want[path].get("new", ABSENT), path, policies)
    if path in want:
        return find_value_differences(want[path].get("old", ABSENT), want[path].get("new", ABSENT), path, policies)
    old, new = (have[path].get(which, ABSENT) for which in ("old", "new"))
    if next(iter(find_value_differences(new, old, path, policies)), None) is None:
        return []
    return [
        f"{'.'.join(path)} changes, which was not expected: was {abbreviate_value(old)}, is {abbreviate_value(new)}"
    ]


def rename_keys(changes: list[Change], names: Mapping[str, str]) -> list[Change]:
    """Replace made-up keys in the changes by the reference's, also within texts that mention them.

    A key of the reference that is not the key of the same row in the agent's world gets the mark `OWN`: otherwise a wrong row could
    pass for the right one.
    """
    full = {**{new: new + OWN for new in names.values() if new not in names}, **names}
    full = {old: new for old, new in full.items() if old != new}
    if not full:
        return changes
    # A plain number within a text is more often a quantity than a key.
    within = sorted((name for name in full if not name.isdigit()), key=len, reverse=True)
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, within)) + r")(?!\w)") if within else None

    def read(value: Any) -> Any:
        if isinstance(value, str):
            if value in full:
                return full[value]
            return pattern.sub(lambda found: full[found[1]], value) if pattern else value
        if isinstance(value, dict):
            return {read(k): read(v) for k, v in value.items()}
        if isinstance(value, list):
            return [read(each) for each in value]
        return value

    return [
        {"path": [read(s) for s in c["path"]], **{k: read(c[k]) for k in ("old", "new") if k in c}} for c in changes
    ]
