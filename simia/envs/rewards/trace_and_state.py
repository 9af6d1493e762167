"""EnvFactory's reward for reinforcement learning: max(0, τ · trace + (1 − τ) · state − length − format) (§3.4).

Each turn of the user has a trace and a state, and the reward takes their means.

- trace: 1 if every essential call of the turn is matched by a successful call of its own; masked arguments are not compared, and numbers may
  differ by 1e-6.
- state: the share of right environments among those that the turn must change or that are wrong. In a turn that must change nothing it
  equals the trace, or 0 if something changed, so an agent that does nothing earns nothing.
- length and format: 0.05 for each unmatched call beyond the number of the solution's, and for each malformed call; each at most 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, model_validator

from simia.config import Config
from simia.envs.rewards.call_matching import match_calls
from simia.envs.rewards.compare_values import find_policy
from simia.envs.rewards.goal_turns import split_turns
from simia.envs.rewards.row_pairing import Policies
from simia.envs.rewards.state_match import compare_changes, index_changes
from simia.envs.rewards.trace import find_results, fits_reference, list_calls, list_excused
from simia.errors import Code
from simia.pack import Pack
from simia.reward import Reward
from simia.reward_spec import StateSpec, TraceSpec
from simia.task import Goal, GoalCall, Task
from simia.trajectory import Trajectory

EACH, MOST = 0.05, 0.5
MALFORMED = frozenset((Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, Code.UNPARSABLE_ARGUMENTS))
WHOLE = ""  # name of the single environment of a task without named environments


class TraceStateSettings(Config):
    """Weight τ of the trace in the reward, and its schedule over the training steps."""

    tau: float = Field(0.5, ge=0, le=1, description="Weight of the trace (0 to 1). The weight of the state is 1 − tau.")
    final_tau: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Value of tau after `steps` training steps; tau changes linearly until then. null: tau is constant.",
    )
    steps: int | None = Field(
        None, ge=1, description="Number of training steps until tau reaches `final_tau`. null: tau is constant."
    )

    @model_validator(mode="after")
    def check_schedule(self) -> Self:
        """Refuse an incomplete schedule."""
        if (self.final_tau is None) is not (self.steps is None):
            raise ValueError("final_tau and steps define a schedule together: set both or neither")
        return self

    def compute_tau(self, step: int) -> float:
        """Return τ after `step` training steps."""
        if self.final_tau is None or self.steps is None:
            return self.tau
        return self.tau + (self.final_tau - self.tau) * min(1.0, max(0, step) / self.steps)


@dataclass(slots=True)
class TraceStateScorer:
    """Scores episodes of a pack by trace and state."""

    pack: Pack
    settings: TraceStateSettings
    step: int = 0
    """Training steps so far."""

    def note_step(self, step: int) -> None:
        """Set how many steps the training has made."""
        self.step = step

    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        """Score an episode of a task with reference calls."""
        return score_trace_and_state(trajectory, task, self.settings.compute_tau(self.step), self.pack.match)


@dataclass(frozen=True, slots=True)
class TurnScore:
    """One turn."""

    trace: float
    state: float
    matched: int
    """Calls that match an essential call."""


def score_trace_and_state(trajectory: Trajectory, task: Task, tau: float, policies: Policies) -> Reward:
    """Score one episode. Without essential calls, or without evidence of the state, the value is None."""
    if trajectory.end.kind == "aborted":
        return Reward(error=trajectory.end.code or Code.INTERNAL, rationale="the episode was aborted")
    environments = read_environments(task)
    scores: list[TurnScore] = []
    before: list[Any] = []
    for goal, turn in list_turns(trajectory, task):
        if turn is None:  # the episode ended before it
            scores.append(TurnScore(0.0, 0.0, 0))
            continue
        score = score_turn(goal, turn, before, environments, policies)
        if score is None:
            return Reward(error=Code.UNSCORED, rationale="no evidence of the state")
        before = (turn.evidence or {}).get("expected") or before
        scores += [score] if goal.calls else []
    if not scores:
        return Reward(error=Code.UNSCORED, rationale=f"task {task.id} has no reference calls to compare with")
    trace, state = (sum(values) / len(scores) for values in zip(*((s.trace, s.state) for s in scores), strict=True))
    length, malformed = count_needless(trajectory, task, sum(score.matched for score in scores))
    off = [round(min(MOST, EACH * number), 9) for number in (length, malformed)]
    value = round(max(0.0, tau * trace + (1 - tau) * state - sum(off)), 9)
    words = f"tau {tau:g}: trace {trace:g}, state {state:g}; {length} needless and {malformed} malformed calls"
    parts = {"trace": round(trace, 9), "state": round(state, 9), "length": -off[0], "format": -off[1]}
    return Reward(value=value, parts=parts, rationale=words)


def read_environments(task: Task) -> dict[str, str]:
    """Table → environment, of a task over composed environments."""
    given = task.extra.get("environments")
    rows = given.items() if isinstance(given, Mapping) else ()
    return {str(table): str(name) for name, tables in rows if isinstance(tables, list) for table in tables}


def list_turns(trajectory: Trajectory, task: Task) -> Iterator[tuple[Goal, Trajectory | None]]:
    """Yield each goal with the messages and evidence of its turn, or None if the turn was not reached. A task without goals is one turn."""
    if task.goals:
        yield from split_turns(trajectory, task.goals)
        return
    calls = [GoalCall(**action.model_dump()) for action in task.agent_actions]
    parts = [part for part in task.reward.parts if isinstance(part, StateSpec)]
    yield Goal(query="", calls=calls, parts=parts or [StateSpec()]), trajectory


def score_turn(
    goal: Goal, turn: Trajectory, before: list[Any], environments: Mapping[str, str], policies: Policies
) -> TurnScore | None:
    """Score one turn; None without evidence. `before`: the changes that the solution has made when the turn begins."""
    made = [call for call in list_calls(turn) if call[0] == "agent"]
    wanted = [call for call in goal.calls if call.by == "agent"]
    matched = len(match_calls(wanted, made, lambda action, call: fits_reference(action, call, TraceSpec())))
    trace = float(matched == len(wanted))
    evidence = turn.evidence or {}
    if evidence.get("changes") is None:
        return None
    if evidence.get("expected") is None:  # the goal judges no state
        return TurnScore(trace, trace, matched)
    own = {path: policy for part in goal.parts if isinstance(part, StateSpec) for path, policy in part.policies.items()}
    compared = compare_changes(turn, {**policies, **own})

    def name(path: tuple[str, ...]) -> str:
        return environments.get(path[0], WHOLE) if path else WHOLE

    wrong = {name(path) for path, differences in compared.items() if differences}
    earlier, now = index_changes(before), index_changes(evidence["expected"])
    moved = [path for path in {**earlier, **now} if earlier.get(path) != now.get(path)]
    due = {name(path) for path in moved if find_policy(path, {**policies, **own}) != "exempt"}
    if not due:
        return TurnScore(trace, 0.0 if wrong else trace, matched)
    return TurnScore(trace, len(due - wrong) / len(due | wrong), matched)


def count_needless(trajectory: Trajectory, task: Task, matched: int) -> tuple[int, int]:
    """Count the agent's unmatched well-formed calls, less the solution's calls that are not essential, and its malformed calls."""
    excused, messages = list_excused(trajectory), trajectory.messages
    made = sum(
        result not in excused
        for at, m in enumerate(messages)
        if m.role == "assistant"
        for result in find_results(messages, at)
    )
    agents = {call.id for message in trajectory.messages if message.role == "assistant" for call in message.calls}
    malformed = sum(m.role == "tool" and m.error in MALFORMED and m.call_id in agents for m in trajectory.messages)
    needed, solution = len(task.agent_actions), task.extra.get("calls")
    allowed = max(0, solution - needed) if isinstance(solution, int) else 0
    return max(0, made - malformed - matched - allowed), malformed
