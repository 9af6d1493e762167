"""Limit concurrent calls. The limit adapts to the endpoint, and calls wait for a place, for the end of a pause and for the budget."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

LEAST = 1.0
GAIN = 0.05  # of the limit, for a round trip's worth of successes
STEP = 2.0  # calls, for the same: after random refusals, a small limit must still be able to grow
SHRINK = 0.85
DEEPEST = 0.5  # one round of refusals takes away half at most
SLOW = 3.0  # times the usual latency
QUICK, USUAL = 1 / 20, 1 / 400  # weights of the newest latency in the two running means
WARM = 50  # answers before the latency is used


class AdaptiveConcurrency:
    """The concurrency limit for one endpoint, found by trying, as TCP finds a path's capacity, since no endpoint reports it.

    It grows while callers wait and calls succeed (doubling each round trip until the first refusal, then by a twentieth) and shrinks once a
    round trip when the endpoint refuses: 429, 503, a time-out. A refusal of a call that was sent before the last decrease is ignored.
    Latency counts too, but leniently, because a batching server answers slower *and* does more with more in flight: the limit shrinks only
    when answers take three times as long as they used to.

    `sent` returns a mark to pass to `refused` with the outcome of that call.
    """

    def __init__(self, start: int, most: int) -> None:
        self.most = float(most)
        self.limit = float(min(start, most))
        self.floor = min(8.0, self.limit)  # latency alone never takes it below
        self._round = 0
        self._searching = True  # no refusal yet: double
        self._quick = self._usual = 0.0
        self._answers = 0
        self._since = 0

    def sent(self) -> int:
        return self._round

    def answered(self, latency: float, *, waiting: bool) -> None:
        """Note an answered call. `latency`: seconds; `waiting`: whether callers wait for a place, so that a higher limit would help."""
        self._answers += 1
        self._since += 1
        if self._answers == 1:
            self._quick = self._usual = latency
        self._quick += QUICK * (latency - self._quick)
        self._usual += max(USUAL, 1 / self._answers) * (latency - self._usual)
        if self._answers > WARM and self._quick > SLOW * self._usual:
            if self._since >= self.limit and self.limit > self.floor:
                self._shrink_to(max(self.floor, SHRINK * self.limit))
        elif waiting and self.limit < self.most:
            self.limit = min(self.most, self.limit + (1.0 if self._searching else max(GAIN, STEP / self.limit)))

    def refused(self, mark: int, in_flight: int) -> None:
        """Note a refused call. `in_flight`: number of other calls, which the endpoint accepted or has not answered yet."""
        if mark == self._round:
            self._shrink_to(max(LEAST, DEEPEST * self.limit, min(SHRINK * self.limit, float(in_flight))))

    def _shrink_to(self, limit: float) -> None:
        self.limit = limit
        self._searching = False
        self._since = 0
        self._round += 1


class ConcurrencyLimiter:
    """Let in at most `limit` calls at once, none during a pause, and none for which the budget has no room yet.

    asyncio's semaphore cannot pause, cannot change its size while it is in use, and lets a retry wait behind every new call.
    """

    def __init__(self, limit: int, room: Callable[[], bool]) -> None:
        """`room` must return True while no call is in flight, or no call would ever be sent again."""
        self.limit = limit
        self.in_flight = 0
        self._room = room
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = asyncio.Event()
        self._paused_until = 0.0
        self._wake: asyncio.TimerHandle | None = None

    async def enter(self, *, first: bool = False) -> None:
        """Wait for a place. `first`: ahead of the queue, for a call that has been tried before.

        Once the gate is closed, waiting and new calls are cancelled.
        """
        if self._closed.is_set():
            raise asyncio.CancelledError
        if not self._queue and self._open():
            self.in_flight += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.appendleft(place) if first else self._queue.append(place)
        self.admit()
        try:
            await place  # `admit` has counted this call by the time it resolves
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # let in and cancelled in one turn of the loop
                self.leave()
            raise

    async def sleep(self, seconds: float) -> None:
        """Wait before another try. Once the gate is closed, the call is cancelled."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
        raise asyncio.CancelledError

    def leave(self) -> None:
        self.in_flight -= 1
        self.admit()

    def admit(self) -> None:
        """Let in waiting calls that fit. Also called when `room` may have changed."""
        while self._queue and self._open():
            place = self._queue.popleft()
            if not place.done():  # a cancelled one just leaves the queue
                place.set_result(None)
                self.in_flight += 1

    def pause(self, seconds: float) -> None:
        """Send no calls for that long. A shorter pause never ends a longer one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if until <= self._paused_until:
            return
        self._paused_until = until
        self._cancel_timer()
        self._wake = loop.call_at(until, self._resume)

    def resize(self, limit: int) -> None:
        grown, self.limit = limit > self.limit, limit
        if grown:
            self.admit()

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def close(self) -> None:
        """Send no more calls and cancel waiting ones; calls in flight finish."""
        self._closed.set()
        while self._queue:
            self._queue.popleft().cancel()
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _resume(self) -> None:
        self._wake = None
        self.admit()

    def _open(self) -> bool:
        return self._wake is None and self.in_flight < self.limit and self._room()
