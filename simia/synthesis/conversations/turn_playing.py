"""Let solvers play one turn of a conversation, continuing from the state and the messages after the earlier turns (EnvFactory §3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.envs.environment import Environment, Sample
from simia.envs.play.agent import Agent
from simia.envs.play.player import play
from simia.envs.users import EpisodeView
from simia.errors import Aborted, Code
from simia.state import Change, apply_changes, diff_states
from simia.task import Goal, Task
from simia.trajectory import Message, ToolCall, Trajectory, write_compact_json

MOST_TEXT = 600  # characters of a call, a result or a value that the selector sees
MOST_CHANGES = 30  # that the selector sees


class ContinuingAgent:
    """Repeats the agent's messages of the earlier turns, then lets another agent act. The world gives the same results again."""

    def __init__(self, before: Sequence[Message], agent: Agent) -> None:
        self._left = [message for message in before if message.role == "assistant"]
        self._agent = agent

    async def act(self, view: EpisodeView) -> tuple[Message, Sample | None]:
        if self._left:
            return self._left.pop(0), None
        return await self._agent.act(view)


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """One call of a solver with its result."""

    call: ToolCall
    result: Message

    @property
    def succeeded(self) -> bool:
        return self.result.error is None and self.call.arguments is not None

    def describe(self) -> dict[str, str]:
        """The call as the selector sees it."""
        result = cut_text(self.result.text)
        return {
            "text": cut_text(f"{self.call.name} {write_compact_json(self.call.arguments)}"),
            "result": f"an error: {result}" if self.result.error else result,
        }


@dataclass(slots=True)
class SolverTurn:
    """How one solver played a turn."""

    trajectory: Trajectory
    """The episode up to the end of this turn."""
    messages: list[Message] = field(default_factory=list)
    """Those of this turn, the user's first."""
    calls: list[PlayedCall] = field(default_factory=list)
    """The calls of this turn."""
    words: str = ""
    """The last words of the turn."""
    changes: list[Change] = field(default_factory=list)
    """Changes of the state since the start of the conversation."""
    own_changes: list[Change] = field(default_factory=list)
    """Changes in this turn."""
    fault: str = ""
    """Why it is no solution; empty if it may be one."""

    @property
    def key(self) -> str:
        """Equal for turns with the same calls."""
        return write_compact_json([[each.call.name, each.call.arguments] for each in self.calls])

    def describe(self) -> dict[str, Any]:
        """The turn as the selector sees it."""
        calls = [each.describe() for each in self.calls]
        return {"calls": calls, "words": cut_text(self.words), "changes": describe_changes(self.own_changes)}


def make_turn_task(key: str, state: dict[str, Any], queries: Sequence[str]) -> Task:
    """Make a task with one turn for each of these queries; only the last turn is new."""
    return Task(id=key, initial={"state": state}, goals=[Goal(query=query) for query in queries])


async def play_turn(environment: Environment, task: Task, before: Sequence[Message], agent: Agent) -> SolverTurn:
    """Play the last turn of a task, after `before`, the messages of the earlier turns. Raises `Aborted` if infrastructure failed."""
    trajectory = await play(await environment.reset(task), ContinuingAgent(before, agent))
    if trajectory.end.kind == "aborted":
        raise Aborted(trajectory.end.code or Code.INTERNAL, "; ".join(each.detail or "" for each in trajectory.issues))
    starts = [at for at, message in enumerate(trajectory.messages) if message.role == "user"]
    if len(starts) < len(task.goals):
        return SolverTurn(trajectory, fault="the episode ended before this turn")
    found = SolverTurn(trajectory, messages=trajectory.messages[starts[len(task.goals) - 1] :])
    results = {message.call_id: message for message in found.messages if message.role == "tool"}
    calls = [call for message in found.messages for call in message.calls]
    found.calls = [PlayedCall(call, results[call.id]) for call in calls if call.id in results]
    found.words = found.messages[-1].text if found.messages[-1].role == "assistant" else ""
    turns = [turn["changes"] for turn in (trajectory.evidence or {}).get("turns", [])]
    if len(turns) < len(task.goals):
        found.fault = "its final state is not known"
        return found
    earlier = turns[-2] if len(turns) > 1 else []
    start = task.initial["state"]
    found.changes = turns[-1]
    found.own_changes = diff_states(apply_changes(start, earlier), apply_changes(start, turns[-1]))
    if trajectory.end.kind != "terminated":
        found.fault = f"a limit cut it: {trajectory.end.code}"
    elif not found.words.strip():
        found.fault = "it ends without words"
    elif not any(each.succeeded for each in found.calls):
        found.fault = "no call succeeded"
    return found


def number_calls(messages: Sequence[Message], before: int) -> list[Message]:
    """Give the calls in messages ids that are numbered through the conversation, since each solver counts only its own turn. `before`: number
    of calls in the earlier turns."""
    found, names = [], dict[str, str]()
    for message in messages:
        for call in message.calls:
            before += 1
            names[call.id] = f"call_{before}"
        calls = [call.model_copy(update={"id": names[call.id]}) for call in message.calls]
        answered = names.get(message.call_id, message.call_id) if message.call_id else None
        found.append(message.model_copy(update={"calls": calls, "call_id": answered}))
    return found


def cut_text(text: str) -> str:
    """A text in one line, of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]} …"


def describe_changes(changes: Sequence[Change]) -> list[str]:
    """Changes of a state in words."""
    lines = []
    for change in changes[:MOST_CHANGES]:
        old, new = (cut_text(write_compact_json(change[side])) if side in change else None for side in ("old", "new"))
        what = f"{old} → {new}" if old and new else f"new: {new}" if new else f"removed: {old}"
        lines.append(f"{'.'.join(change['path'])}: {what}")
    return lines + ([f"and {len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else [])
