"""Fidelity of the changes that a simulator reports, by |Δ|, outcome and number of arguments, and of the rewards that follow from them.

EnvSimBench found that models almost always predict the next state if nothing changes, and almost never if five fields change. So one figure
over all calls says little. The rows come from shadow episodes and from frozen sets. EnvSimBench counts a step as right if every true change
is in the predicted state, so it misses superfluous changes, and a step without changes cannot fail; here the whole states are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simia.envs.rewards.compose import score_trajectory
from simia.evaluation.call_samples import DELTA, name_bin
from simia.evaluation.fidelity import Fidelity, Row, measure_fidelity
from simia.pack import Pack
from simia.quality.judging.agreement import Agreement, measure_agreement
from simia.statistics import SUCCESS
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

DEFINITION = (
    f"{DELTA} Exact: the changes that the simulator names, applied to the true state before the call, give the true state after it; keys "
    "that a tool makes up may differ."
)


def count_arguments(row: Row) -> str:
    count = len(row["arguments"])
    return str(count) if count < 3 else "3 or more"


AXES: dict[str, Callable[[Row], str]] = {
    "|Δ|": lambda row: name_bin(row["transition"]["delta"]),
    "outcome": lambda row: "error" if row["real"]["failed"] else "ok",
    "arguments": count_arguments,
}
"""Axes by which calls are split: name → function from a row to its group."""


def split_rows(rows: Sequence[Row], axis: str, specs: Mapping[str, ToolSpec]) -> dict[str, Fidelity]:
    """Measure the calls of each group of an axis, in the order of the groups. Calls without an answer are left out."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "transition" in row:
            groups[AXES[axis](row)].append(row)
    return {name: measure_fidelity(groups[name], specs) for name in sorted(groups)}


def compare_rewards(trajectories: Sequence[Trajectory], packs: Mapping[str, Pack]) -> Agreement | None:
    """Compare the rules' verdict on the held state at the end of each free-running episode with that on the true one.

    Episodes whose evidence has no held state, whose task has goals, or without a reward are left out. Returns None if none remains.
    """
    pairs = []
    for trajectory in trajectories:
        evidence: dict[str, Any] = trajectory.evidence or {}
        held, reward = evidence.get("held"), trajectory.reward
        if held is None or reward is None or reward.value is None:
            continue
        pack = packs[trajectory.pack or ""]
        task = pack.task(trajectory.task_id or "")
        if task.goals:
            continue
        judged = score_trajectory(
            trajectory.model_copy(update={"evidence": held}), task.reward, reference=task.actions, policies=pack.match
        )
        if judged.value is not None:
            pairs.append((reward.value >= SUCCESS, judged.value >= SUCCESS))
    return measure_agreement(pairs) if pairs else None
