"""The async core for callers that have no event loop: one thread with one loop, for the whole process.

Trainers step their environments from plain functions. `asyncio.run` for each step would end connection pools and workers
with every call; here the loop stays.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@functools.cache
def portal() -> asyncio.AbstractEventLoop:
    """The loop of the portal's thread, started at the first use."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="simia", daemon=True).start()
    return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it in the portal's thread and wait. Raises what it raises; must not be called from the portal's own loop."""
    return asyncio.run_coroutine_threadsafe(work, portal()).result()
