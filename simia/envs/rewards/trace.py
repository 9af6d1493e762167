"""Match the agent's calls with the reference's, one to one (EnvFactory §3.4).

An unmatched call that changes the state makes the value 0; any other unmatched call subtracts `extra`. A call that repeats a matched one
changes nothing if the final state is the reference's. Calls that an event of `perturb` excuses are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from simia.envs.rewards.call_matching import match_calls
from simia.envs.rewards.compare_values import values_equal
from simia.envs.rewards.reward_part import PartResult
from simia.envs.rewards.state_match import judge_state
from simia.reward_spec import Match, StateSpec, TraceSpec
from simia.task import Action, GoalCall
from simia.terminal import write_count
from simia.trajectory import Message, Trajectory

TOLERANCE = 1e-6
MOST_OFF = 0.5
MOST_NAMED = 5  # missing calls in a reason
Made = tuple[str, str, dict[str, Any]]


def judge_trace(
    trajectory: Trajectory, spec: TraceSpec, reference: Sequence[Action], policies: Mapping[str, Match] | None = None
) -> PartResult:
    """Judge the calls. `policies`: how values of the state are compared."""
    wanted = [a for a in reference if spec.only is None or a.name in spec.only]
    excused = list_excused(trajectory)
    made = list_needed_calls(trajectory, excused)
    if not wanted:
        return PartResult(None, "the task has no reference calls to compare with")

    def fits(action: Action, call: Made) -> bool:
        return fits_reference(action, call, spec)

    matched = match_subsequence(wanted, made, fits) if spec.ordered else match_calls(wanted, made, fits)
    missing = [action for i, action in enumerate(wanted) if i not in matched]
    value = len(matched) / len(wanted) if spec.partial else float(len(matched) == len(wanted))
    # Only the agent's calls, failed ones included; the agent is not responsible for calls of the user's tools.
    tried = [
        call
        for at, message in enumerate(trajectory.messages)
        for call, result in zip(message.calls, find_results(trajectory.messages, at), strict=True)
        if message.role != "user" and result not in excused and (spec.only is None or call.name in spec.only)
    ]
    used = set(matched.values())
    good = sum(made[j][0] == "agent" for j in used)
    writers = set((trajectory.evidence or {}).get("writes", []))
    changed = [
        call
        for j, call in enumerate(made)
        if j not in used and call[0] == "agent" and call[1] in writers and (spec.only is None or call[1] in spec.only)
    ]
    if changed and judge_state(trajectory, StateSpec(), policies or {}).value == 1.0:
        repeated = [made[j] for j in used]
        changed = [call for call in changed if call not in repeated]
    off = min(MOST_OFF, spec.extra * max(0, len(tried) - good - len(changed)))
    reason = f"{len(matched)} of {write_count(len(wanted), 'reference call')} made"
    if changed:
        return PartResult(
            0.0, f"{reason}; {write_count(len(changed), 'unneeded call')} that changed the state: {changed[0][1]}"
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
    return [call for _, _, call in locate_calls(trajectory)]


def list_needed_calls(trajectory: Trajectory, excused: Collection[int]) -> list[Made]:
    """The calls of `list_calls` without those that an event made the agent repeat. `excused`: indices of the results of such calls."""
    located = locate_calls(trajectory)
    others = [call for _, result, call in located if result not in excused]
    return [call for _, result, call in located if result not in excused or call not in others]


def locate_calls(trajectory: Trajectory) -> list[tuple[int, int, Made]]:
    """The calls of `list_calls`, each with the indices of its message and of its result."""
    messages, found = trajectory.messages, []
    for at, message in enumerate(messages):
        by = "user" if message.role == "user" else "agent"
        for call, result in zip(message.calls, find_results(messages, at), strict=True):
            if call.arguments is not None and result is not None and messages[result].error is None:
                found.append((at, result, (by, call.name, call.arguments)))
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


def list_excused(trajectory: Trajectory) -> set[int]:
    """Indices of the results of calls that count neither for a trace nor for a penalty: an event of `perturb` refused the call, or the agent had to repeat it."""
    found: set[int] = set()
    failed = {at for at, message in enumerate(trajectory.messages) if message.error}
    for event in trajectory.perturbations:
        if event.tool is not None and (event.reaction == "repeated" or event.message in failed):
            found |= {event.message, *event.detail.get("refused", [])}
    return found


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
