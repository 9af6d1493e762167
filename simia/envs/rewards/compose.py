"""Combine the parts of a reward into one value, and subtract the penalties.

If a part cannot be judged (evidence is missing, a check failed to run), the whole value is None: an infrastructure failure is never a
reward of 0. A check that its time limit stopped has its own error code, `check_timeout`. An aborted episode has no value; a truncated one
is scored like any other. A part with nothing to verify, such as the state where the reference changes nothing, earns nothing: other parts
decide the value, and a reward with such parts only is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from simia.envs.rewards import answer, call_results, checklist, environment_value, state_match, trace
from simia.envs.rewards.goal_turns import split_turns
from simia.envs.rewards.reward_part import PartResult
from simia.errors import Code
from simia.reward import Reward
from simia.reward_spec import (
    AnswerSpec,
    ChecklistSpec,
    GoalsSpec,
    Match,
    Part,
    PenaltySpec,
    ResultsSpec,
    RewardSpec,
    StateSpec,
    ValueSpec,
)
from simia.task import Action, Goal
from simia.terminal import write_count
from simia.trajectory import Trajectory


def score_trajectory(
    trajectory: Trajectory,
    spec: RewardSpec,
    *,
    reference: Sequence[Action] = (),
    policies: Mapping[str, Match] | None = None,
    goals: Sequence[Goal] = (),
) -> Reward:
    """Score one trajectory.

    Args:
        spec: The task's reward.
        reference: The calls of the task's solution.
        policies: How values of the state are compared, by dotted path; a part may add its own.
        goals: The task's goals, for a part of kind `goals`.
    """
    end = trajectory.end
    if end.kind == "aborted":
        return Reward(error=end.code or Code.INTERNAL, rationale="the episode was aborted")
    parts: dict[str, float] = {}
    reasons: list[str] = []
    weighted: list[tuple[float, float]] = []
    vacuous = False
    error: Code | None = None
    count: Counter[str] = Counter()
    first_call = 0
    for part in spec.parts:
        count[part.kind] += 1
        name = part.kind if count[part.kind] == 1 else f"{part.kind}.{count[part.kind]}"
        try:
            judged = judge_part(part, trajectory, reference, policies or {}, first_call, goals)
        except RecursionError:
            judged = PartResult(None, "the record nests too deeply to be compared")
        first_call += len(part.calls) if isinstance(part, ChecklistSpec) else 0
        reasons.append(f"{name}: {judged.reason}")
        if judged.value is None:
            error = Code.CHECK_TIMEOUT if checklist.list_timed_out(trajectory.evidence or {}) else Code.UNSCORED
            continue
        parts[name] = round(judged.value, 9)
        vacuous |= judged.vacuous
        if not judged.vacuous:
            weighted.append((judged.value, part.weight))
    value = None if error else combine_values(weighted, spec.combine) if weighted else 0.0
    if value is not None and not weighted:
        reasons.append("nothing was to be changed, and no other part verifies anything: add an answer or a trace part")
    value = round(value, 9) if value else value
    reward = Reward(value=value, parts=parts, rationale="\n".join(reasons), error=error)
    return subtract_penalties(reward, spec, trajectory)


def subtract_penalties(reward: Reward, spec: RewardSpec, trajectory: Trajectory) -> Reward:
    """Return the reward less the penalties, at least 0. A reward of 0 or None is returned unchanged."""
    off = sum(count_penalty(penalty, trajectory) for penalty in spec.penalties)
    if not reward.value or not off:
        return reward
    value = round(max(0.0, reward.value - off), 9)
    return reward.model_copy(update={"value": value, "rationale": f"{reward.rationale}\npenalties: {off:g} off"})


def judge_part(
    part: Part,
    trajectory: Trajectory,
    reference: Sequence[Action],
    policies: Mapping[str, Match],
    first_call: int,
    goals: Sequence[Goal] = (),
) -> PartResult:
    """Judge one part. `first_call`: number of its first world check among those of all checklists."""
    if isinstance(part, GoalsSpec):
        return judge_goals(trajectory, part, goals, policies)
    if isinstance(part, StateSpec):
        return state_match.judge_state(trajectory, part, {**policies, **part.policies})
    if isinstance(part, ChecklistSpec):
        return checklist.judge_checklist(trajectory, part, first_call)
    if isinstance(part, AnswerSpec):
        return answer.judge_answer(trajectory, part)
    if isinstance(part, ValueSpec):
        return environment_value.judge_environment_value(trajectory, part)
    if isinstance(part, ResultsSpec):
        return call_results.judge_results(trajectory)
    return trace.judge_trace(trajectory, part, reference, policies)


def judge_goals(
    trajectory: Trajectory, spec: GoalsSpec, goals: Sequence[Goal], policies: Mapping[str, Match]
) -> PartResult:
    """Judge each goal over the messages and the state of its turn (EnvFactory §3.3)."""
    values, missed, vacuous = [], "", True
    for number, (goal, turn) in enumerate(split_turns(trajectory, goals), start=1):
        if turn is None:
            values.append(0.0)
            missed = missed or f"goal {number}: the episode ended before it"
            vacuous = False
            continue
        judged = score_trajectory(turn, RewardSpec(parts=[*goal.parts]), reference=goal.calls, policies=policies)
        if judged.value is None:
            return PartResult(None, f"goal {number}: {judged.rationale}")
        empty = not goal.calls and set(judged.parts) <= {"state", "results"} and all(judged.parts.values())
        vacuous &= empty
        values.append(1.0 if empty else judged.value)
        if values[-1] < 1 and not missed:
            missed = f"goal {number}: {' '.join(judged.rationale.split())}"
    value = sum(values) / len(values) if spec.partial else combine_values([(each, 1.0) for each in values], "product")
    reached = sum(each == 1 for each in values)
    return PartResult(
        value,
        f"{reached} of {write_count(len(goals), 'goal')} reached{f'; {missed}' if missed else ''}",
        vacuous=vacuous,
    )


def count_penalty(spec: PenaltySpec, trajectory: Trajectory) -> float:
    """Return the amount that a penalty subtracts. Calls that were not run do not count."""
    messages, excused = trajectory.messages, trace.list_excused(trajectory)
    found = 0
    for at, message in enumerate(messages):
        if message.role != "assistant":
            continue
        for call, result in zip(message.calls, trace.find_results(messages, at), strict=True):
            if result is None or result in excused or (spec.tools is not None and call.name not in spec.tools):
                continue
            found += spec.kind == "calls" or messages[result].error is not None
    return min(spec.most, spec.each * max(0, found - spec.free))


def combine_values(weighted: Sequence[tuple[float, float]], how: str) -> float:
    """Combine the parts' values by product, minimum or mean. Only the mean uses the weights."""
    if how == "product":
        value = 1.0
        for each, _ in weighted:
            value *= each
    elif how == "min":
        value = min(each for each, _ in weighted)
    else:
        value = sum(each * weight for each, weight in weighted) / sum(weight for _, weight in weighted)
    return round(value, 9)
