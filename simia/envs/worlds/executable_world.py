"""One executable episode: its calls, its journal, and its session in whichever worker runs it now.

The journal is kept outside the worker. When a worker is killed, the next one rebuilds the session from the journal. Each repeated call
must give the same result as before, or the episode is aborted (`replay_diverged`). Reads are not repeated: the time, ids and random numbers
of a call depend on its number, not on the calls before it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import orjson

from simia.envs.rewards.environment_value import list_value_paths, pick_values
from simia.envs.worlds.arguments import make_failure, refuse_call
from simia.envs.worlds.journal import EpisodeJournal, fingerprint
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.masking import mask
from simia.pack import Pack
from simia.reward_spec import RewardSpec
from simia.sandbox.inside.frames import pack_json as pack_json
from simia.sandbox.worker import WorkerLost, WorkerSlot
from simia.task import By, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall

OK, REFUSED, FAILED, ENDED = 0, 1, 2, 3
OUTSIDE = 0.15  # weight of a crash from outside, which says little about the running call
CRASHES = 3  # crashes with only this episode in the process, after which the call is to blame and not the machine


def mask_result(result: ToolResult) -> ToolResult:
    """Mask secrets that were granted to the pack: its code, or a server that it calls, may put them into results."""
    content, detail = mask(result.content), mask(result.detail)
    if content is result.content and detail is result.detail:
        return result
    data = None
    if result.data is not None:
        try:
            data = orjson.loads(content)
        except orjson.JSONDecodeError:  # the mask replaced the whole text
            data = content
    return replace(result, content=content, data=data, detail=detail)


class ExecutableServices(Protocol):
    """The part of its back end that a world uses."""

    pack: Pack
    repeatable: bool
    sessions: int
    requests: int
    specs: dict[By, dict[str, ToolSpec]]

    async def enter(self) -> None:
        """Wait until the sandbox may run, before each request."""

    @property
    def writes(self) -> dict[str, dict[str, bool]]:
        """By caller → tool → whether it may write."""

    @property
    def by_convention(self) -> bool:
        """Whether the code follows `simia.kit`."""

    async def expected(self, task: Task, seed: int) -> list[dict[str, Any]]:
        """Changes that the reference solution makes."""

    async def expected_turns(self, task: Task, seed: int) -> list[list[dict[str, Any]]]:
        """Changes since the start after each goal of the reference."""

    async def expected_results(self, task: Task, seed: int) -> list[list[str]]:
        """Texts that the calls of each goal of the reference return."""

    async def is_readable(self, task: Task, seed: int) -> bool:
        """Whether the state of an untouched episode can be read now."""

    async def checks(self, task: Task, seed: int, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """The checklist's items on a state."""

    async def at_reset(self, task: Task, seed: int) -> dict[str, Any]:
        """The checklist's items on the untouched state."""


