"""Step many episodes at once without waiting for the slowest: each takes its next turn as soon as its own answer has arrived.

A trainer that samples in rounds would wait in every round for the slowest reply of a simulator: if one reply in twenty takes ten times
as long as the others, a step takes about three times as long (`eval/bench/schedule.py`). Here the steps run in the portal's loop, and
`collect` returns the episodes that are ready. It waits a moment for more of them, so that batches stay full, and so that a world that
answers immediately gives the same batches in every run.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Coroutine, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from simia import event_loop

K = TypeVar("K", bound=Hashable)
LINGER = 0.05  # seconds without a further answer, after which `collect` returns
LONGEST_LINGER = 0.2


class TurnSchedule(Generic[K]):
    """Coroutines by key; each is one step of one episode. Call its methods from one thread, which is not the portal's."""

    def __init__(self) -> None:
        self._under_way: dict[K, Future[Any]] = {}
        self.waited = 0.0
        """Seconds spent waiting with nothing to collect."""
        self._ended: queue.SimpleQueue[K] = queue.SimpleQueue()

    def __len__(self) -> int:
        """Return the number of steps that were started and not yet collected."""
        return len(self._under_way)

    def __contains__(self, key: K) -> bool:
        return key in self._under_way

    def start(self, key: K, work: Coroutine[Any, Any, Any]) -> None:
        """Start a step in the portal's loop. A key has one step at a time."""
        if key in self._under_way:
            work.close()
            raise ValueError(f"{key!r} has a step in progress")
        future = asyncio.run_coroutine_threadsafe(work, event_loop.start_portal())
        self._under_way[key] = future
        future.add_done_callback(lambda _: self._ended.put(key))

    def collect(self, most: float | None = None) -> dict[K, Any]:
        """Wait for at least one step, then shortly for more, and return their results by key, in the order in which they were started.

        Empty if no step is under way, or once `waited` has reached `most`. If a step raised, its exception is raised after all others have
        ended.
        """
        if not self._under_way:
            return {}
        began = time.monotonic()
        try:
            ended = {self._ended.get(timeout=None if most is None else max(0.0, most - self.waited))}
        except queue.Empty:
            return {}
        finally:
            self.waited += time.monotonic() - began
        last = time.monotonic() + LONGEST_LINGER
        while len(ended) < len(self._under_way):
            try:
                ended.add(self._ended.get(timeout=max(0.0, min(LINGER, last - time.monotonic()))))
            except queue.Empty:
                break
        failed = [error for key in ended if (error := self._under_way[key].exception()) is not None]
        if failed:
            while len(ended) < len(self._under_way):
                ended.add(self._ended.get())
            self._under_way.clear()
            raise failed[0]
        ready = [key for key in self._under_way if key in ended]
        return {key: self._under_way.pop(key).result() for key in ready}

    def close(self) -> None:
        """Cancel the steps under way, and wait until they have ended."""
        for future in self._under_way.values():
            future.cancel()
        for _ in range(len(self._under_way)):
            self._ended.get()
        self._under_way.clear()
