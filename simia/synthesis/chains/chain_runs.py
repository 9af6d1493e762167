"""Execute a chain: each of its calls is a real tool call in a world of the environment's sandbox (ScaleEnv §4.2.1).

The code runs in a separate sandbox, so it can reach the state only through tools. A refused call ends the chain, even if the code catches
the error, since a reference path must have no failing call.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.envs.rewards.state_match import judge_state
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.errors import Aborted, UserError
from simia.reward_spec import Match, StateSpec
from simia.state import Change
from simia.synthesis.building.tool_runs import hide_addresses, require_sandbox
from simia.synthesis.context import FOLDER
from simia.synthesis.gyms.function_runs import Ending, FunctionLimits, FunctionRun, FunctionRunner
from simia.synthesis.gyms.gym_playing import ToolBroken, call_tool
from simia.synthesis.scenarios.solution_runs import MOST_RESULT
from simia.task import Action, Task
from simia.trajectory import Message, ToolCall, Trajectory

CHAIN_FUNCTION = "chain"
LIMITS = FunctionLimits(seconds=2, calls=60)
STOPPED = "the chain has failed"


@dataclass(slots=True)
class PlayedChain:
    """A chain as it was executed."""

    calls: list[Action] = field(default_factory=list)
    """The calls that succeeded, with literal arguments."""
    values: list[Any] = field(default_factory=list)
    """What each call returned."""
    fault: str | None = None
    """Why the chain does not execute, in one line; None: it returned, and no call failed."""
    changes: list[Change] = field(default_factory=list)
    """Changes of the state; empty if there is a fault."""
    final: Any = None
    """The state after the chain; None if there is a fault."""

    @property
    def results(self) -> list[str]:
        """What each call returned as text, shortened."""
        return [write_result(value)[:MOST_RESULT] for value in self.values]


@contextlib.asynccontextmanager
async def open_runner() -> AsyncIterator[FunctionRunner]:
    """Open the sandbox in which the code of chains runs."""
    with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
        async with FunctionRunner(Path(folder), LIMITS) as runner:
            yield runner


async def play_chain(
    backend: ExecutableBackend,
    state: Mapping[str, Any],
    code: str,
    *,
    reverse: bool = False,
    runner: FunctionRunner | None = None,
) -> PlayedChain:
    """Execute `chain(call)` from an initial state, up to the first call that fails.

    Args:
        backend: the environment's sandbox, as `open_sandbox` yields it.
        state: the initial state; it is not changed.
        code: source that defines `chain(call)`; `call(name, **arguments)` returns the result's data.
        reverse: whether the chain gets the rows of each result in reverse order. If it chooses rows by conditions and not by position, it has
            the same effect then.
        runner: an open runner for the code, if several chains are executed in turn; None: a new one is opened.
    """
    try:
        world = await backend.open(Task(id="chain", initial={"state": dict(state)}), seed=0)
    except UserError as error:
        return PlayedChain(fault=f"the state cannot be set up: {error}")
    try:
        async with contextlib.nullcontext(runner) if runner else open_runner() as running:
            return await _play_in_world(world, running, code, reverse=reverse)
    except Aborted as error:
        await require_sandbox(backend, error)
        return PlayedChain(fault=hide_addresses(error.detail or str(error.code)))
    finally:
        await world.close()


async def _play_in_world(world: ExecutableWorld, runner: FunctionRunner, code: str, *, reverse: bool) -> PlayedChain:
    played = PlayedChain()

    async def answer(name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        if played.fault is not None:
            return {"error": STOPPED}
        number = len(played.calls) + 1
        try:
            found = await call_tool(world, name, arguments)
        except ToolBroken as broken:
            played.fault = hide_addresses(f"call {number}, {broken}")
            return {"error": STOPPED}
        if "error" in found:
            played.fault = (
                f"call {number}, {name}({write_result(arguments)}) is refused: {found['error'][:MOST_RESULT]}"
            )
            return {"error": STOPPED}
        played.calls.append(Action(name=name, arguments=arguments))
        played.values.append(found["value"])
        return {"value": reverse_rows(found["value"]) if reverse else found["value"]}

    run: FunctionRun = await runner.run_with_calls(code, CHAIN_FUNCTION, answer)
    if played.fault is None and run.ended not in (Ending.RETURNED, Ending.NO_JSON):
        last = f"after call {len(played.calls)}, {played.calls[-1].name}: " if played.calls else ""
        played.fault = hide_addresses(f"{last}{run}")
    if played.fault is None:
        played.changes, played.final = await world.changes(), await world.state()
    return played


def reverse_rows(value: Any) -> Any:
    """The value with the objects of every list in the opposite order."""
    if isinstance(value, dict):
        return {key: reverse_rows(each) for key, each in value.items()}
    if isinstance(value, list):
        inner = [reverse_rows(each) for each in value]
        return inner[::-1] if all(isinstance(each, dict) for each in inner) else inner
    return value


def write_result(value: Any) -> str:
    """A result as a tool message shows it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find_effect_difference(own: PlayedChain, expected: PlayedChain, policies: Mapping[str, Match]) -> str | None:
    """Describe how the changes of a chain differ from the expected ones; None if the state reward finds them equal. Keys that tools make may
    differ."""
    if own.fault or expected.fault:
        return own.fault or expected.fault
    evidence = {"changes": own.changes, "expected": expected.changes}
    judged = judge_state(Trajectory(messages=list_messages(own), evidence=evidence), StateSpec(), policies)
    return None if judged.value == 1.0 else judged.reason


def list_messages(played: PlayedChain) -> list[Message]:
    """Write calls and results as messages of an episode; from them the state reward knows which keys were made by tools."""
    found: list[Message] = []
    for number, (call, value) in enumerate(zip(played.calls, played.values, strict=True)):
        made = ToolCall(id=str(number), name=call.name, arguments=call.arguments)
        result = Message(role="tool", content=write_result(value), call_id=made.id, name=call.name)
        found += [Message(role="assistant", calls=[made]), result]
    return found
