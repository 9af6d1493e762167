"""Compare what the agent's calls returned with what the calls of a goal return (BFCL multi-turn)."""

from __future__ import annotations

from collections import Counter

from simia.envs.rewards.reward_part import PartResult
from simia.terminal import write_count
from simia.trajectory import Message, Trajectory

SHOWN = 120


def judge_results(trajectory: Trajectory) -> PartResult:
    """Check that each expected result was returned to the agent by the end of the turn, by separate calls, and that the turn has a call.

    The trajectory is that of one turn; `evidence` has the expected `results` and the messages `before` the turn. Texts are compared
    exactly, error messages too. A goal without calls expects nothing.
    """
    evidence = trajectory.evidence or {}
    expected: list[str] | None = evidence.get("results")
    if expected is None:
        return PartResult(None, "no evidence of what the goal's calls return")
    if not expected:
        return PartResult(1.0, "no results are expected", vacuous=True)
    if not any(message.calls for message in trajectory.messages if message.role == "assistant"):
        return PartResult(0.0, "no call was made in this turn")
    missing = Counter(expected) - Counter(list_results([*evidence.get("before", ()), *trajectory.messages]))
    found = len(expected) - missing.total()
    reason = f"{found} of {write_count(len(expected), 'result')} returned"
    return PartResult(float(not missing), reason + (f"; missing: {next(iter(missing))[:SHOWN]}" if missing else ""))


def list_results(messages: list[Message]) -> list[str]:
    """Return the texts that the agent's calls returned, without those of the user's calls."""
    return [m.text for m in messages if m.role == "tool" and (m.visible_to is None or "agent" in m.visible_to)]
