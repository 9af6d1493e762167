"""The worker of a job on a node: asks models, keeps their replies until the job has them, and makes the results of items.

It knows nothing of Ray: whatever starts it calls `start`, `connect`, `deliver`, `collect` and `close` over any transport. All its state but
the stored replies can be lost: the job sends the items that were in flight to another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import platform
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from simia.errors import UserError
from simia.jobs.nodes.messages import WireError, decode_error, encode_error, pack_batch, unpack_batch
from simia.jobs.nodes.stores import NodeStore
from simia.llm.backends import LLMSettings, open_backend
from simia.llm.engine import Engine
from simia.llm.journals import PassingJournal
from simia.llm.types import LLMFault, ModelBackend, Reply, Request, make_reply_key
from simia.sandbox.capabilities import require_isolation
from simia.search_path import cache_root
from simia.version import __version__

Produce = Callable[[Any], Awaitable[Any]]
"""Make the result of an item from what the method sends of it."""


class NodeWork(Protocol):
    """What a method does with items on a node. It is pickled, and opened once by each worker."""

    async def open(self, node: Node, stack: contextlib.AsyncExitStack) -> Produce:
        """Return what makes results; `stack` closes it. Raises `UserError` for what this node lacks."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker starts with."""

    models: dict[str, LLMSettings]
    needs_sandbox: bool
    folder: str
    search_path: str | None
    version: tuple[str, str] = field(default_factory=lambda: (__version__, platform.python_version()))


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the job needs to know of a model's back end that a worker holds."""

    alias: str
    model: str
    structured: bool
    url: str | None


class NodeEngine(Engine):
    """An engine whose questions go through the job's engine: its pace, its budget, its retries and its store."""

    def __init__(self, backend: ModelBackend, node: Node, name: str) -> None:
        super().__init__(backend, PassingJournal())
        self._node, self._name = node, name

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        return await self._node.ask(self._name, request, item, draw, key)


class Node:
    """A worker as a method sees it."""

    def __init__(self, worker: NodeWorker, backends: Mapping[str, ModelBackend]) -> None:
        self.answered = False
        """Whether the run holds any reply, as of the latest answer."""
        self.engines = {name: NodeEngine(backend, self, name) for name, backend in backends.items()}
        self._worker = worker

    async def ask(self, name: str, request: Request, item: str, draw: str, key: str | None) -> Reply:
        answer, error, answered = await self._worker.ask_job((name, request, item, draw, key))
        self.answered = self.answered or answered
        if error is not None:
            raise decode_error(error)
        reply: Reply = answer
        return reply

    def note(self, value: Any) -> None:
        """Tell the job something. It has it before any later question."""
        self._worker.send("note", 0, value)