class ExecutableWorld:
    """One episode. Every failure of its code or worker becomes a result; only an infrastructure failure raises `Aborted`."""

    def __init__(
        self, backend: ExecutableServices, task: Task, slot: WorkerSlot, journal: EpisodeJournal, *, own: bool
    ) -> None:
        self._backend, self._task, self._slot, self._journal, self._own = backend, task, slot, journal, own
        self._seed = int(journal.spec["seed"])
        self._session = slot.number()
        self._generation, self._stale, self._born = -1, False, False
        self._told = False  # whether the supervisor ended the sandbox
        self._fell = False  # whether a call, or a process that it left behind, ended this episode's own worker
        self._writes = backend.writes
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
            except WorkerLost as error:
                raise Aborted(Code.WORKER_LOST, f"an episode cannot be set up: {error.detail}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def call_one(self, name: str, arguments: dict[str, Any], by: By = "agent") -> ToolResult:
        """Make a call that is not part of a message."""
        return (await self.call([ToolCall(id="", name=name, arguments=arguments)], by))[0]

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        async with self._guard:
            results: list[ToolResult] = []
            for call in calls:
                if results and results[-1].ends:
                    results.append(replace(make_failure(call, Code.FINISHED, "the episode has ended"), ends=True))
                else:
                    results.append(mask_result(await self._call(call, by)))
            return results

    async def _call(self, call: ToolCall, by: By) -> ToolResult:
        journal = self._journal
        number, journal.calls = journal.calls, journal.calls + 1
        how = self._backend.pack.executable
        wrong = refuse_call(call, self._backend.specs[by], check_schema=how is None or how.checks_arguments)
        if wrong is not None:
            return wrong
        arguments = call.arguments or {}
        try:
            status, value = await self._request("call", [by, call.name, arguments, number])
        except WorkerLost as error:
            ended = make_failure(call, error.code, error.code.meaning, error.detail)
            return replace(ended, ends=error.code is Code.RESOURCE_LIMIT)
        if status in (OK, ENDED):
            try:
                content = value if isinstance(value, str) else pack_json(value).decode().strip()
                mark = fingerprint(value)
            except (TypeError, ValueError, RecursionError):  # a forged answer, since real answers can be serialised
                return make_failure(
                    call, Code.TOOL_CRASHED, Code.TOOL_CRASHED.meaning, "the worker sent what is no answer"
                )
            if self._writes.get(by, {}).get(call.name, True):
                journal.writes.append((by, call.name, arguments, number, mark))
                if len(journal.writes) > journal.most:
                    await self._compact()
            data = None if isinstance(value, str) else value
            return ToolResult(call.id, content, data=data, ends=status == ENDED)
        if status == REFUSED:
            # Keep the error text of imported code unchanged; errors by simia's convention have the usual form of results.
            if not self._backend.by_convention:
                return ToolResult(call.id, value, error=Code.TOOL_ERROR)
            return make_failure(call, Code.TOOL_ERROR, value)
        return make_failure(
            call, Code.TOOL_FAILED, f"{call.name} failed ({value.split(':')[0]}); nothing was changed", value
        )

    async def state(self) -> Any:
        return await self.request("state")

    async def evidence(self, turns: Sequence[list[dict[str, Any]] | None] = ()) -> dict[str, Any]:
        """Collect the evidence for scoring; see `collect_evidence`."""
        changes, state = await self._final(list_value_paths(self._task.reward.parts))
        return await collect_evidence(self._backend, self._task, self._seed, changes, state, turns)

    async def _final(self, wanted: Collection[str]) -> tuple[list[dict[str, Any]], Any]:
        """Read the changes and, if values are `wanted`, the state. Raises `Aborted`, with `own` set if reading fails twice while the state
        of a new episode can be read. So an agent cannot escape a bad reward by making the state unreadable."""
        try:
            return await self.changes(), await self.state() if wanted else None
        except Aborted as error:
            if (
                "own" in error.facts
                or not self._journal.calls
                or not await self._backend.is_readable(self._task, self._seed)
            ):
                raise
        try:
            return await self.changes(), await self.state() if wanted else None
        except Aborted as error:
            raise Aborted(error.code, error.detail, **{"own": True, **error.facts}) from None

    async def changes(self) -> list[dict[str, Any]]:
        """Return the changes since the start of the episode. Raises `Aborted` for an answer that is no list of changes."""
        return read_changes(await self.request("changes"))

    async def initial(self) -> Any:
        """The state at the start of the episode."""
        return await self.request("initial")

    async def request(self, what: str) -> Any:
        """Request something other than a call from the session. Raises `Aborted`."""
        async with self._guard:
            try:
                status, value = await self._request(what, None)
            except WorkerLost as error:
                raise Aborted(Code.WORKER_LOST, error.detail) from None
            if status != OK:
                raise Aborted(Code.TOOL_FAILED, str(value))
            return value

    async def restore(self, state: Any) -> list[dict[str, Any]]:
        """Continue from another state and return its changes since the start. Raises `ValueError` if the pack's code does not load it."""
        async with self._guard:
            try:
                status, value = await self._request("restore", state)
            except WorkerLost as error:
                raise Aborted(Code.WORKER_LOST, error.detail) from None
            if status != OK:
                raise ValueError(str(value))
            self._journal.replace_writes(state)
            return read_changes(value)

    def count_calls(self, calls: int) -> None:
        """Set how many calls the episode has made: the clock, new ids and randomness of the next one depend on it."""
        self._journal.calls = calls

    async def snapshot(self) -> bytes:
        """Return the start and the writes since, as compressed JSON. An episode opened from it replays the writes and compares results."""
        if not self._backend.repeatable:
            raise Aborted(Code.REPLAY_DIVERGED, "what this pack's calls reach cannot be repeated")
        async with self._guard:
            return self._journal.snapshot()

    async def close(self) -> None:
        self._slot.sessions -= 1
        self._backend.sessions -= 1
        if self._own:
            await self._slot.close()
        elif (worker := self._slot.live) is not None and self._generation == self._slot.generation:
            worker.ask("close", self._session, None).add_done_callback(lambda f: f.cancelled() or f.exception())

    # -- the session in its worker --------------------------------------------------------------------------------

    async def _request(self, what: str, detail: Any) -> list[Any]:
        """Make one request; until it ends, the sandbox is not ended in favour of other packs. See `_ask`."""
        self._backend.requests += 1
        try:
            await self._backend.enter()
            return await self._ask(what, detail)
        finally:
            self._backend.requests -= 1

    async def _ask(self, what: str, detail: Any) -> list[Any]:
        """Ask the worker, again if another request ended it. Raises `WorkerLost` if this request is the one that ends workers."""
        alone, crashes = False, 0.0
        for _ in itertools.count():
            try:
                if what == "call" and not self._told and (why := self._slot.exceeded):  # after the last call
                    raise WorkerLost(Code.RESOURCE_LIMIT, why, alone=True, sure=True)
                await self._ensure()
                if what == "open":
                    return [OK, None]
                worker = self._slot.live
                if worker is None or self._generation != self._slot.generation:
                    continue
                return await worker.ask(what, self._session, detail, alone=alone)
            except asyncio.CancelledError:
                # The worker still runs the cancelled request, so its session no longer matches the journal.
                self._generation, self._stale = -1, True
                raise
            except WorkerLost as error:
                self._told |= error.code is Code.RESOURCE_LIMIT
                self._fell |= self._own and what == "call" and not error.outside and error.code is not Code.WORKER_LOST
                if error.alone or self._own:  # no other episode in the process can be the cause
                    crashes += OUTSIDE if error.outside else 1
                    if error.sure or crashes >= CRASHES:
                        raise
                alone = alone or error.code is not Code.WORKER_LOST
        raise AssertionError

    async def _ensure(self) -> None:
        """Make sure the current worker has the session: open it there, or rebuild it from the journal."""
        if self._slot.live is not None and self._generation == self._slot.generation:
            return
        if self._stale and self._own and (held := self._slot.live) is not None:
            await held.close()
        self._stale = False
        if self._born and not self._backend.repeatable:
            detail = "the process is gone, and what this pack's calls reach cannot be repeated"
            raise Aborted(Code.WORKER_LOST, detail, own=self._fell)
        try:
            worker = await self._slot.worker()
        except UserError as error:
            if self._born:
                raise Aborted(Code.WORKER_LOST, str(error)) from None  # no user error: it loaded before
            raise
        generation, journal = self._slot.generation, self._journal
        status, value = await worker.ask("open", self._session, journal.spec)
        if status != OK:
            raise UserError(f"pack {self._backend.pack.name}: an episode cannot be set up: {value}")
        for by, name, arguments, number, before in journal.writes:
            status, value = await worker.ask("call", self._session, [by, name, arguments, number])
            if status not in (OK, ENDED) or fingerprint(value) != before:
                raise Aborted(Code.REPLAY_DIVERGED, f"{name}, call {number}", own=self._fell)
        self._generation, self._born, self._told = generation, True, False

    async def _compact(self) -> None:
        """Replace a long journal by the state that it leads to."""
        status, state = await self._request("state", None)
        if status == OK:
            self._journal.replace_writes(state)


async def collect_evidence(
    backend: ExecutableServices,
    task: Task,
    seed: int,
    changes: list[dict[str, Any]],
    state: Any,
    turns: Sequence[list[dict[str, Any]] | None] = (),
) -> dict[str, Any]:
    """Collect the evidence for scoring, as far as the task's parts need it: `changes` of the state since the start; `expected`, those of
    the reference solution; `writes`, the agent's tools that may change the state; `checks` and `at_reset`, the checklist on the final and
    on the untouched state; `values`, the numbers that value parts name; `turns`, the same for each goal after its turn."""
    found: dict[str, Any] = {"changes": changes}
    if backend.repeatable and any(part.kind == "state" for part in task.reward.parts):
        found["expected"] = await backend.expected(task, seed)
    if any(part.kind == "checklist" for part in task.reward.parts):
        found["checks"] = await backend.checks(task, seed, changes)
        found["at_reset"] = await backend.at_reset(task, seed)
    if wanted := list_value_paths(task.reward.parts):
        found["values"] = pick_values(state, wanted)
    if any(part.kind == "trace" for part in task.reward.parts):
        found["writes"] = list_writers(backend)
    if task.goals:
        ends = [each for each in turns if each is not None][: len(task.goals)]
        found["turns"] = [await judge_turn(backend, task, seed, n, end) for n, end in enumerate(ends)]
    return found


def list_writers(backend: ExecutableServices) -> list[str]:
    """The agent's tools that may change the state."""
    return sorted(name for name, writes in backend.writes.get("agent", {}).items() if writes)


async def judge_turn(
    backend: ExecutableServices, task: Task, seed: int, number: int, changes: list[dict[str, Any]]
) -> dict[str, Any]:
    """Evidence of one goal, from the changes at the end of its turn."""
    goal = task.goals[number]
    found: dict[str, Any] = {"changes": changes, "writes": list_writers(backend)}
    if any(part.kind == "state" for part in goal.parts):
        found["expected"] = (await backend.expected_turns(task, seed))[number]
    if any(part.kind == "results" for part in goal.parts):
        found["results"] = (await backend.expected_results(task, seed))[number]
    if any(part.kind == "checklist" for part in goal.parts):
        one = task.model_copy(update={"id": f"{task.id}#{number + 1}", "reward": RewardSpec(parts=[*goal.parts])})
        found["checks"] = await backend.checks(one, seed, changes)
        found["at_reset"] = await backend.at_reset(one, seed)
    return found


def read_changes(found: Any) -> list[dict[str, Any]]:
    """Check the changes that a worker sent. Raises `Aborted` if they are not a list of changes."""
    if not isinstance(found, list) or not all(is_change(each) for each in found):
        raise Aborted(Code.TOOL_FAILED, "the worker sent changes that are none")
    return found


def is_change(each: Any) -> bool:
    if not isinstance(each, dict) or not each.keys() <= {"path", "old", "new"} or each.keys() == {"path"}:
        return False
    path = each.get("path")
    return isinstance(path, list) and all(isinstance(step, str) for step in path)
