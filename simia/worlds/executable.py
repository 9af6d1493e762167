"""The executable back end: a pack's own code in the sandbox, one session a world.

The journal of a world lies here, outside: when its worker is killed, the session is built again from it in the next one,
and each repeated call must give what it gave before, else the episode is aborted (`replay_diverged`). Reads are not
repeated: what a call draws (time, ids, randomness) follows from its number, not from what ran before it.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
import json
import os
import resource
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import zstandard

from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.sandbox.inside.frames import pack as pack_json
from simia.sandbox.inside.frames import unpack as unpack_json
from simia.sandbox.limits import Limits
from simia.sandbox.worker import Lost, Slot
from simia.sandbox.zygote import Zygote
from simia.task import By, ChecklistSpec, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall, digest
from simia.worlds.world import ToolResult

OK, REFUSED, FAILED = 0, 1, 2
OUTSIDE = 0.15  # of a crash: what is ended from outside says little of the call that was running
CRASHES = 3  # a process may die for reasons of the machine's: so many times, alone, and it is the call's fault
COMPACT = 256  # writes from which on the journal is replaced by the state
MOST_ARGUMENTS = 1 << 20
KEPT = 4096  # expected changes kept, by task and seed
MOST_SHARED = 8
DESCRIPTORS = 65_536
Held = OrderedDict[tuple[str, int], "asyncio.Future[Any]"]


@dataclass(slots=True)
class Journal:
    """How to build the session again: the start, and the writes since, each with its number and what it gave."""

    spec: dict[str, Any]
    writes: list[tuple[By, str, dict[str, Any], int, str]] = field(default_factory=list)
    calls: int = 0


class ExecutableBackend:
    """One sandbox for one pack. `workers`: processes for shared episodes; isolated ones have one each."""

    def __init__(
        self,
        pack: Pack,
        *,
        limits: Limits | None = None,
        workers: int | None = None,
        isolation: str | None = None,
        unsafe: bool = False,
    ) -> None:
        if pack.executable is None or pack.root is None:
            raise UserError(f"pack {pack.name} has no executable world: its pack.yaml has no `executable`")
        self.pack, self.limits = pack, limits or Limits()
        self.isolated = (isolation or pack.executable.isolation) == "process"
        self._unsafe = unsafe
        self._zygote: Zygote | None = None
        self._slots: list[Slot] = []
        self._workers = workers or min(MOST_SHARED, max(1, (os.cpu_count() or 2) - 1))
        self._expected: Held = OrderedDict()
        self._untouched: Held = OrderedDict()
        self._guard = asyncio.Lock()
        self.specs: dict[By, dict[str, ToolSpec]] = {
            "agent": {tool.name: tool for tool in pack.tools},
            "user": {tool.name: tool for tool in pack.user_tools},
        }

    async def zygote(self) -> Zygote:
        """The pack's sandbox, started at the first use. Raises `UserError` for code that does not load, or no sandbox."""
        async with self._guard:
            if self._zygote is None:
                zygote = await asyncio.to_thread(self._make)
                await zygote.start()
                self._zygote = zygote
                if self.isolated:
                    more_descriptors()
        return self._zygote

    def _make(self) -> Zygote:
        pack, how = self.pack, self.pack.executable
        assert how is not None
        assert pack.root is not None
        python = None
        if how.python:
            from simia.trainers.environments import ensure

            python = str(ensure(how.python))
        state = pack.file.state if pack.file else None
        clock = how.clock.isoformat() if how.clock else None
        spec = {"code": how.code, "object": how.object, "state": state, "clock": clock}
        return Zygote(pack.root, spec, limits=self.limits, python=python, unsafe=self._unsafe)

    async def open(
        self, task: Task, *, seed: int = 0, group: str | None = None, snapshot: bytes | None = None
    ) -> ExecutableWorld:
        """A new episode's world; with `snapshot`, one that goes on from there. Raises `UserError` for an `initial` that does not fit."""
        journal = unpacked(snapshot) if snapshot else Journal({"initial": task.initial, "seed": seed})
        slot = await self._slot()
        world = ExecutableWorld(self, task, slot, journal, own=self.isolated)
        try:
            await world.begin()
        except BaseException:
            await world.close()
            raise
        return world

    async def _slot(self) -> Slot:
        zygote = await self.zygote()
        if self.isolated:
            return Slot(zygote, isolated=True)
        if len(self._slots) < self._workers and all(slot.sessions for slot in self._slots):
            self._slots.append(Slot(zygote, isolated=False))
        return min(self._slots, key=lambda slot: slot.sessions)

    # -- what scoring needs ---------------------------------------------------------------------------------------

    async def expected(self, task: Task, seed: int) -> list[dict[str, Any]]:
        """Changes that the reference solution makes, in a session of its own; a task without calls wants none."""
        if not task.actions:
            return []

        async def replay() -> list[dict[str, Any]]:
            world = await self.open(task, seed=seed)
            try:
                for action in task.actions:
                    await world.call([ToolCall(id="", name=action.name, arguments=action.arguments)], by=action.by)
                return await world.changes()
            finally:
                await world.close()

        found: list[dict[str, Any]] = await self._remember(self._expected, task, seed, replay)
        return found

    async def checks(self, task: Task, seed: int, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """The checklist's items on a state, in a fresh process: item → true, false, or "error: …"."""
        parts = [part for part in task.reward.parts if isinstance(part, ChecklistSpec)]
        if not parts:
            return {}
        functions = [name for part in parts for name in part.functions]
        if functions and not (self.pack.file and self.pack.file.checks):
            raise UserError(
                f"pack {self.pack.name}: task {task.id} names check functions, and pack.yaml no `checks` file"
            )
        spec = {
            "initial": task.initial,
            "seed": seed,
            "changes": changes,
            "functions": functions,
            "file": self.pack.file.checks if self.pack.file else None,
            "code": {item: source for part in parts for item, source in part.code.items()},
            "calls": [call for part in parts for call in part.calls],
        }
        slot = Slot(await self.zygote(), isolated=True)
        try:
            worker = await slot.worker()
            status, value = await worker.ask("checks", 0, spec, alone=True)
        except Lost as error:
            return dict.fromkeys(items_of(spec), f"error: {error.detail}")
        finally:
            await slot.close()
        if status != OK:
            return dict.fromkeys(items_of(spec), f"error: {value}")
        given = value if isinstance(value, dict) else {}
        return {
            item: found if isinstance(found := given.get(item), bool | str) else "error: the worker sent no answer"
            for item in items_of(spec)
        }

    async def at_reset(self, task: Task, seed: int) -> dict[str, Any]:
        """The checklist on the untouched state; what holds there says nothing of the agent."""
        found: dict[str, Any] = await self._remember(self._untouched, task, seed, lambda: self.checks(task, seed, []))
        return found

    async def _remember(self, held: Held, task: Task, seed: int, make: Callable[[], Awaitable[Any]]) -> Any:
        """Made once for a task and seed, also when a whole group asks at the same time."""
        key = (task.id, seed)
        found = held.get(key)
        if found is None:
            if len(held) >= KEPT:
                held.popitem(last=False)
            found = held[key] = asyncio.ensure_future(make())
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and held.get(key) is found:
                del held[key]
            raise

    @property
    def writes(self) -> dict[str, dict[str, bool]]:
        """By whom → tool → whether it may write. Known once the sandbox has started."""
        return self._zygote.tools if self._zygote else {}

    @property
    def by_convention(self) -> bool:
        """Whether the code follows `simia.kit`; known once the sandbox has started."""
        return bool(self._zygote and self._zygote.by_convention)

    async def declared(self) -> dict[str, Any]:
        """What the code says of its tools: by whom → name → {"writes", "parameters", "required"}."""
        return (await self.zygote()).declared

    async def close(self) -> None:
        for slot in self._slots:
            await slot.close()
        self._slots = []
        if self._zygote is not None:
            await self._zygote.close()
            self._zygote = None


def more_descriptors() -> None:
    """An isolated episode holds one: as many as this process may have, without asking for more than its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def items_of(spec: dict[str, Any]) -> list[str]:
    return [*spec["functions"], *spec["code"], *(f"{n}.{call['name']}" for n, call in enumerate(spec["calls"]))]


class ExecutableWorld:
    """One episode. Every failure of its code or worker becomes a result; only lost infrastructure raises `Aborted`."""

    def __init__(self, backend: ExecutableBackend, task: Task, slot: Slot, journal: Journal, *, own: bool) -> None:
        self._backend, self._task, self._slot, self._journal, self._own = backend, task, slot, journal, own
        self._seed = int(journal.spec["seed"])
        self._session = slot.number()
        self._generation, self._stale, self._born = -1, False, False
        self._writes = backend._zygote.tools if backend._zygote else {}
        self._guard = asyncio.Lock()
        slot.sessions += 1
        self.tools: Mapping[By, Sequence[ToolSpec]] = {
            "agent": backend.pack.tools,
            "user": backend.pack.user_tools,
        }

    async def begin(self) -> None:
        async with self._guard:
            try:
                await self._request("open", None)
            except Lost as error:
                raise Aborted(Code.WORKER_LOST, f"an episode cannot be set up: {error.detail}") from None

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        async with self._guard:
            return [await self._call(call, by) for call in calls]

    async def _call(self, call: ToolCall, by: By) -> ToolResult:
        journal = self._journal
        number, journal.calls = journal.calls, journal.calls + 1
        refused = self._refuse(call, by)
        if refused is not None:
            return refused
        arguments = call.arguments or {}
        try:
            status, value = await self._request("call", [by, call.name, arguments, number])
        except Lost as error:
            return failure(call, error.code, error.code.meaning, error.detail)
        if status == OK:
            try:
                content = value if isinstance(value, str) else pack_json(value).decode().strip()
                mark = fingerprint(value)
            except (TypeError, ValueError, RecursionError):  # forged: a worker's own answers can be written
                return failure(call, Code.TOOL_CRASHED, Code.TOOL_CRASHED.meaning, "the worker sent what is no answer")
            if self._writes.get(by, {}).get(call.name, True):
                journal.writes.append((by, call.name, arguments, number, mark))
                if len(journal.writes) > COMPACT:
                    await self._compact()
            return ToolResult(call.id, content, data=None if isinstance(value, str) else value)
        if status == REFUSED:
            # A foreign world's words are its own to the letter; ours travel as every other result does.
            if not self._backend.by_convention:
                return ToolResult(call.id, value, error=Code.TOOL_ERROR)
            return failure(call, Code.TOOL_ERROR, value)
        return failure(
            call, Code.TOOL_FAILED, f"{call.name} failed ({value.split(':')[0]}); nothing was changed", value
        )

    def _refuse(self, call: ToolCall, by: By) -> ToolResult | None:
        """What never reaches the pack's code: no such tool, arguments that are not JSON or break the schema."""
        specs = self._backend.specs[by]
        spec = specs.get(call.name)
        if spec is None:
            near = difflib.get_close_matches(call.name, specs, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(specs))}"
            return failure(call, Code.UNKNOWN_TOOL, f"there is no tool {call.name[:80]!r}; {hint}")
        if call.arguments is None and call.raw is not None:
            return failure(call, Code.UNPARSABLE_ARGUMENTS, "the arguments are not a JSON object")
        arguments = call.arguments or {}
        wrong = unfit(arguments)
        if wrong:
            return failure(call, Code.BAD_ARGUMENTS, wrong)
        errors = spec.argument_errors(arguments)
        if errors:
            words = "; ".join(f"{where}: {what}" if where else what for where, what in errors[:3])
            takes = ", ".join(spec.parameters.get("properties", {})) or "nothing"
            return failure(
                call, Code.BAD_ARGUMENTS, f"wrong arguments for {call.name}: {words[:600]}; it takes: {takes[:300]}"
            )
        return None

    async def state(self) -> Any:
        return await self.request("state")

    async def evidence(self) -> dict[str, Any]:
        """What the scorers read: `changes` of the state since the start; `expected`, those of the reference solution; `checks`,
        the checklist's items on the final state, and `at_reset`, on the untouched one."""
        backend, task, seed = self._backend, self._task, self._seed
        changes = await self.changes()
        found: dict[str, Any] = {"changes": changes}
        if any(part.kind == "state" for part in task.reward.parts):
            found["expected"] = await backend.expected(task, seed)
        if any(part.kind == "checklist" for part in task.reward.parts):
            found["checks"] = await backend.checks(task, seed, changes)
            found["at_reset"] = await backend.at_reset(task, seed)
        return found

    async def changes(self) -> list[dict[str, Any]]:
        """From the start of the episode to now. Raises `Aborted` for what is no list of changes."""
        found = await self.request("changes")
        if not isinstance(found, list) or not all(is_change(each) for each in found):
            raise Aborted(Code.TOOL_FAILED, "the worker sent changes that are none")
        return found

    async def initial(self) -> Any:
        """The state at the start of the episode."""
        return await self.request("initial")

    async def request(self, what: str) -> Any:
        """Something of the session that is no call. Raises `Aborted`."""
        async with self._guard:
            try:
                status, value = await self._request(what, None)
            except Lost as error:
                raise Aborted(Code.WORKER_LOST, error.detail) from None
            if status != OK:
                raise Aborted(Code.TOOL_FAILED, str(value))
            return value

    async def snapshot(self) -> bytes:
        """The start and the writes since, as compressed JSON. Opened again, it is replayed and compared."""
        async with self._guard:
            journal = self._journal
            body = {"version": 1, "spec": journal.spec, "writes": journal.writes, "calls": journal.calls}
            return zstandard.compress(pack_json(body))

    async def close(self) -> None:
        self._slot.sessions -= 1
        if self._own:
            await self._slot.close()
        elif (worker := self._slot.live) is not None and self._generation == self._slot.generation:
            worker.ask("close", self._session, None).add_done_callback(lambda f: f.cancelled() or f.exception())

    # -- the session in its worker --------------------------------------------------------------------------------

    async def _request(self, what: str, detail: Any) -> list[Any]:
        """One request, asked again when another one ended the worker. Raises `Lost` when it is this one that does."""
        alone, crashes = False, 0.0
        for _ in itertools.count():
            try:
                await self._ensure()
                if what == "open":
                    return [OK, None]
                worker = self._slot.live
                if worker is None or self._generation != self._slot.generation:
                    continue
                return await worker.ask(what, self._session, detail, alone=alone)
            except asyncio.CancelledError:
                # The worker goes on with what nobody waits for: its session is no longer what the journal says.
                self._generation, self._stale = -1, True
                raise
            except Lost as error:
                if error.alone or self._own:  # in a process of its own nobody else can be at fault
                    crashes += OUTSIDE if error.outside else 1
                    if error.sure or crashes >= CRASHES:
                        raise
                alone = alone or error.code is not Code.WORKER_LOST
        raise AssertionError

    async def _ensure(self) -> None:
        """The session lives in the present worker: opened there, or built again from the journal."""
        if self._slot.live is not None and self._generation == self._slot.generation:
            return
        if self._stale and self._own and (held := self._slot.live) is not None:
            await held.close()
        self._stale = False
        try:
            worker = await self._slot.worker()
        except UserError as error:
            if self._born:
                raise Aborted(Code.WORKER_LOST, str(error)) from None  # it did load before
            raise
        generation, journal = self._slot.generation, self._journal
        status, value = await worker.ask("open", self._session, journal.spec)
        if status != OK:
            raise UserError(f"pack {self._backend.pack.name}: an episode cannot be set up: {value}")
        for by, name, arguments, number, before in journal.writes:
            status, value = await worker.ask("call", self._session, [by, name, arguments, number])
            if status != OK or fingerprint(value) != before:
                raise Aborted(Code.REPLAY_DIVERGED, f"{name}, call {number}")
        self._generation, self._born = generation, True

    async def _compact(self) -> None:
        """A long journal becomes the state that it leads to."""
        status, state = await self._request("state", None)
        if status == OK:
            self._journal.spec = {**self._journal.spec, "state": state}
            self._journal.writes.clear()


