"""Match the agent's calls with the reference's, one to one (EnvFactory §3.4).

An unmatched call that changes the state makes the value 0; any other unmatched call subtracts `extra`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from simia.envs.rewards.call_matching import match_calls
from simia.envs.rewards.compare_values import values_equal
from simia.envs.rewards.reward_part import PartResult
from simia.reward_spec import TraceSpec
from simia.task import Action, GoalCall
from simia.terminal import write_count
from simia.trajectory import Message, Trajectory

TOLERANCE = 1e-6
MOST_OFF = 0.5
MOST_NAMED = 5  # missing calls in a reason
Made = tuple[str, str, dict[str, Any]]


def judge_trace(trajectory: Trajectory, spec: TraceSpec, reference: Sequence[Action]) -> PartResult:
    wanted = [a for a in reference if spec.only is None or a.name in spec.only]
    made = list_calls(trajectory)
    if not wanted:
        return PartResult(None, "the task has no reference calls to compare with")

    def fits(action: Action, call: Made) -> bool:
        return fits_reference(action, call, spec)

    matched = match_subsequence(wanted, made, fits) if spec.ordered else match_calls(wanted, made, fits)
    missing = [action for i, action in enumerate(wanted) if i not in matched]
    value = len(matched) / len(wanted) if spec.partial else float(len(matched) == len(wanted))
    # Only the agent's calls, failed ones included; the agent is not responsible for calls of the user's tools.
    tried = [
        c for m in trajectory.messages if m.role != "user" for c in m.calls if spec.only is None or c.name in spec.only
    ]
    good = sum(made[j][0] == "agent" for j in matched.values())
    writers = set((trajectory.evidence or {}).get("writes", []))
    changed = [
        name
        for j, (by, name, _) in enumerate(made)
        if by == "agent"
        and name in writers
        and j not in set(matched.values())
        and (spec.only is None or name in spec.only)
    ]
    off = min(MOST_OFF, spec.extra * (len(tried) - good - len(changed)))
    reason = f"{len(matched)} of {write_count(len(wanted), 'reference call')} made"
    if changed:
        return PartResult(
            0.0, f"{reason}; {write_count(len(changed), 'unneeded call')} that changed the state: {changed[0]}"
        )
    if missing:
        named = [f"{each.name}({', '.join(each.arguments)})" for each in missing[:MOST_NAMED]]
        reason += f"; missing: {', '.join(named)}"
        reason += f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return PartResult(max(0.0, value - off), reason + (f"; {off:g} off for other calls" if off else ""))


def fits_reference(action: Action, call: Made, spec: TraceSpec) -> bool:
    """Whether a call equals this call of the reference, except for masked arguments."""
    free = [*spec.mask.get(action.name, []), *(action.mask if isinstance(action, GoalCall) else [])]
    return (action.by, action.name) == call[:2] and values_equal(
        mask_arguments(action.arguments, free), mask_arguments(call[2], free), TOLERANCE
    )


def list_calls(trajectory: Trajectory) -> list[Made]:
    """Calls of both sides that were run without an error, in their order."""
    return [call for _, call in locate_calls(trajectory)]


def locate_calls(trajectory: Trajectory) -> list[tuple[int, Made]]:
    """The calls of `list_calls`, each with the number of its message."""
    messages, found = trajectory.messages, []
    for at, message in enumerate(messages):
        by = "user" if message.role == "user" else "agent"
        for call, result in zip(message.calls, find_results(messages, at), strict=True):
            if call.arguments is not None and result is not None and messages[result].error is None:
                found.append((at, (by, call.name, call.arguments)))
    return found


def find_results(messages: Sequence[Message], at: int) -> list[int | None]:
    """Return the index of the result of each call of a message. None: the call has no result, so it was not run.

    The k-th result answers the k-th call, also if calls share an id. The ids decide if results are in another order.
    """
    calls = messages[at].calls
    ends = min(at + 1 + len(calls), len(messages))
    places = [place for place in range(at + 1, ends) if messages[place].role == "tool"]
    if not {messages[place].call_id for place in places} <= {call.id for call in calls}:
        return [*places, *[None] * (len(calls) - len(places))]
    waiting: dict[str | None, list[int]] = defaultdict(list)
    for place in places:
        waiting[messages[place].call_id].append(place)
    return [waiting[call.id].pop(0) if waiting[call.id] else None for call in calls]


def mask_arguments(arguments: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}


def match_subsequence(wanted: Sequence[Action], made: Sequence[Made], fits: Any) -> dict[int, int]:
    """The longest common subsequence, as pairs of indices."""
    rows = [[0] * (len(made) + 1) for _ in range(len(wanted) + 1)]
    for i in reversed(range(len(wanted))):
        for j in reversed(range(len(made))):
            hit = rows[i + 1][j + 1] + 1 if fits(wanted[i], made[j]) else 0
            rows[i][j] = max(hit, rows[i + 1][j], rows[i][j + 1])
    found, i, j = {}, 0, 0
    while i < len(wanted) and j < len(made):
        if fits(wanted[i], made[j]) and rows[i][j] == rows[i + 1][j + 1] + 1:
            found[i] = j
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return found
