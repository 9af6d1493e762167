"""Two worlds for one episode: some tools executed and others simulated (`mixed`), or both on the same calls (`shadow`).

`mixed`: each tool has its own back end (`{"*": "simulated", "find_customer": "executable"}`): safe tools are executed, dangerous or missing
ones are simulated. The simulator sees the results of executed tools; executed tools do not see simulated changes. So a simulated tool must
not write a table that an executed tool reads: bookings would be simulated, and the real list of bookings would stay empty.

`shadow`: the agent plays the executable world, and the simulator also answers each call. By default the simulator's history holds the
true answers (`forced`), so that each call is compared by itself; otherwise it holds the simulator's own answers.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from simia.envs.worlds.arguments import make_failure
from simia.envs.worlds.compare_transitions import compare_transition
from simia.envs.worlds.compare_worlds import change_distance, pair_identifiers, rename_identifiers
from simia.envs.worlds.executable import make_executable_backend as executable
from simia.envs.worlds.executable_settings import ExecutableSettings
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall
from simia.envs.worlds.simulated.stateful_world import StatefulWorld
from simia.envs.worlds.simulated.world import SimulatedWorld
from simia.envs.worlds.world import ToolResult
from simia.errors import WAITING, Aborted, Code, UserError
from simia.json_values import iterate_strings
from simia.llm.engine import Engine
from simia.pack import Pack
from simia.state import count_leaf_changes, diff_states
from simia.task import By, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall, write_compact_json

log = logging.getLogger(__name__)
EXECUTABLE = ExecutableSettings.model_fields.keys()


class PairBackend:
    """The back end of both modes. `real`: the executed tools of `mixed`; None: `shadow`, in which every tool is executed and simulated."""

    def __init__(self, pack: Pack, *, real: set[str] | None = None, forced: bool = True, **settings: Any) -> None:
        self.pack, self.real, self.forced = pack, real, forced
        self.has_tables = pack.executable is not None and pack.executable.isolation != "sandbox"
        """Whether the code's state is JSON in memory, so that changes can be compared. With `isolation: sandbox` the state is files."""
        split_state = bool(settings.pop("split_state", False))
        if real is not None:
            refuse_split_state(pack, real, allowed=split_state)
        run = {name: settings.pop(name) for name in EXECUTABLE & settings.keys()}
        self.executable = executable(pack, **run)
        self.simulated = SimulatedBackend(pack, code=self.executable, **settings)

    def use(self, engine: Engine) -> None:
        """Ask this engine for simulated answers from now on."""
        self.simulated.use(engine)

    async def start(self) -> None:
        await self.executable.start()

    async def open(
        self, task: Task, *, seed: int = 0, group: str | None = None, snapshot: bytes | None = None
    ) -> PairWorld:
        one, two, differences, names, seen = None, None, [], dict[str, str](), set[str]()
        if snapshot is not None:
            body = orjson.loads(snapshot)
            one, two = (base64.b64decode(body[name]) for name in ("executable", "simulated"))
            differences, names, seen = body["differences"], body.get("names", {}), set(body.get("seen", []))
        real = await self.executable.open(task, seed=seed, group=group, snapshot=one)
        try:
            simulated = await self.simulated.open(task, seed=seed, group=group, snapshot=two)
        except BaseException:
            await real.close()
            raise
        return PairWorld(self, real, simulated, differences, names, seen)

    async def close(self) -> None:
        await self.executable.close()
        await self.simulated.close()


