"""One value of several parts, with each part's own value and reason.

A part that cannot be judged (evidence is missing, a check failed to run) makes the whole value None: infrastructure is
never a reward of 0. An aborted episode has no value at all; a truncated one is scored like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from simia.envs.rewards import answer, checklist, environment_value, state_match, trace
from simia.envs.rewards.reward_part import PartResult
from simia.errors import Code
from simia.reward import Reward
from simia.task import Action, AnswerSpec, ChecklistSpec, Match, Part, RewardSpec, StateSpec, ValueSpec
from simia.trajectory import Trajectory


def score_trajectory(
    trajectory: Trajectory,
    spec: RewardSpec,
    *,
    reference: Sequence[Action] = (),
    policies: Mapping[str, Match] | None = None,
) -> Reward:
    """The reward of one trajectory. `policies`: the pack's own; a part's add to them."""
    end = trajectory.end
    if end.kind == "aborted":
        return Reward(error=end.code or Code.INTERNAL, rationale="the episode was aborted")
    parts: dict[str, float] = {}
    reasons: list[str] = []
    weighted: list[tuple[float, float]] = []
    error: Code | None = None
    count: Counter[str] = Counter()
    first_call = 0
    for part in spec.parts:
        count[part.kind] += 1
        name = part.kind if count[part.kind] == 1 else f"{part.kind}.{count[part.kind]}"
        try:
            judged = judge_part(part, trajectory, reference, policies or {}, first_call)
        except RecursionError:
            judged = PartResult(None, "the record nests too deeply to be compared")
        first_call += len(part.calls) if isinstance(part, ChecklistSpec) else 0
        reasons.append(f"{name}: {judged.reason}")
        if judged.value is None:
            error = Code.UNSCORED
            continue
        parts[name] = round(judged.value, 9)
        weighted.append((judged.value, part.weight))
    value = None if error else combine_values(weighted, spec.combine)
    return Reward(value=value, parts=parts, rationale="\n".join(reasons), error=error)


def judge_part(
    part: Part, trajectory: Trajectory, reference: Sequence[Action], policies: Mapping[str, Match], first_call: int
) -> PartResult:
    if isinstance(part, StateSpec):
        return state_match.judge_state(trajectory, part, {**policies, **part.policies})
    if isinstance(part, ChecklistSpec):
        return checklist.judge_checklist(trajectory, part, first_call)
    if isinstance(part, AnswerSpec):
        return answer.judge_answer(trajectory, part)
    if isinstance(part, ValueSpec):
        return environment_value.judge_environment_value(trajectory, part)
    return trace.judge_trace(trajectory, part, reference)


def combine_values(weighted: Sequence[tuple[float, float]], how: str) -> float:
    """Product and minimum know no weights; the mean does."""
    if how == "product":
        value = 1.0
        for each, _ in weighted:
            value *= each
    elif how == "min":
        value = min(each for each, _ in weighted)
    else:
        value = sum(each * weight for each, weight in weighted) / sum(weight for _, weight in weighted)
    return round(value, 9)
