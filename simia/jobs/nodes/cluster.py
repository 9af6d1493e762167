"""The workers of one job: starts them, spreads items and requests over them, and replaces those that are lost.

    cluster = Cluster(launcher, settings, say)
    backends = await cluster.open_models({"writer": config.llm})    # in place of `open_backend`
    ...                                                             # open the run, make engines of the back ends
    await cluster.connect(run)                                      # requests can be sent from here on
    await cluster.begin(engines, work)                              # before what earlier sessions spent is read
    Coordinator(..., produce=cluster.produce)

A lost worker: a new one is started on its node while the node lives. It opens the store of the lost one, so a reply that had arrived there
is not asked for again. Items that were in flight are given to another worker; their earlier replies are in the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from simia.errors import UserError
from simia.jobs.integrity import RUN
from simia.jobs.nodes.messages import decode_error
from simia.jobs.nodes.node_worker import ModelFacts, NodeWork, WorkerSetup
from simia.jobs.nodes.settings import ClusterSettings
from simia.jobs.nodes.stores import merge_reply
from simia.jobs.nodes.worker_channel import ASKING, NodeLost, WorkerChannel, WorkerHandle
from simia.jobs.run import Run
from simia.llm.backends import LLMSettings, open_backend
from simia.llm.engine import Engine
from simia.llm.http_response import RateLimits
from simia.llm.types import ModelBackend, Reply, Request
from simia.terminal import write_count

REMOTE = ("openai", "pool", "vllm")  # kinds whose requests workers send
HERE = ("replay",)  # kinds that the job's own process answers
LOSSES = 5  # workers of one node that may be lost with no item finished by this node between them
CLOSING = 20.0  # seconds that a worker gets to end in order


class Launcher(Protocol):
    """Starts workers on the nodes of a cluster."""

    async def connect(self) -> None:
        """Reach the cluster. Raises `UserError`."""

    def list_nodes(self) -> list[tuple[str, str]]:
        """(id, address) of the living nodes that a worker fits on."""

    async def start_worker(self, node_id: str, node: str) -> WorkerHandle:
        """Start a `NodeWorker` on this node. Raises `NodeLost`."""

    def close(self) -> None: ...


class RemoteBackend:
    """A model that workers ask. One attempt; the engine of the job decides when."""

    def __init__(self, cluster: Cluster, name: str, facts: ModelFacts) -> None:
        self.alias, self.model, self.structured = facts.alias, facts.model, facts.structured
        self.url = facts.url or facts.alias
        self.rates = RateLimits()
        self._cluster, self._name = cluster, name

    async def start(self) -> None:
        """The workers have started it."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        reply, allowances = await self._cluster.complete(self._name, request, draw)
        if allowances is not None:
            self.rates.allowances = allowances
        return reply

    async def close(self) -> None:
        """The workers close it."""


