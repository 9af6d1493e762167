"""A cluster in one process, to lose workers at exact moments: what Ray transports is passed on by plain calls here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simia.jobs import Run
from simia.jobs.nodes.cluster import Cluster
from simia.jobs.nodes.messages import Message, unpack_batch
from simia.jobs.nodes.node_worker import Node, NodeWorker, Produce
from simia.jobs.nodes.settings import ClusterSettings
from simia.jobs.nodes.worker_channel import NodeLost, WorkerHandle
from simia.llm.engine import Engine, EngineLimits
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prices import Price
from simia.llm.types import Request
from tests.jobs.toy import ToyConfig

Loses = Callable[[Message], bool]


class LoopbackWorker:
    """A worker that is an object. Its death ends its calls and frees its store, as the death of a process does."""

    def __init__(self, launcher: Loopback, node: str) -> None:
        self.node = self.node_id = node
        self._worker, self._launcher, self._dead = NodeWorker(), launcher, asyncio.Event()

    async def call(self, method: str, *arguments: Any) -> Any:
        call = asyncio.ensure_future(getattr(self._worker, method)(*arguments))
        death = asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait([call, death], return_when=asyncio.FIRST_COMPLETED)
            if not call.done() or self._dead.is_set():
                raise NodeLost
            found = call.result()
            if method == "collect" and any(map(self._launcher.loses, unpack_batch(found))):
                self.kill()
                raise NodeLost
            return found
        finally:
            call.cancel()
            death.cancel()

    def kill(self) -> None:
        if not self._dead.is_set():
            self._dead.set()
            for task in self._worker._tasks.values():
                task.cancel()
            if self._worker._store is not None:
                self._worker._store.close()


class Loopback:
    """Nodes in this process. `loses`: whether a worker dies in place of sending a batch with this message."""

    def __init__(self, *nodes: str, loses: Loses = lambda message: False) -> None:
        self.nodes, self.loses = list(nodes), loses
        self.workers: list[LoopbackWorker] = []

    async def connect(self) -> None: ...

    def list_nodes(self) -> list[tuple[str, str]]:
        return [(node, node) for node in self.nodes]

    async def start_worker(self, node_id: str, node: str) -> WorkerHandle:
        if node_id not in self.nodes:
            raise NodeLost
        self.workers.append(LoopbackWorker(self, node))
        return self.workers[-1]

    def close(self) -> None: ...


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, which has to stay true from then on: it is looked at every 10 ms."""
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - what it waits for sets no event
            await asyncio.sleep(0.01)


class WordWork:
    """Asks for two replies to a word, one after the other, and joins them."""

    async def open(self, node: Node, stack: contextlib.AsyncExitStack) -> Produce:
        async def produce(word: str) -> str:
            found = []
            for n in (0, 1):
                request = Request(messages=[{"role": "user", "content": f"{word} {n}"}])
                reply = await node.engines["writer"].ask(request, item=word, draw=f"{word}.{n}")
                found.append(reply.text)
            return ", ".join(found)

        return produce


class WordJob:
    """A run whose items are words, over the nodes of a launcher."""

    def __init__(self, root: Path, url: str, launcher: Loopback, **limits: Any) -> None:
        self.said: list[str] = []
        self.settings = ClusterSettings(kind="ray", store=str(root / "stores"))
        self.cluster = Cluster(launcher, self.settings, self.said.append)
        self._root, self._llm = root, OpenAISettings(base_url=url, model="fake")
        self._limits = EngineLimits(**limits)
        self.engine: Engine

    async def __aenter__(self) -> WordJob:
        runs = self._root / "runs"
        backend = (await self.cluster.open_models({"writer": self._llm}))["writer"]
        known = (runs / "one").exists()
        self.run = Run.open(runs, "one") if known else Run.create(runs, ToyConfig(), name="one", facts={})
        self.engine = Engine(backend, self.run.ledger, self._limits, Price(input=1, cached=1, output=1))
        await self.cluster.connect(self.run)
        await self.cluster.begin({"writer": self.engine}, WordWork())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cluster.disconnect()
        await self.cluster.close()
        self.run.close()

    async def make(self, *words: str) -> list[Any]:
        return await asyncio.gather(*map(self.cluster.produce, words), return_exceptions=True)