@dataclass
class PairWorld:
    """One episode that is played in both worlds."""

    backend: PairBackend
    real: ExecutableWorld
    simulated: SimulatedWorld
    differences: list[dict[str, Any]] = field(default_factory=list)
    """In `shadow`: one row per call, with both results; `shown`: the prompt's example of the tool's results is this call's own result."""
    names: dict[str, str] = field(default_factory=dict)
    """In `shadow`: identifiers that the simulator invented → the real ones."""
    seen: set[str] = field(default_factory=set)
    """In `shadow`: texts of earlier arguments and real results."""
    real_state: Any = None
    """In `shadow`, and where the simulated world holds a state: the real state before the next call."""

    def __post_init__(self) -> None:
        self.tools: Mapping[By, Sequence[ToolSpec]] = self.real.tools

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        found: list[ToolResult] = []
        for call in calls:
            if found and found[-1].ends:
                found.append(replace(make_failure(call, Code.FINISHED, Code.FINISHED.meaning), ends=True))
            elif self.backend.real is None:
                found.append(await self._call_both(call, by))
                self._pass_call()
            elif call.name in self.backend.real:
                await self._start_state()
                result = (await self.real.call([call], by))[0]
                self._tell(call, by, result)
                await self._follow_state(await self._read_changes(call, by, result))
                self._pass_call()
                found.append(result)
            else:
                found += await self.simulated.call([call], by)
        return found

    async def follow(self, call: ToolCall, by: By = "agent") -> ToolResult:
        """In `shadow`: make a call in the real world and tell the simulator its result, without asking for its answer."""
        await self._start_state()
        result = (await self.real.call([call], by))[0]
        self._tell(call, by, result)
        await self._follow_state(await self._read_changes(call, by, result))
        self.seen.update(iterate_strings([call.arguments, result_to_row(result)["content"]]))
        self._pass_call()
        return result

    async def _call_both(self, call: ToolCall, by: By) -> ToolResult:
        await self._start_state()
        before = self.real_state
        result = (await self.real.call([call], by))[0]
        if call.arguments is None or self.backend.simulated.specs[by].get(call.name) is None:
            return result
        if self.backend.simulated.specs[by][call.name].argument_errors(call.arguments):
            return result  # both worlds refuse such a call alike, before it runs
        changes = await self._read_changes(call, by, result)
        step = len(self.differences) + 1
        row: dict[str, Any] = {
            "step": step,
            "name": call.name,
            "arguments": call.arguments,
            "real": result_to_row(result),
        }
        if self.backend.simulated.feedback.shows_result(call, result.content):
            row["shown"] = True
        try:
            answer, issue = (await self.simulated.predict([call], by))[0]
            row |= {
                "simulated": {"content": answer.content, "failed": answer.failed},
                **({"issue": issue} if issue else {}),
            }
            if isinstance(self.simulated, StatefulWorld):
                row["simulated"]["changes"] = answer.changes
            self.seen.update(iterate_strings(call.arguments))
            if self._may_write(call, by) and not result.error and not answer.failed:
                self.names |= pair_identifiers(row["real"]["content"], answer.content, self.seen)
            self.seen.update(iterate_strings(row["real"]["content"]))
            if self.names:
                row["names"] = dict(self.names)
            if self.backend.has_tables:
                row["transition"] = compare_transition(
                    before, self.real_state, call, row["real"]["content"], answer.content, answer.changes,
                    schema=self.backend.pack.state_schema, policies=self.backend.pack.match, names=self.names,
                )  # fmt: skip
            if not self.backend.forced:
                self.names |= row.get("transition", {}).get("names", {})  # the held state keeps these keys
                if isinstance(self.simulated, StatefulWorld):
                    await self.simulated.settle(call, answer, by)
                    held = rename_identifiers(await self.simulated.state(), self.names)
                    row["drift"] = count_leaf_changes(held, self.real_state)
                else:
                    self.simulated.take(AnsweredCall(by, call.name, call.arguments, answer))
                row["distance"] = await self._distance()
        except Aborted as error:  # a failed simulation must not affect the episode
            if error.code in WAITING and not self.backend.forced:
                raise  # the next request depends on this answer
            row["lost"] = f"{error.code}: {error.detail}"
        if self.backend.forced or "lost" in row:
            self._tell(call, by, result)
            await self._follow_state(changes)
        self.differences.append(row)
        return result

    def _may_write(self, call: ToolCall, by: By) -> bool:
        return self.backend.executable.writes.get(by, {}).get(call.name, True)

    def _pass_call(self) -> None:
        if isinstance(self.simulated, StatefulWorld):
            self.simulated.pass_call()

    async def _distance(self) -> float:
        """Measure how far the changes that the simulator reported are from the real ones."""
        if isinstance(self.simulated, StatefulWorld):
            return change_distance(await self.real.changes(), await self.simulated.changes(), self.names, by_path=True)
        reported = (await self.simulated.evidence())["simulated"]
        return change_distance(await self.real.changes(), reported, self.names)

    def _tell(self, call: ToolCall, by: By, result: ToolResult) -> None:
        """Record a real answer in the simulated world's history."""
        content = result.data if result.data is not None else result.content
        answer = Answer(content, failed=result.error is not None)
        self.simulated.take(AnsweredCall(by, call.name, call.arguments or {}, answer))

    async def _follow_state(self, changes: list[dict[str, Any]]) -> None:
        """Apply the changes of the real state to the simulated world's state, if it holds one."""
        if isinstance(self.simulated, StatefulWorld):
            await self.simulated.follow(changes)

    @property
    def _reads_state(self) -> bool:
        return self.backend.has_tables if self.backend.real is None else isinstance(self.simulated, StatefulWorld)

    async def _start_state(self) -> None:
        """Read the real state before the first call."""
        if self.real_state is None and self._reads_state:
            self.real_state = await self.real.state()

    async def _read_changes(self, call: ToolCall, by: By, result: ToolResult) -> list[dict[str, Any]]:
        """Return the changes of the real state by an executed call."""
        if not self._reads_state or result.error is not None or not self._may_write(call, by):
            return []
        before, self.real_state = self.real_state, await self.real.state()
        return diff_states(before, self.real_state)

    @property
    def _whole(self) -> ExecutableWorld | StatefulWorld:
        """The world whose state has all changes: in `mixed` the simulated one, where it holds a state."""
        simulated = self.simulated if self.backend.real is not None else None
        return simulated if isinstance(simulated, StatefulWorld) else self.real

    async def state(self) -> Any:
        return await self._whole.state()

    async def changes(self) -> list[dict[str, Any]]:
        return await self._whole.changes()

    async def evidence(self, turns: Sequence[list[dict[str, Any]] | None] = ()) -> dict[str, Any]:
        found = dict(await self.real.evidence(turns))
        if self.backend.real is None:
            own = not self.backend.forced and isinstance(self.simulated, StatefulWorld)
            held = {"held": await self.simulated.evidence()} if own else {}
            return {**found, **held, "differences": self.differences}
        return {**found, **await self.simulated.evidence()}

    async def snapshot(self) -> bytes:
        one, two = await self.real.snapshot(), await self.simulated.snapshot()
        body = {"executable": base64.b64encode(one).decode(), "simulated": base64.b64encode(two).decode()}
        shadow = {"differences": self.differences, "names": self.names, "seen": sorted(self.seen)}
        return write_compact_json({**body, **shadow}).encode()  # the calls of a model may hold integers beyond 64 bits

    async def close(self) -> None:
        await self.real.close()
        await self.simulated.close()