class Cluster:
    """The workers of one job."""

    def __init__(
        self,
        launcher: Launcher,
        settings: ClusterSettings,
        say: Callable[[str], None],
        *,
        needs_sandbox: bool = False,
    ) -> None:
        """`needs_sandbox`: refuse a node without one before work begins."""
        self._launcher, self._settings, self._say = launcher, settings, say
        self._needs_sandbox = needs_sandbox
        self.on_note: Callable[[Any], None] = lambda value: None
        """Takes what the method's work sends by `Node.note`."""
        self._setup = b""
        self._place = b""
        self._work: NodeWork | None = None
        self._handles: list[WorkerHandle] = []
        self._channels: list[WorkerChannel] = []
        self._engines: dict[str, Engine] = {}
        self._replacing: set[asyncio.Task[None]] = set()
        self._losses: Counter[str] = Counter()
        self._run: Run | None = None
        self._answered = False

    # -- starting -------------------------------------------------------------------------------------------------

    async def open_models(self, models: Mapping[str, LLMSettings]) -> dict[str, ModelBackend]:
        """Start the workers with these models, and return back ends that ask through them. Raises `UserError`, which names the node."""
        for name, settings in models.items():
            refuse_model(name, settings)
        await self._launcher.connect()
        nodes = self._launcher.list_nodes()
        if len(nodes) < self._settings.nodes:
            raise UserError(
                f"engine.nodes is {self._settings.nodes}, and the cluster has {write_count(len(nodes), 'node')} with {self._settings.cpus:g} "
                f"CPUs and {self._settings.gpus:g} GPUs for a worker: start more nodes, or set engine.nodes lower"
            )
        setup = WorkerSetup(dict(models), self._needs_sandbox, os.getcwd(), os.environ.get("SIMIA_PATH"))
        self._setup = pickle.dumps(setup)
        places = [node for node in nodes for _ in range(self._settings.workers)]
        found = await asyncio.gather(*(self._start(*place) for place in places), return_exceptions=True)
        self._handles = [each[0] for each in found if not isinstance(each, BaseException)]
        for (_, node), each in zip(places, found, strict=True):
            if isinstance(each, NodeLost):
                raise UserError(f"node {node}: a worker ended while it started: see Ray's logs on that node") from None
            if isinstance(each, BaseException):
                raise each
        facts = next(each[1] for each in found if not isinstance(each, BaseException))
        self._say(
            f"{write_count(len(self._handles), 'worker')} on {write_count(len(nodes), 'node')}: "
            f"{', '.join(sorted({node for _, node in nodes}))}"
        )
        return {
            name: open_backend(settings) if settings.kind in HERE else RemoteBackend(self, name, facts[name])
            for name, settings in models.items()
        }

    async def _start(self, node_id: str, node: str) -> tuple[WorkerHandle, dict[str, ModelFacts]]:
        handle = await self._launcher.start_worker(node_id, node)
        try:
            return handle, await call_worker(handle, "start", self._setup)
        except BaseException:
            handle.kill()
            raise

    async def connect(self, run: Run) -> None:
        """Connect the workers to a run: they open the stores that they keep its replies in. Raises `UserError`."""
        self._run = run
        self._answered = run.ledger.answered_count() > 0
        self._place = pickle.dumps((run.ledger.meta(RUN) or run.id, self._settings.store))
        self._channels = list(await asyncio.gather(*(self._connect(handle) for handle in self._handles)))

    async def begin(self, engines: Mapping[str, Engine], work: NodeWork) -> None:
        """Let the workers open a method's work, and merge the replies that earlier sessions left on the nodes. `engines`: by the names of
        their models. Raises `UserError`, which names the node."""
        self._engines.update(engines)
        self._work = work
        await asyncio.gather(*(self._open_work(channel) for channel in self._channels))
        merged = await self._merge()
        if merged:
            self._say(f"{write_count(merged, 'reply')} of an earlier session found on the nodes, now in the run")

    async def _open_work(self, channel: WorkerChannel) -> None:
        try:
            await channel.call("open", self._work)
        except UserError as error:
            raise UserError(f"node {channel.handle.node}: {error}") from None

    async def _connect(self, handle: WorkerHandle) -> WorkerChannel:
        await call_worker(handle, "connect", self._place)
        channel = WorkerChannel(
            handle,
            self._engines,
            on_note=lambda value: self.on_note(value),
            on_lost=self._note_loss,
            has_answers=self._has_answers,
        )
        channel.open()
        return channel

    def _has_answers(self) -> bool:
        self._answered = self._answered or any(engine.stats.answered for engine in self._engines.values())
        return self._answered

    async def _merge(self) -> int:
        """Bring the replies of the nodes' stores that the run does not have into it. Returns how many there were."""
        assert self._run is not None
        ledger, merged = self._run.ledger, 0
        for channel in self._channels:
            with contextlib.suppress(NodeLost):
                for key in await channel.call("keys", None):
                    if ledger.recall(key) is None and (row := await channel.call("fetch", key)) is not None:
                        engine = self._engines.get(row["item"])
                        merged += await merge_reply(ledger, row, engine.price if engine else None)
        return merged

    # -- working --------------------------------------------------------------------------------------------------

    async def produce(self, value: Any) -> Any:
        """Make the result of an item on some node. Raises what the method's work raises, and `UserError` where no worker is left."""
        while True:
            channel = await self._choose()
            try:
                result = await channel.call("produce", value)
            except NodeLost:
                continue
            self._losses.pop(channel.handle.node_id, None)
            return result

    async def complete(self, name: str, request: Request, draw: str) -> tuple[Reply, Any]:
        """Send a request through the worker whose item asks, or through some other."""
        channel = ASKING.get()
        while True:
            if channel is not None and channel.lost:
                replacement = channel.replacement
                channel = await asyncio.shield(replacement) if replacement is not None else None
                continue
            channel = channel or await self._choose()
            with contextlib.suppress(NodeLost):
                found: tuple[Reply, Any] = await channel.call("complete", (name, request, draw))
                return found

    async def _choose(self) -> WorkerChannel:
        """The worker with the fewest calls. Waits for a replacement where none is left."""
        while True:
            living = [channel for channel in self._channels if not channel.lost]
            if living:
                return min(living, key=lambda channel: channel.load)
            if not self._replacing:
                raise UserError(
                    "all workers were lost: check that the cluster's nodes run, then resume; no reply is lost"
                )
            await asyncio.wait(self._replacing, return_when=asyncio.FIRST_COMPLETED)

    def _note_loss(self, channel: WorkerChannel) -> None:
        self._say(
            f"the worker on {channel.handle.node} was lost with {write_count(channel.load, 'call')}; others take over"
        )
        channel.replacement = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._replace(channel))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, lost: WorkerChannel) -> None:
        node_id, node = lost.handle.node_id, lost.handle.node
        assert lost.replacement is not None
        found: WorkerChannel | None = None
        lost.handle.kill()
        try:
            self._losses[node_id] += 1
            if self._losses[node_id] > LOSSES:
                self._say(f"{LOSSES} workers in a row were lost on {node}: no more are started there")
            elif any(each == node_id for each, _ in self._launcher.list_nodes()):
                handle, _ = await self._start(node_id, node)
                self._handles.append(handle)
                found = await self._connect(handle)
                if self._work is not None:
                    await self._open_work(found)
                self._channels.append(found)
        except (NodeLost, UserError) as error:
            self._say(f"no new worker on {node}{f': {error}' if str(error) else ''}")
        finally:
            if not lost.replacement.done():
                lost.replacement.set_result(found)

    # -- ending ---------------------------------------------------------------------------------------------------

    async def disconnect(self) -> None:
        """Bring what is left on the nodes into the run, and end the workers. Call it before the run is closed."""
        for channel in self._channels:
            channel.drop_questions()
        if self._replacing:  # a worker that takes over also reads what the lost one stored
            await asyncio.wait(self._replacing, timeout=CLOSING)
        for task in list(self._replacing):
            task.cancel()
        discard = False
        if self._run is not None and self._run.failure is None:
            with contextlib.suppress(TimeoutError, UserError):
                await asyncio.wait_for(self._merge(), CLOSING)
                discard = True
        for channel in self._channels:  # one after the other: the last one on a node removes the folder
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(channel.close(discard=discard), CLOSING)
        self._channels = []

    async def close(self) -> None:
        """End all workers and leave the cluster."""
        for handle in self._handles:
            handle.kill()
        self._launcher.close()


async def call_worker(handle: WorkerHandle, method: str, packed: bytes) -> Any:
    """Call `start` or `connect`. Raises `UserError`, which names the node, and `NodeLost`."""
    value, error = pickle.loads(await handle.call(method, packed))
    if error is not None:
        raised = decode_error(error)
        raise UserError(f"node {handle.node}: {raised}") if isinstance(raised, UserError) else raised
    return value


def refuse_model(name: str, settings: LLMSettings) -> None:
    """Raise `UserError` for a model that workers cannot ask."""
    if settings.kind not in (*REMOTE, *HERE):
        raise UserError(
            f"engine.kind is ray, but the model of {name} has kind {settings.kind}: a cluster needs an endpoint that all nodes reach, "
            "such as llm.kind=openai with llm.base_url, or the kinds pool and vllm"
        )
    if getattr(settings, "_client", None) is not None:
        raise UserError("engine.kind is ray, and llm= is a client of this process: give the model as settings instead")
