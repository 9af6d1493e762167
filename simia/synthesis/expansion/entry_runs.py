"""Try to execute the tools that shall enter a subgraph, with proposed arguments, until one call succeeds (ScaleEnv §4.2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.authoring.tool_tests import BROKEN
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted
from simia.state import diff_states
from simia.synthesis.building.tool_runs import find_state_breach, hide_addresses, require_sandbox
from simia.synthesis.design import BuiltEnvironment, ToolDesign
from simia.task import Action, Task

MOST_TRIED = 40  # most calls of one tool from one start
SHOWN = 3  # faults of one tool that are kept
LONGEST_FAULT = 300


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """The call by which a tool entered a subgraph."""

    call: Action
    """The call, with literal arguments."""
    value: Any
    """What it returned."""
    before: tuple[Action, ...] = ()
    """Calls of the chain that were made first; empty: it succeeds at the start of the episode."""


@dataclass(slots=True)
class EntryTrial:
    """The result of the calls of one tool."""

    entry: ToolEntry | None = None
    """The call that succeeded."""
    faults: list[str] = field(default_factory=list)
    """Why other calls failed, each message once."""

    def add_fault(self, arguments: Mapping[str, Any], message: str) -> None:
        """Keep one of the first messages, with the arguments that led to it."""
        words = message[:LONGEST_FAULT]
        if len(self.faults) < SHOWN and not any(fault.endswith(words) for fault in self.faults):
            self.faults.append(f"{dict(arguments)}: {words}")


async def try_tool(
    backend: ExecutableBackend,
    built: BuiltEnvironment,
    state: Mapping[str, Any],
    chain: Sequence[Action],
    tool: str,
    proposals: Iterable[Mapping[str, Any]],
) -> EntryTrial:
    """Call a tool with proposed arguments at the start of the episode, then after the chain, up to the first success.

    If a call succeeds but returns nothing and changes nothing, further arguments are tried; it counts if no other call gives more.
    """
    design = next(each for each in built.design.tools if each.name == tool)
    tried = [dict(arguments) for _, arguments in zip(range(MOST_TRIED), proposals, strict=False)]
    trial = EntryTrial()
    for before in ((), tuple(chain)):
        try:
            if await _try_from(backend, built, state, before, design, tried, trial):
                break
        except Aborted as error:
            await require_sandbox(backend, error)
            trial.add_fault({}, hide_addresses(error.detail or str(error.code)))
            break
    return trial


async def _try_from(
    backend: ExecutableBackend,
    built: BuiltEnvironment,
    state: Mapping[str, Any],
    before: tuple[Action, ...],
    tool: ToolDesign,
    tried: Sequence[dict[str, Any]],
    trial: EntryTrial,
) -> bool:
    """Try the calls in one world. Returns whether the search has ended: a call succeeded, or failed other than by a refusal."""
    async with await backend.open(Task(id=f"entry/{tool.name}", initial={"state": dict(state)}), seed=0) as world:
        for call in before:
            await world.call_one(call.name, call.arguments)
        start = await world.state()
        for arguments in tried:
            call = Action(name=tool.name, arguments=arguments)
            result = await world.call_one(tool.name, arguments)
            if result.error is not None:
                trial.add_fault(arguments, hide_addresses(result.detail or result.content))
                if result.error in BROKEN:
                    return True
                continue
            after = await world.state()
            changes = diff_states(start, after)
            if breach := find_state_breach(built.design, tool, changes, after):
                trial.add_fault(arguments, breach[1])
                return True
            value = result.data if result.data is not None else result.content
            if trial.entry is None or not says_nothing(value):
                trial.entry = ToolEntry(call, value, before)
            if changes or not says_nothing(value):
                return True
    return trial.entry is not None


async def replay_entries(
    backend: ExecutableBackend, state: Mapping[str, Any], entries: Iterable[ToolEntry]
) -> str | None:
    """Repeat the calls of entered tools, each in a new world. Returns what is wrong with the first that fails; None if all succeed."""
    for entry in entries:
        async with await backend.open(
            Task(id=f"entry/{entry.call.name}", initial={"state": dict(state)}), seed=0
        ) as world:
            for call in (*entry.before, entry.call):
                result = await world.call_one(call.name, call.arguments)
            if result.error is not None:
                return f"{entry.call.name}({entry.call.arguments}) no longer succeeds: {result.content[:LONGEST_FAULT]}"
    return None


def says_nothing(value: Any) -> bool:
    """Whether a result is empty: null, an empty text or list, or an object with only such values, zeros and false."""
    if isinstance(value, dict):
        return all(says_nothing(each) or each in (0, False) for each in value.values())
    return value is None or value in ("", "[]", "{}", "null") or value == []