def failure(call: ToolCall, code: Code, words: str, detail: str = "") -> ToolResult:
    """An error as an observation: what is wrong in words, in the form of every other result."""
    data = {"error": words.encode(errors="replace").decode()}
    return ToolResult(call.id, orjson.dumps(data).decode(), data=data, error=code, detail=detail)


def unpacked(snapshot: bytes) -> Journal:
    body = unpack_json(zstandard.decompress(snapshot))
    if body.get("version") != 1:
        raise UserError("this snapshot was made by another version of simia: start the episode anew")
    return Journal(body["spec"], [tuple(write) for write in body["writes"]], body["calls"])


def is_change(each: Any) -> bool:
    if not isinstance(each, dict) or not each.keys() <= {"path", "old", "new"} or each.keys() == {"path"}:
        return False
    path = each.get("path")
    return isinstance(path, list) and all(isinstance(step, str) for step in path)


def fingerprint(value: Any) -> str:
    return digest(value)


def unfit(arguments: dict[str, Any]) -> str | None:
    """Why arguments cannot be sent at all: NaN, half a Unicode character, absurd size or depth."""
    try:
        size = len(json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except ValueError as error:
        return (
            "the arguments hold half a Unicode character"
            if isinstance(error, UnicodeError)
            else "the arguments hold NaN or Infinity"
        )
    except RecursionError:
        return "the arguments nest too deep"
    except TypeError:
        return "the arguments are not JSON"
    return f"the arguments are {size:,} bytes, more than {MOST_ARGUMENTS:,}" if size > MOST_ARGUMENTS else None


def open_backend(pack: Pack, **settings: Any) -> ExecutableBackend:
    """For the entry point `simia.backends`."""
    return ExecutableBackend(pack, **settings)
