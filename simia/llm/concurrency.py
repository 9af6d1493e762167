"""Limit concurrent calls: at most `limit` at once, none during a pause, and none that the budget does not allow yet.

A semaphore of our own, because asyncio's cannot pause, cannot change its size while it is in use (adaptive concurrency does), and lets
a retry wait behind every new call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class ConcurrencyLimiter:
    def __init__(self, limit: int, room: Callable[[int], bool]) -> None:
        """`room` gets the number of calls in flight; it must be true for 0, or no call would ever be sent again."""
        self.limit = limit
        self.in_flight = 0
        self._room = room
        self._queue: deque[asyncio.Future[None]] = deque()
        self._shut = False
        self._paused_until = 0.0
        self._wake: asyncio.TimerHandle | None = None

    async def enter(self, *, first: bool = False) -> None:
        """Wait for a place. `first`: ahead of those who wait, for a call that has been tried before.

        Once the gate is shut, waiting and new calls are cancelled.
        """
        if self._shut:
            raise asyncio.CancelledError
        if not self._queue and self._open():
            self.in_flight += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.appendleft(place) if first else self._queue.append(place)
        self._admit()
        try:
            await place  # `_admit` has counted us by the time it resolves
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # let in and cancelled in one turn of the loop
                self.leave()
            raise

    def leave(self) -> None:
        self.in_flight -= 1
        self._admit()

    def look_again(self) -> None:
        """What `room` depends on beside this gate has changed."""
        self._admit()

    def pause(self, seconds: float) -> None:
        """Send no calls for that long. A shorter pause never ends a longer one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if until <= self._paused_until:
            return
        self._paused_until = until
        if self._wake is not None:
            self._wake.cancel()
        self._wake = loop.call_at(until, self._resume)

    def resize(self, limit: int) -> None:
        grown, self.limit = limit > self.limit, limit
        if grown:
            self._admit()

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def shut(self) -> None:
        """Send no more calls and cancel waiting ones; calls in flight finish."""
        self._shut = True
        while self._queue:
            self._queue.popleft().cancel()

    def close(self) -> None:
        """Shut, and drop the timer, so that a loop can end while a pause is on."""
        self.shut()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _resume(self) -> None:
        self._wake = None
        self._admit()

    def _open(self) -> bool:
        return self._wake is None and self.in_flight < self.limit and self._room(self.in_flight)

    def _admit(self) -> None:
        while self._queue and self._open():
            place = self._queue.popleft()
            if not place.done():  # a cancelled one just leaves the queue
                place.set_result(None)
                self.in_flight += 1
