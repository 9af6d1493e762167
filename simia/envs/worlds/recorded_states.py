"""Play the recorded calls of an episode again in the pack's world, to get the state before and after each of them.

A trajectory records calls, results and the final changes of the state, but no states in between. The clock, new identifiers and random
numbers of an executable world depend only on the seed and the call's number. So the same calls give the same results, and each is compared
with the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.world import ToolResult
from simia.errors import Code
from simia.task import By, Task
from simia.trajectory import Message, ToolCall, Trajectory

NOT_PASSED = (Code.MAX_CALLS, Code.FINISHED)
"""Errors of calls that the episode answered itself, without its world."""


class ReplayDivergedError(Exception):
    """A call's result differs from the recorded one: the pack's code or state has changed. The message names the call."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A call that reached the world, with its result and the states around it. `before` is `after` where nothing changed."""

    by: By
    call: ToolCall
    result: ToolResult
    before: Any
    after: Any


async def replay_calls(backend: ExecutableBackend, task: Task, trajectory: Trajectory) -> list[RecordedStep]:
    """Play a trajectory's calls in a new episode of its task.

    Raises `ReplayDivergedError`, `UserError` for a task that cannot be set up, and `Aborted` for an infrastructure failure.
    """
    world = await backend.open(task, seed=int(trajectory.extra.get("seed", 0)))
    try:
        state, steps = await world.state(), list[RecordedStep]()
        for by, call, recorded in iterate_recorded_calls(trajectory):
            hidden = recorded.error is Code.UNKNOWN_TOOL and call.name in backend.specs[by]
            if recorded.error in NOT_PASSED or hidden:
                continue
            (result,) = await world.call([call], by)
            if (result.content, result.error) != (recorded.text, recorded.error):
                raise ReplayDivergedError(f"call {len(steps) + 1}, {call.name}")
            wrote = result.error is None and backend.writes.get(by, {}).get(call.name, True)
            after = await world.state() if wrote else state
            steps.append(RecordedStep(by, call, result, state, state if after == state else after))
            state = steps[-1].after
        return steps
    finally:
        await world.close()


def iterate_recorded_calls(trajectory: Trajectory) -> Iterator[tuple[By, ToolCall, Message]]:
    """Yield each call with its result, in order; calls without a recorded result are left out."""
    waiting: list[tuple[By, ToolCall]] = []
    for message in trajectory.messages:
        if message.role == "tool":
            place = next((n for n, (_, call) in enumerate(waiting) if call.id == message.call_id), None)
            if place is not None:
                by, call = waiting.pop(place)
                yield by, call, message
        elif message.calls:
            caller: By = "user" if message.role == "user" else "agent"
            waiting = [(caller, call) for call in message.calls]
