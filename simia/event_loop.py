"""Run coroutines from plain functions: in a loop for one command, or in one loop that lasts as long as the process.

Trainers step their environments from plain functions. A new loop for each step would close connection pools and workers after every
call, so `run` uses one thread with one loop. A command needs signal handlers, which only a loop of the main thread can have.

A thousand episodes may be ready at once, each with a millisecond of work. `share_loop` lets only a few of them continue in each round
of the loop, so that timers, replies and other episodes wait for these few only.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")
A_ROUND = 8  # callers of `share_loop` that continue in one round of a loop


@functools.cache
def start_portal() -> asyncio.AbstractEventLoop:
    """Return the loop of the portal's thread, started at the first use."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="simia", daemon=True).start()
    return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the portal's thread and wait. Must not be called from the portal's own loop."""
    return asyncio.run_coroutine_threadsafe(work, start_portal()).result()


def run_together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all at once in the portal's thread. The first exception is raised after all have ended."""

    async def gather() -> list[T]:
        done = await asyncio.gather(*work, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return cast(list[T], done)

    return run(gather())


def start_shared(work: Awaitable[T]) -> asyncio.Future[T]:
    """Start work that several callers may await. If it fails after all of them were cancelled, as by Ctrl-C, no traceback is logged."""
    started = asyncio.ensure_future(work)
    started.add_done_callback(lambda done: done.cancelled() or done.exception())
    return started


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work in this thread, in a loop that ends with it. uvloop reduces the cost of a reply by one sixth."""
    try:
        import uvloop
    except ImportError:  # not made for every platform
        return asyncio.run(work)
    return uvloop.run(work)


class LoopRounds:
    """Counts the callers of `share_loop` that continue in a round of one loop; the others wait in order of arrival."""

    def __init__(self) -> None:
        self._free = A_ROUND
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._counting:
            self._counting = True
            loop.call_soon(self._begin_round, loop)
        if self._free and not self._waiting:
            self._free -= 1
            return
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append(place)
        await place

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        used, self._free = self._free < A_ROUND, A_ROUND
        while self._free and self._waiting:
            if not (place := self._waiting.popleft()).done():  # a cancelled one takes no place
                place.set_result(None)
                self._free -= 1
        self._counting = used or self._free < A_ROUND
        if self._counting:
            loop.call_soon(self._begin_round, loop)


_rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopRounds] = WeakKeyDictionary()


async def share_loop() -> None:
    """Return at once, or in a later round of the loop if enough callers have continued in this one. Call it before a millisecond of work."""
    loop = asyncio.get_running_loop()
    rounds = _rounds.get(loop)
    if rounds is None:
        rounds = _rounds[loop] = LoopRounds()
    await rounds.enter(loop)