def result_to_row(result: ToolResult) -> dict[str, Any]:
    content = result.data if result.data is not None else result.content
    return {"content": content, "failed": result.error is not None}


def refuse_split_state(pack: Pack, real: set[str], *, allowed: bool) -> None:
    """Refuse a simulated tool that writes a table which an executed one reads or writes, by the tools' declared contracts.

    Raises a `UserError` that names both tools, or logs a warning if it is `allowed` or the contracts are not declared.
    """
    tools = [*pack.tools, *pack.user_tools]
    executed = [tool for tool in tools if tool.name in real]
    for tool in tools:
        if tool.name in real or tool.writes == []:
            continue
        for other in executed:
            if tool.writes is None or (other.reads is None and other.writes is None):
                log.warning(
                    "%s is simulated and %s is executed: if %s changes what %s reads, its changes are not seen. "
                    "Declare reads and writes in tools.json", tool.name, other.name, tool.name, other.name,
                )  # fmt: skip
                return
            shared = sorted(set(tool.writes) & {*(other.reads or []), *(other.writes or [])})
            if not shared:
                continue
            where = f"{tool.name} is simulated and writes {shared[0]}, which the executed {other.name} reads"
            if not allowed:
                raise UserError(
                    f"pack {pack.name}: {where} and would not see it: simulate both, execute both, or set split_state: true"
                )
            log.warning("%s and does not see it", where)


def make_mixed_backend(pack: Pack, routes: Mapping[str, str], **settings: Any) -> PairBackend:
    """`routes`: tool → `executable` or `simulated`; `*`: all the others (simulated unless it says otherwise)."""
    names = {tool.name for tool in (*pack.tools, *pack.user_tools)}
    unknown = sorted(routes.keys() - names - {"*"})
    if unknown:
        raise UserError(f"pack {pack.name} has no tool {unknown[0]!r} to choose a back end for")
    wrong = sorted(set(routes.values()) - {"executable", "simulated"})
    if wrong:
        raise UserError(f"a tool's back end is executable or simulated, not {wrong[0]!r}")
    real = {name for name in names if routes.get(name, routes.get("*", "simulated")) == "executable"}
    return PairBackend(pack, real=real, **settings)


def make_shadow_backend(pack: Pack, **settings: Any) -> PairBackend:
    """Make the back end `shadow`, not started."""
    return PairBackend(pack, **settings)
