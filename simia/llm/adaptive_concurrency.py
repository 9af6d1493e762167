"""How many calls may be in flight: found by trying, as TCP finds a path's capacity, since no endpoint says it beforehand.

It grows while callers wait and calls succeed (doubling each round trip until the first refusal, then by a twentieth) and
shrinks once a round trip when the endpoint refuses: 429, 503, a time-out. A refusal of a call that was sent before the last
decrease says nothing new. Latency counts too, but leniently, because a batching server answers slower *and* does more
with more in flight: only when answers take three times as long as they used to does the limit give way.
"""

from __future__ import annotations

LEAST = 1.0
GAIN = 0.05  # of the limit, for a round trip's worth of successes
STEP = 2.0  # calls, for the same: where refusals come at random, a few at once must be able to become more
SHRINK = 0.85
DEEPEST = 0.5  # one round of refusals takes away half at most
SLOW = 3.0  # times the usual latency
QUICK, USUAL = 1 / 20, 1 / 400  # weights of the newest latency in the two running means
WARM = 50  # answers before latency says anything


class AdaptiveConcurrency:
    """The limit for one endpoint. `sent` gives a mark to hand back with the outcome of that call."""

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
        """`latency` in seconds; `waiting`: somebody stands at the gate, so the limit is what holds calls back."""
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
        """The endpoint would not take this call. `in_flight`: the others, which it did take or has not answered yet."""
        if mark == self._round:
            self._shrink_to(max(LEAST, DEEPEST * self.limit, min(SHRINK * self.limit, float(in_flight))))

    def _shrink_to(self, limit: float) -> None:
        self.limit = limit
        self._searching = False
        self._since = 0
        self._round += 1