class NodeWorker:
    """One worker. Use one event loop."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._backends: dict[str, ModelBackend] = {}
        self._store: NodeStore | None = None
        self._produce: Produce | None = None
        self._outbox: list[tuple[str, int, Any]] = []
        self._ready = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._asked = 0

    # -- what the transport calls ---------------------------------------------------------------------------------

    async def start(self, packed: bytes) -> bytes:
        """Open the models. Returns their facts by name, or an error."""
        return await pack_outcome(self._start(pickle.loads(packed)))

    async def connect(self, packed: bytes) -> bytes:
        """Open the store of the run. Returns the number of this process, or an error."""
        return await pack_outcome(self._connect(*pickle.loads(packed)))

    async def deliver(self, batch: bytes) -> None:
        """Take messages of the job."""
        for kind, number, value in unpack_batch(batch):
            if kind == "answer":
                question = self._questions.get(number)
                if question is not None and not question.done():
                    question.set_result(value)
            elif kind == "cancel":
                if number in self._tasks:
                    self._tasks[number].cancel()
            else:
                self._tasks[number] = asyncio.create_task(self._handle(kind, number, value))

    async def collect(self) -> bytes:
        """Return messages for the job as soon as there are any."""
        while not self._outbox:
            self._ready.clear()
            await self._ready.wait()
        batch, self._outbox = self._outbox, []
        return pack_batch(batch)

    async def close(self, discard: bool) -> None:
        """`discard`: the run has all replies of the store, so it is removed."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._stack.aclose()
        if self._store is not None:
            self._store.close(discard=discard)

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _start(self, setup: WorkerSetup) -> dict[str, ModelFacts]:
        own = WorkerSetup({}, False, "", None).version
        if own != setup.version:
            here, there = (f"simia {simia} on Python {python}" for simia, python in (own, setup.version))
            raise UserError(f"this node has {here}, and the job runs {there}: install the same versions on all nodes")
        with contextlib.suppress(
            OSError
        ):  # relative paths of a config mean the same where the folder is on this node too
            os.chdir(setup.folder)
        if setup.search_path is not None:
            os.environ["SIMIA_PATH"] = setup.search_path
        if setup.needs_sandbox:
            await asyncio.to_thread(require_isolation)
        for name, settings in setup.models.items():
            backend = self._backends[name] = open_backend(settings)
            await backend.start()
            self._stack.push_async_callback(backend.close)
        return {
            name: ModelFacts(each.alias, each.model, each.structured, getattr(each, "url", None))
            for name, each in self._backends.items()
        }

    async def _connect(self, run: str, folder: str | None) -> int:
        self._store = await asyncio.to_thread(open_store, run, folder)
        return os.getpid()

    async def _open_work(self, work: NodeWork) -> None:
        self._produce = await work.open(Node(self, self._backends), self._stack)

    def send(self, kind: str, number: int, value: Any) -> None:
        """Put a message into the next batch."""
        self._outbox.append((kind, number, value))
        self._ready.set()

    async def ask_job(self, value: Any) -> Any:
        """Send a question to the job, and return its answer. Cancelling it takes the question back."""
        self._asked += 1
        number = self._asked
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        self.send("ask", number, value)
        try:
            return await answer
        except asyncio.CancelledError:
            self.send("drop", number, None)
            raise
        finally:
            del self._questions[number]

    async def _handle(self, kind: str, number: int, value: Any) -> None:
        outcome: tuple[Any, WireError | None]
        try:
            outcome = await self._do(kind, value), None
        except BaseException as error:  # also a cancellation, which the job raises in turn
            outcome = None, encode_error(error)
        finally:
            del self._tasks[number]
        self.send("done", number, outcome)

    async def _do(self, kind: str, value: Any) -> Any:
        assert self._store is not None
        if kind == "complete":
            return await self._complete(self._store, *value)
        if kind == "produce":
            assert self._produce is not None
            return await self._produce(value)
        if kind == "open":
            return await self._open_work(value)
        return self._store.list_keys() if kind == "keys" else self._store.fetch(value)

    async def _complete(self, store: NodeStore, name: str, request: Request, draw: str) -> tuple[Reply, Any]:
        """One attempt, unless this node holds the reply: the job did not get it from the worker that asked. The second value holds the
        endpoint's rate limits."""
        backend = self._backends[name]
        key = make_reply_key(backend.alias, backend.model, request, draw)
        if (known := store.recall(key)) is not None:
            return known, None
        await store.own.asked(key, name, draw, request)
        try:
            reply = await backend.complete(request, draw=draw)
        except LLMFault as fault:
            await store.own.failed(key, name, fault)
            raise
        await store.own.answered(key, name, reply)
        rates = getattr(backend, "rates", None)
        return reply, rates.allowances if rates is not None else None


def open_store(run: str, folder: str | None) -> NodeStore:
    """Open the store of a run on this node. `run`: a name that no other run has. Raises `UserError`."""
    return NodeStore((Path(folder).expanduser() if folder else cache_root() / "nodes") / run)


async def pack_outcome(work: Coroutine[Any, Any, Any]) -> bytes:
    """Return the pickled (result, error) of a coroutine."""
    try:
        return pickle.dumps((await work, None))
    except Exception as error:
        return pickle.dumps((None, encode_error(error)))
