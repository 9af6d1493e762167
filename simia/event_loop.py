"""Run coroutines from plain functions: in a loop for one command, or in one loop that stays for the whole process.

Trainers step their environments from plain functions. A loop for each step would end connection pools and workers with every
call, so `run` uses one thread with one loop. A command needs signal handlers, which only a loop of the main thread can have.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")


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


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work in this thread, in a loop that ends with it. uvloop takes a sixth off the cost of a reply."""
    try:
        import uvloop
    except ImportError:  # not made for every platform
        return asyncio.run(work)
    return uvloop.run(work)
