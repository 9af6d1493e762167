"""The executable back end: a pack's own code in the sandbox. All worlds of the pack share it, and it runs the checks for scoring."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from simia.config import parse_config
from simia.envs.rewards.checklist import TIMED_OUT, list_timed_out
from simia.envs.worlds.executable_settings import ExecutableSettings
from simia.envs.worlds.executable_world import OK, ExecutableWorld
from simia.envs.worlds.journal import EpisodeJournal, unpack_journal
from simia.envs.worlds.pack_requests import (
    choose_isolation,
    find_interpreter,
    list_granted_binds,
    list_needed_folders,
    read_variables,
)
from simia.envs.worlds.worker_parents import parents
from simia.errors import Aborted, Code, UserError
from simia.event_loop import start_shared
from simia.pack import Pack
from simia.pack_files import RECORD, read_state
from simia.reward_spec import ChecklistSpec
from simia.sandbox.bubblewrap import PrivateFolder
from simia.sandbox.limits import WorkerLimits
from simia.sandbox.worker import Answer, WorkerLost, WorkerSlot
from simia.sandbox.zygote import ForkServer
from simia.task import Action, By, Task
from simia.tool import ToolSpec

NEVER_INSIDE = ("tasks", "tests", "seeds", "references", "instructions")  # files of a pack that no code of it may read
KEPT = 4096  # expected changes kept, by task and seed
MOST_SHARED = 8
TRIES = 3  # processes that try to run a checklist, as long as other processes end them
DESCRIPTORS = 65_536
PlayedCalls = tuple[list[dict[str, Any]], list[str]]  # changes since the start, and what the calls returned
Held = OrderedDict[tuple[str, int], "tuple[Task, asyncio.Future[Any]]"]


def check_code(pack: Pack, where: str = "") -> None:
    """Raise `UserError` for a pack without code. `where`: the section of the settings, for the message, as `stage.`."""
    if pack.executable is None or pack.root is None:
        raise UserError(
            f"pack {pack.name} has no executable world: its pack.yaml has no `executable`; let a model play its tools: "
            f"--set {where}backend=simulated"
        )


class ExecutableBackend:
    """One sandbox for one pack. `workers`: processes for shared episodes; isolated ones have one each."""

    def __init__(
        self,
        pack: Pack,
        *,
        limits: WorkerLimits | None = None,
        workers: int | None = None,
        isolation: str | None = None,
        unsafe: bool = False,
        network: bool = False,
        variables: list[str] | None = None,
        read: list[str] | None = None,
    ) -> None:
        """`network`, `variables`, `read`: grants that only the user can give: the machine's network, names of environment variables,
        and files or folders of the host to read. `unsafe` code can read whatever you can, so it needs no `read` grant."""
        check_code(pack)
        assert pack.executable is not None
        self.pack, self.limits = pack, limits or WorkerLimits()
        chosen = isolation or choose_isolation(pack)
        self.isolated, self.alone = chosen != "shared", chosen == "sandbox"
        if (network or variables) and not self.alone:
            raise UserError(
                f"pack {pack.name}: network and variables can be granted only to packs with `isolation: sandbox`"
            )
        self.repeatable = pack.executable.repeatable
        self._unsafe, self._network, self._variables = unsafe, network, read_variables(variables or [])
        self._granted = () if unsafe else list_granted_binds(pack, read or [])
        self._zygote: ForkServer | None = None
        self._checker: ForkServer | None = None
        self._slots: list[WorkerSlot] = []
        self._twins: weakref.WeakSet[ForkServer] = weakref.WeakSet()
        self._workers = workers or min(MOST_SHARED, max(1, (os.cpu_count() or 2) - 1))
        self._expected: Held = OrderedDict()
        self._expected_turns: Held = OrderedDict()
        self._untouched: Held = OrderedDict()
        self._guard = asyncio.Lock()
        self._releasing = asyncio.Lock()
        self._closed = False
        self.sessions = self.requests = 0
        self.specs: dict[By, dict[str, ToolSpec]] = {
            "agent": {tool.name: tool for tool in pack.tools},
            "user": {tool.name: tool for tool in pack.user_tools},
        }

    async def start(self) -> None:
        """Start the sandbox and load the pack's code."""
        await self.start_zygote()

    async def start_zygote(self) -> ForkServer:
        """Return the pack's sandbox, started at the first use. Raises `UserError` if the code does not load or no sandbox can start."""
        async with self._guard:
            self._refuse_closed()
            if self._zygote is None:
                zygote = await asyncio.to_thread(self._make)
                await zygote.start()
                self._zygote = zygote
                if self.isolated:
                    raise_descriptor_limit()
        return self._zygote

    async def start_checker(self) -> ForkServer:
        """Return the sandbox for checks. If the pack has hidden files, this one can read them; else it is the pack's own sandbox."""
        zygote = await self.start_zygote()
        if self._unsafe or not zygote.veils:
            return zygote
        async with self._guard:
            self._refuse_closed()
            if self._checker is None:
                checker = await asyncio.to_thread(self._make)
                checker.unveiled = True
                await checker.start()
                self._checker = checker
        return self._checker

    def _make(self) -> ForkServer:
        pack, how = self.pack, self.pack.executable
        assert how is not None
        assert pack.root is not None
        python = find_interpreter(how.python) if how.python else sys.executable
        state = pack.file.state if pack.file else None
        if state is not None and state.endswith(".json") and (path := pack.path_of("state")) is not None:
            read_state(path)  # the sandbox reads it too, but a reader of JSON keeps only the last of two equal keys
        clock = how.clock.isoformat() if how.clock else None
        spec = {"code": how.code, "object": how.object, "state": state, "clock": clock}
        room = PrivateFolder(how.root, self.limits.folder, self._network) if self.alone else None
        return ForkServer(
            pack.root, spec, limits=self.limits, python=python, unsafe=self._unsafe, room=room, needs=list_needed_folders(how),
            granted=self._granted, variables=self._variables, hides=(*list_pack_files(pack, *NEVER_INSIDE), RECORD), veils=(*list_pack_files(pack, "checks"), *how.hidden),
        )  # fmt: skip

    async def open(
        self, task: Task, *, seed: int = 0, group: str | None = None, snapshot: bytes | None = None
    ) -> ExecutableWorld:
        """Open an episode's world; with `snapshot`, continue from there. Raises `UserError` for an `initial` that does not fit."""
        journal = unpack_journal(snapshot) if snapshot else EpisodeJournal({"initial": task.initial, "seed": seed})
        self.sessions += 1
        world: ExecutableWorld | None = None
        self.requests += 1
        try:
            await self.enter()
            world = ExecutableWorld(self, task, await self._slot(), journal, own=self.isolated)
            await world.begin()
        except BaseException:
            if world is not None:
                await world.close()
            else:
                self.sessions -= 1
            raise
        finally:
            self.requests -= 1
        return world

    async def enter(self) -> None:
        """Wait, before each request, until the sandbox may run. It is not ended while `requests` is above 0."""
        self._refuse_closed()
        async with self._releasing:
            pass
        await parents.enter(self)

    def _refuse_closed(self) -> None:
        """Raise `Aborted` after `close`: a sandbox that started then would not be ended."""
        if self._closed:
            raise Aborted(Code.WORKER_LOST, f"the environment of pack {self.pack.name} is closed")

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether running episodes survive the end of the sandbox. False with a sandbox per episode, since these are copies that it owns."""
        return self.repeatable and not self.alone

    async def release(self) -> None:
        """End the sandbox and its workers. The next use starts it again; episodes are rebuilt from their journals."""
        async with self._releasing:
            for slot in self._slots:
                await slot.close()
            for zygote in (self._checker, self._zygote):
                if zygote is not None:
                    await zygote.close()

    async def _slot(self) -> WorkerSlot:
        if self.isolated:
            return await self._single()
        zygote = await self.start_zygote()
        if len(self._slots) < self._workers and all(slot.sessions for slot in self._slots):
            self._slots.append(WorkerSlot(zygote, isolated=False))
        return min(self._slots, key=lambda slot: slot.sessions)

    async def _single(self, *, checks: bool = False) -> WorkerSlot:
        """Make a process that serves one episode or one check, in a sandbox of its own where the pack asks for it."""
        if not self.alone:
            return WorkerSlot(await (self.start_checker() if checks else self.start_zygote()), isolated=True)
        twin = (await self.start_zygote()).make_twin(checks=checks)
        self._twins.add(twin)
        return WorkerSlot(twin, isolated=True, own=True)

    # -- what scoring needs ---------------------------------------------------------------------------------------

    async def expected(self, task: Task, seed: int) -> list[dict[str, Any]]:
        """Return the changes of the reference solution, played in a session of its own; a task without calls has none."""
        if not task.actions:
            return []
        played = await self._remember(self._expected, task, seed, lambda: self._play(task, seed, [task.actions]))
        changes: list[dict[str, Any]] = played[-1][0]
        return changes

    async def expected_turns(self, task: Task, seed: int) -> list[list[dict[str, Any]]]:
        """Return the changes since the start after each goal of the reference, played in a session of its own."""
        return [changes for changes, _ in await self._play_goals(task, seed)]

    async def expected_results(self, task: Task, seed: int) -> list[list[str]]:
        """Return the texts that the calls of each goal of the reference return."""
        return [results for _, results in await self._play_goals(task, seed)]

    async def _play_goals(self, task: Task, seed: int) -> list[PlayedCalls]:
        calls = [goal.calls for goal in task.goals]
        found: list[PlayedCalls] = await self._remember(
            self._expected_turns, task, seed, lambda: self._play(task, seed, calls)
        )
        return found

    async def _play(self, task: Task, seed: int, groups: Sequence[Sequence[Action]]) -> list[PlayedCalls]:
        """Play groups of calls in a session of their own: the changes since the start after each group, and the results of its calls."""
        world = await self.open(task, seed=seed)
        try:
            found = []
            for group in groups:
                results = [(await world.call_one(each.name, each.arguments, each.by)).content for each in group]
                found.append((await world.changes(), results))
            return found
        finally:
            await world.close()

    async def is_readable(self, task: Task, seed: int) -> bool:
        """Whether the state of a new episode can be read now; if so, the sandbox and the pack work."""
        try:
            world = await self.open(task, seed=seed)
            try:
                await world.state()
                await world.changes()
            finally:
                await world.close()
        except (Aborted, UserError):
            return False
        return True

    async def checks(self, task: Task, seed: int, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """Run the checklist on a state in a fresh process. Returns item → true, false or "error: …"; `TIMED_OUT` begins a timeout's error."""
        parts = [part for part in task.reward.parts if isinstance(part, ChecklistSpec)]
        if not parts:
            return {}
        functions = [name for part in parts for name in part.functions]
        if functions and not (self.pack.file and self.pack.file.checks):
            raise UserError(f"pack {self.pack.name}: task {task.id} names check functions, but pack.yaml has no checks")
        spec = {
            "initial": task.initial,
            "seed": seed,
            "changes": changes,
            "functions": functions,
            "file": self.pack.file.checks if self.pack.file else None,
            "code": {item: source for part in parts for item, source in part.code.items()},
            "calls": [call for part in parts for call in part.calls],
        }
        try:
            status, value = await self._run_checks(spec)
        except WorkerLost as error:
            how = TIMED_OUT if error.code is Code.TOOL_TIMEOUT else "error: "
            return dict.fromkeys(list_check_items(spec), f"{how}{error.detail}")
        if status != OK:
            return dict.fromkeys(list_check_items(spec), f"error: {value}")
        given = value if isinstance(value, dict) else {}
        return {
            item: found if isinstance(found := given.get(item), bool | str) else "error: the worker sent no answer"
            for item in list_check_items(spec)
        }

    async def _run_checks(self, spec: dict[str, Any]) -> Answer:
        """Return the answer of a fresh process. One that another process seems to have ended says nothing about the state, so a next one
        runs; the last try counts, since a process that exceeds its CPU time is killed in the same way. Raises `WorkerLost`."""
        for left in reversed(range(TRIES)):
            self.sessions += 1
            self.requests += 1
            slot: WorkerSlot | None = None
            try:
                await self.enter()
                slot = await self._single(checks=True)
                return await (await slot.worker()).ask("checks", 0, spec, alone=True)
            except WorkerLost as error:
                if not error.outside or not left:
                    raise
            finally:
                self.requests -= 1
                self.sessions -= 1
                if slot is not None:
                    await slot.close()
        raise AssertionError

    async def at_reset(self, task: Task, seed: int) -> dict[str, Any]:
        """Run the checklist on the untouched state: items that already hold there are not the agent's work."""
        found: dict[str, Any] = await self._remember(self._untouched, task, seed, lambda: self.checks(task, seed, []))
        if list_timed_out({"at_reset": found}):  # the next episode tries again
            self._untouched.pop((task.id, seed), None)
        return found

    async def _remember(self, held: Held, task: Task, seed: int, make: Callable[[], Awaitable[Any]]) -> Any:
        """Compute a value once per task and seed, even if all episodes of a group ask at the same time. A changed task with the same id is
        another one."""
        key = (task.id, seed)
        known, found = held.get(key, (None, None))
        if found is None or not (known is task or known == task):
            if key not in held and len(held) >= KEPT:
                held.popitem(last=False)
            found = start_shared(make())
            held[key] = task, found
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and held.get(key, (None, None))[1] is found:
                del held[key]
            raise

    @property
    def writes(self) -> dict[str, dict[str, bool]]:
        """Caller → tool → whether it may write. Known once the sandbox has started."""
        return self._zygote.tools if self._zygote else {}

    @property
    def by_convention(self) -> bool:
        """Whether the code follows `simia.kit`; known once the sandbox has started."""
        return bool(self._zygote and self._zygote.by_convention)

    async def declared(self) -> dict[str, Any]:
        """Return the code's declarations of its tools: caller → name → {"writes", "parameters", "required"}."""
        return (await self.start_zygote()).declared

    async def close(self) -> None:
        """End the sandbox for good: later requests of running episodes raise `Aborted`."""
        self._closed = True
        parents.leave(self)
        for slot in self._slots:
            await slot.close()
        self._slots = []
        for twin in list(self._twins):  # sandboxes of episodes that were not closed
            await twin.retire()
        async with self._guard:  # a sandbox that starts now is ended too
            if self._checker is not None:
                await self._checker.retire()
                self._checker = None
            if self._zygote is not None:
                await self._zygote.retire()
                self._zygote = None


def list_pack_files(pack: Pack, *parts: str) -> tuple[str, ...]:
    """Return the pack's files of the given kinds, as pack.yaml names them."""
    return tuple(name for part in parts if (name := getattr(pack.file, part, None)))


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files: each isolated episode holds a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def list_check_items(spec: dict[str, Any]) -> list[str]:
    return [*spec["functions"], *spec["code"], *(f"{n}.{call['name']}" for n, call in enumerate(spec["calls"]))]


def make_executable_backend(pack: Pack, **settings: Any) -> ExecutableBackend:
    """Make the back end `executable`, not started. Raises `UserError` for unknown settings."""
    parsed = parse_config(ExecutableSettings, settings, where="the executable back end")
    return ExecutableBackend(pack, **{name: getattr(parsed, name) for name in settings})
