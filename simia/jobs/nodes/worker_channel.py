"""The job's end of one worker: sends and receives batches of messages, and answers the worker's questions.

While one batch is on its way the next one fills, so that a busy worker costs few calls of the transport for each item.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from simia.jobs.nodes.messages import Message, decode_error, encode_error, pack_batch, unpack_batch
from simia.llm.engine import Engine

log = logging.getLogger(__name__)


class NodeLost(Exception):  # noqa: N818 - a state of the cluster, not a mistake
    """The worker is gone: its process died, or its node did."""


class WorkerHandle(Protocol):
    """A worker that a launcher started. All methods raise `NodeLost`."""

    node: str
    """The node's address, for messages."""
    node_id: str

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the `NodeWorker`."""

    def kill(self) -> None:
        """End the worker's process at once. Never raises."""


ASKING: ContextVar[WorkerChannel | None] = ContextVar("asking", default=None)
"""The worker whose question is answered; it also sends the request, unless it is lost."""


class WorkerChannel:
    """A connected worker. Use `open`, and `close` at the end."""

    def __init__(
        self,
        handle: WorkerHandle,
        engines: Mapping[str, Engine],
        *,
        on_note: Callable[[Any], None],
        on_lost: Callable[[WorkerChannel], None],
        has_answers: Callable[[], bool],
    ) -> None:
        self.handle, self._engines = handle, engines
        self._on_note, self._on_lost, self._has_answers = on_note, on_lost, has_answers
        self.lost = False
        self.replacement: asyncio.Future[WorkerChannel | None] | None = None
        """After a loss: the worker that takes its place on the same node; None where there is none."""
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._questions: dict[int, asyncio.Task[None]] = {}
        self._outbox: list[Message] = []
        self._ready = asyncio.Event()
        self._sent = 0
        self._loops: list[asyncio.Task[None]] = []

    @property
    def load(self) -> int:
        """How many calls wait for this worker."""
        return len(self._pending)

    def open(self) -> None:
        self._loops = [asyncio.create_task(self._run(each)) for each in (self._send, self._receive)]

    async def call(self, kind: str, value: Any) -> Any:
        """Send a message that the worker answers. Raises `NodeLost`, and what the worker raised."""
        if self.lost:
            raise NodeLost
        self._sent += 1
        number = self._sent
        result = self._pending[number] = asyncio.get_running_loop().create_future()
        self._post(kind, number, value)
        try:
            return await result
        except asyncio.CancelledError:
            self._post("cancel", number, None)
            raise
        finally:
            self._pending.pop(number, None)

    def drop_questions(self) -> None:
        """Cancel the questions that are being answered."""
        for task in list(self._questions.values()):
            task.cancel()

    async def close(self, *, discard: bool) -> None:
        """End the worker, in order where it can be reached."""
        self.drop_questions()
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, *self._questions.values(), return_exceptions=True)
        with contextlib.suppress(NodeLost):
            if not self.lost:
                await self.handle.call("close", discard)
        self.handle.kill()

    def _post(self, kind: str, number: int, value: Any) -> None:
        self._outbox.append((kind, number, value))
        self._ready.set()

    async def _run(self, work: Callable[[], Any]) -> None:
        try:
            while True:
                await work()
        except NodeLost:
            self._note_loss()
        except (
            Exception
        ) as error:  # a bug, such as a result that cannot be pickled: no process may wait for this worker
            log.warning("the worker on %s cannot be used: %s: %s", self.handle.node, type(error).__name__, error)
            self._note_loss()

    async def _send(self) -> None:
        if not self._outbox:
            self._ready.clear()
            await self._ready.wait()
        batch, self._outbox = self._outbox, []
        await self.handle.call("deliver", pack_batch(batch))

    async def _receive(self) -> None:
        for kind, number, value in unpack_batch(await self.handle.call("collect")):
            if kind == "done":
                self._finish(number, *value)
            elif kind == "ask":
                self._questions[number] = asyncio.create_task(self._answer(number, *value))
            elif kind == "drop":
                if number in self._questions:
                    self._questions[number].cancel()
            else:
                self._on_note(value)

    def _finish(self, number: int, value: Any, error: Any) -> None:
        result = self._pending.get(number)
        if result is None or result.done():
            return
        if error is None:
            result.set_result(value)
        elif isinstance(raised := decode_error(error), asyncio.CancelledError):
            result.cancel()
        else:
            result.set_exception(raised)

    async def _answer(self, number: int, name: str, request: Any, item: str, draw: str, key: str | None) -> None:
        """Answer a question by the job's engine. It goes on where the worker is lost: the reply is for the worker that takes over."""
        ASKING.set(self)
        reply, error = None, None
        try:
            reply = await self._engines[name].ask(request, item=item, draw=draw, key=key)
        except (Exception, asyncio.CancelledError) as raised:
            error = encode_error(raised)
        finally:
            del self._questions[number]
        self._post("answer", number, (reply, error, reply is not None or self._has_answers()))

    def _note_loss(self) -> None:
        if self.lost:
            return
        self.lost = True
        self._on_lost(self)
        pending, self._pending = self._pending, {}
        for result in pending.values():
            if not result.done():
                result.set_exception(NodeLost())
