"""The parent's side of a worker process: requests, answers, and a deadline for every frame.

Requests of the same turn of the event loop, and those made while the worker is busy, are sent as one frame. If a frame takes too long or
its worker dies, the worker is ended and its requests fail with `WorkerLost`, which tells whether a request was alone in its frame. A
request that was not alone is repeated alone, to find the one at fault.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from typing import Any, cast

from simia.errors import Aborted, Code
from simia.sandbox.inside.frames import HEAD, make_frame, unpack_bounded
from simia.sandbox.inside.main import MEMORY_EXIT
from simia.sandbox.zygote import ForkServer

Answer = list[Any]
MOST_A_FRAME = 512
OVERHEAD = 1 << 16  # bytes of a frame in addition to a result: numbers, the text of an error
PATIENCE = 20.0  # most seconds for requests other than calls: setting up an episode, exporting a state, checks


class WorkerLost(Exception):  # noqa: N818 - a state of the worker
    """The worker has ended. `code`: timed out or crashed; `alone`: no other request was in the frame; `detail`: the reason in words."""

    def __init__(self, code: Code, detail: str, *, alone: bool, sure: bool = False, outside: bool = False) -> None:
        super().__init__(detail)
        self.code, self.detail, self.alone = code, detail, alone
        self.sure = sure
        """Whether the request itself must be at fault; if false, the machine may have caused the end."""
        self.outside = outside
        """Whether another process seems to have ended the worker: by SIGKILL, which no worker can send, or with its sandbox."""


class Worker(asyncio.Protocol):
    """One live process. Any number of `ask` calls may be open at once."""

    def __init__(self, zygote: ForkServer, number: int, wall: float) -> None:
        self._zygote, self._number, self._wall = zygote, number, wall
        self._transport: asyncio.Transport | None = None
        self._queue: list[tuple[list[Any], asyncio.Future[Answer], bool]] = []
        self._flight: dict[int, asyncio.Future[Answer]] = {}
        self._held = bytearray()
        self._together = self._most = 0  # requests of the last frame, bytes that a frame of answers may take
        self._ids = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self.lost = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def start(cls, zygote: ForkServer, *, isolated: bool) -> Worker:
        await zygote.start()
        number, channel = await zygote.fork(isolated=isolated)
        channel.setblocking(False)
        worker = cls(zygote, number, zygote.limits.wall)
        await asyncio.get_running_loop().create_connection(lambda: worker, sock=channel)
        return worker

    def ask(self, what: str, session: int, detail: Any, *, alone: bool = False) -> asyncio.Future[Answer]:
        """Return a future of `[status, value]`, which fails with `WorkerLost` if the worker ends."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self.lost:
            future.set_exception(WorkerLost(Code.WORKER_LOST, "the worker had ended before", alone=False))
            return future
        self._queue.append(([next(self._ids), what, session, detail], future, alone))
        if not self._flight:
            self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        if self.lost or self._flight or not self._queue or self._transport is None:
            return
        first, calls = self._queue[0], self._queue[0][0][1] == "call"
        more = [] if first[2] else self._queue[1:MOST_A_FRAME]
        fit = itertools.takewhile(lambda row: not row[2] and (row[0][1] == "call") is calls, more)
        count = 1 + len(list(fit))
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._flight = {request[0]: future for request, future, _ in batch}
        limits, self._together = self._zygote.limits, count
        self._most = OVERHEAD + (limits.output if calls else max(limits.state, limits.output))
        self._transport.write(make_frame([request for request, _, _ in batch]))
        # The wall-clock limit applies to calls only: setting up and exporting a state may take longer on a busy machine.
        patience = self._wall if calls else max(self._wall, min(PATIENCE, self._zygote.limits.start))
        self._timer = self._loop.call_later(patience, self._lose, Code.TOOL_TIMEOUT, f"no answer within {patience:g} s")

    # -- asyncio's protocol ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        while len(held) >= HEAD.size:
            size = HEAD.unpack_from(held)[0]
            if size > self._most or not self._flight:
                self._lose(Code.TOOL_CRASHED, "the worker sent more than it may")
                return
            if len(held) < HEAD.size + size:
                return
            body = bytes(memoryview(held)[HEAD.size : HEAD.size + size])
            del held[: HEAD.size + size]
            try:
                answers = dict(check_answer(answer) for answer in unpack_bounded(body, self._zygote.limits.values))
                if not answers or not answers.keys() <= self._flight.keys():
                    raise ValueError
            except (ValueError, TypeError, KeyError, RecursionError):
                self._lose(Code.TOOL_CRASHED, "the worker sent what is no answer")
                return
            for number, answer in answers.items():
                future = self._flight.pop(number)
                if not future.done():
                    future.set_result(answer)
            if not self._flight:
                if self._timer is not None:
                    self._timer.cancel()
                self._loop.call_soon(self._flush)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost:
            self._lose(Code.TOOL_CRASHED, "the tool's process ended")

    def _lose(self, code: Code, detail: str) -> None:
        """End the worker: kill it, find out whether and how it had already ended, and let its requests fail."""
        self._stop()
        self._ending = self._loop.create_task(self._finish_lost(code, detail))

    def _stop(self) -> None:
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _finish_lost(self, code: Code, detail: str) -> None:
        flight, queue = self._flight, self._queue
        self._flight, self._queue = {}, []
        try:
            found = await self._zygote.end(self._number)
        except RuntimeError:  # the event loop is closing, and nothing waits for an answer
            found = None
        sure = code is Code.TOOL_TIMEOUT
        if self._zygote.exceeded:
            code, detail, sure, found = Code.RESOURCE_LIMIT, self._zygote.exceeded, True, None
        if code is Code.TOOL_CRASHED and found == MEMORY_EXIT:
            detail, sure = f"out of memory: a call may take {self._zygote.limits.memory >> 20} MB", True
        elif code is Code.TOOL_CRASHED and found is not None:
            detail = f"the tool's process ended by {'signal' if found < 0 else 'exit code'} {abs(found)}"
        outside = code is Code.TOOL_CRASHED and found in (None, -signal.SIGKILL)
        alone = self._together == 1
        for future in flight.values():
            fail(future, WorkerLost(code, detail, alone=alone, sure=sure, outside=outside))
        for _, future, _ in queue:
            fail(future, WorkerLost(Code.WORKER_LOST, "another request ended the worker", alone=False))

    async def close(self) -> None:
        if self.lost:
            if self._ending is not None:
                await self._ending
            return
        self._stop()
        for future in [*self._flight.values(), *(f for _, f, _ in self._queue)]:
            fail(future, Aborted(Code.WORKER_LOST, "closed"))
        await self._zygote.end(self._number)


