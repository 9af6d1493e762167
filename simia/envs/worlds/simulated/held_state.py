"""The state that a simulated world holds. It accepts the changes that the simulator reports, or refuses them with a reason.

Changes are checked against the pack's schema and the tables that the called tool declares to write. If the pack has code, the code also
loads the changed state, in the sandbox. It checks types that the schema lacks, fills in defaults, runs the schema's constraints, can answer
look-ups, and at the end gives the evidence for the rules, as in the executable world.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld, collect_evidence
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.keyed_changes import MOST_REASONS, KeyedChange, check_keyed_changes
from simia.pack import Pack
from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.sandbox.inside.frames import pack_json
from simia.state import apply_changes, diff_states
from simia.task import By, Task
from simia.trajectory import ToolCall

MOST_WORDS = 600


@dataclass(frozen=True, slots=True)
class ProposedState:
    """The state after an answer's changes, or the reasons for refusing them. The held state does not change yet."""

    state: dict[str, Any]
    faults: list[str]


class HeldState:
    """The state of one episode. Methods raise `Aborted` when the sandbox fails."""

    def __init__(
        self,
        pack: Pack,
        task: Task,
        seed: int,
        initial: dict[str, Any],
        now: dict[str, Any],
        code: ExecutableBackend | None,
    ) -> None:
        self.initial, self.now = initial, now
        self._pack, self._task, self._seed, self._code = pack, task, seed, code
        self._world: ExecutableWorld | None = None
        self._loaded: dict[str, Any] | None = None  # the state that is loaded in the pack's code
        self._guard = asyncio.Lock()

    async def propose(self, changes: Sequence[KeyedChange], writes: Collection[str] | None) -> ProposedState:
        """Check changes. `writes`: tables that the called tool declares to change; None: any."""
        if not changes:
            return ProposedState(self.now, [])
        state, faults = check_keyed_changes(self.now, changes, self._pack.state_schema, writes=writes)
        if faults or self._code is None:
            return ProposedState(state, faults)
        async with self._guard:
            try:
                loaded = await self._load(state)
            except ValueError as error:
                return ProposedState(self.now, [describe_refusal(error)])
        if loaded != diff_states(self.initial, state):
            given, state = state, share_tables(apply_changes(self.initial, loaded), state)
            faults = list_dropped_fields(given, state)
        faults += await self._check_constraints(loaded)
        return ProposedState(self.now if faults else state, faults)

    async def follow(self, changes: list[dict[str, Any]]) -> None:
        """Apply changes by path that another world made. If they do not fit this state, which may differ, none is applied."""
        try:
            self.now = share_tables(apply_changes(self.now, changes), self.now) if changes else self.now
        except (LookupError, TypeError, ValueError):
            return

    async def execute(self, call: ToolCall, by: By, calls: int) -> ToolResult:
        """Answer a look-up by the pack's code. `calls`: number of earlier calls in the episode, which sets the clock."""
        async with self._guard:
            try:
                await self._load(self.now)
            except ValueError as error:  # the same state loaded before
                raise Aborted(Code.WORKER_LOST, str(error)) from None
            assert self._world is not None
            self._world.count_calls(calls)
            return (await self._world.call([call], by))[0]

    async def collect_evidence(self, turns: Sequence[list[dict[str, Any]] | None]) -> dict[str, Any]:
        """Collect the evidence for scoring; without the pack's code, only the changes of the state."""
        changes = self.list_changes()
        if self._code is None:
            return {"changes": changes}
        return await collect_evidence(self._code, self._task, self._seed, changes, self.now, turns)

    def list_changes(self) -> list[dict[str, Any]]:
        """The changes by path since the start of the episode."""
        return diff_states(self.initial, self.now)

    async def close(self) -> None:
        """Close the pack's code."""
        world, self._world = self._world, None
        if world is not None:
            await world.close()

    async def _load(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Load a state in the pack's code, unless it is loaded. Returns the changes since the start; raises `ValueError` if it does not load."""
        if self._world is None:
            assert self._code is not None
            try:
                self._world = await self._code.open(self._task, seed=self._seed)
            except UserError as error:  # the same episode was opened before
                raise Aborted(Code.WORKER_LOST, str(error)) from None
            self._loaded = self.initial
        if self._loaded is state:
            return diff_states(self.initial, state)
        self._loaded = None
        found = await self._world.restore(state)
        self._loaded = state
        return found

    async def _check_constraints(self, changes: list[dict[str, Any]]) -> list[str]:
        """The schema's constraints that the changed state breaks."""
        schema = self._pack.state_schema
        if schema is None or not schema.constraints or self._code is None:
            return []
        reward = RewardSpec(parts=[ChecklistSpec(functions=schema.constraints)])
        task = self._task.model_copy(update={"reward": reward})
        found = await self._code.checks(task, self._seed, changes)
        return [f"the constraint {name} does not hold" for name in schema.constraints if found.get(name) is not True]


def describe_refusal(error: ValueError) -> str:
    """Explain to the model why the pack's code does not load a state."""
    lines = [line.strip() for line in str(error).splitlines() if "errors.pydantic.dev" not in line]
    return f"the system does not load this state: {' '.join(lines)}"[:MOST_WORDS]


def list_dropped_fields(given: dict[str, Any], loaded: dict[str, Any]) -> list[str]:
    """Describe the fields of a state that the pack's code dropped on loading."""
    gone = [change["path"] for change in diff_states(given, loaded) if "new" not in change]
    return [f"the system has no field {'/'.join(path)}" for path in gone][:MOST_REASONS]


def share_tables(state: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the state with equal tables and rows replaced by the objects of a known state, so that caches by object still apply."""
    found = dict[str, Any]()
    for name, value in state.items():
        other = known.get(name)
        if value is other or is_same_json(value, other):
            found[name] = other
        elif isinstance(value, dict) and isinstance(other, dict):
            found[name] = {
                key: other[key] if key in other and is_same_json(row, other[key]) else row for key, row in value.items()
            }
        else:
            found[name] = value
    return found


def is_same_json(one: Any, two: Any) -> bool:
    """Whether two values have the same JSON text, keys in the same order."""
    return pack_json(one) == pack_json(two)