def fail(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def check_answer(answer: Any) -> tuple[int, Answer]:
    """Return a request's number and `[status, value]`. The code on the other side may send anything: raises `ValueError`."""
    number, (status, value) = answer
    if type(number) is not int or status not in (0, 1, 2, 3) or type(status) is not int:
        raise ValueError
    if status in (1, 2) and not isinstance(value, str):
        raise ValueError
    return number, [status, value]


class WorkerSlot:
    """A place for a worker. A lost worker is replaced under a higher generation, and its episodes are rebuilt."""

    def __init__(self, zygote: ForkServer, *, isolated: bool, own: bool = False) -> None:
        """`own`: the sandbox belongs to this slot alone; it ends with its worker and is recreated for the next one."""
        self._zygote, self._isolated, self._own = zygote, isolated, own
        self._worker: Worker | None = None
        self._guard = asyncio.Lock()
        self.generation = 0
        self.sessions = 0
        self._ids = itertools.count(1)

    @property
    def live(self) -> Worker | None:
        worker = self._worker
        return worker if worker is not None and not worker.lost else None

    async def worker(self) -> Worker:
        """Return the live worker; make one if there is none."""
        if (worker := self.live) is not None:
            return worker
        async with self._guard:
            if (worker := self.live) is not None:
                return worker
            if self._worker is not None:
                await self._worker.close()
                if self._own:
                    await self._zygote.close()
            self._worker = await Worker.start(self._zygote, isolated=self._isolated)
            self.generation += 1
            return self._worker

    @property
    def exceeded(self) -> str:
        """The reason why the supervisor ended this slot's own sandbox; empty if it did not."""
        return self._zygote.exceeded if self._own else ""

    def number(self) -> int:
        """Return a session number that is new in this slot."""
        return next(self._ids)

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and not self._own:
            await worker.close()
        if self._own:
            await self._zygote.close()
            if worker is not None:
                await worker.close()
