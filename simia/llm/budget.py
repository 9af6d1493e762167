"""One budget for several engines, for several processes, and for what was spent before they were made.

Roles of a rollout may have a model each, a resumed run goes on with what is left, and a trainer has workers in processes of their own;
a cap is the user's, not an engine's. Engines of one process share a `Budget`. Processes that share a budget each have a budget and
read and write one `SharedBudget`, once before each call and once after it: what a call is taken to cost is written there before it is sent, and
what it did cost in its place afterwards. Who is killed between leaves the former, for it may have been paid.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from simia.errors import Code, UserError
from simia.llm.concurrency import ConcurrencyLimiter
from simia.llm.limits import Cap, EngineLimits
from simia.trajectory import Usage

LATENCIES_KEPT = 10_000
ROUNDING = 1 + 1e-9  # sums of dollars in binary


class BudgetReached(Exception):  # noqa: N818 - an ending, not a mistake
    """The next request would pass a cap of the budget. Nothing was sent; a run stops here and can be resumed with a higher cap.

    `held`: what is in flight elsewhere, or was when somebody was killed, and may be paid. `who` shares the budget, in words.
    """

    def __init__(self, cap: str, limit: float, spent: float, held: float = 0.0, who: str = "") -> None:
        more = f" and {held:g} more may be" if held else ""
        again = "start again" if who else "resume"
        super().__init__(
            f"budget reached: {cap} is {limit:g} and {spent:g} is spent{more}{who}; raise {cap} and {again} to go on"
        )
        self.cap, self.limit, self.spent, self.held = cap, limit, spent, held


@dataclass(frozen=True, slots=True)
class Spending:
    """What somebody has sent and spent; dollars and tokens. `held_…`: what the calls in flight are taken to cost beside that, all
    but the `blind` ones, which were sent when it was not yet known what a reply costs."""

    sent: int = 0
    answered: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    held_tokens: float = 0.0
    held_cost: float = 0.0
    blind: int = 0

    def spent(self, cap: Cap) -> float:
        return self.tokens if cap == "max_tokens" else self.cost

    def held(self, cap: Cap) -> float:
        return self.held_tokens if cap == "max_tokens" else self.held_cost


@dataclass
class EngineStats:
    """What an engine did since it was made. Preset `usage`, `answered` and `sent` to let a budget span a resumed run."""

    asked: int = 0  # keys that went to the endpoint
    answered: int = 0
    failed: int = 0
    stalled: int = 0  # calls cut short, which may have been paid
    recalled: int = 0  # served by the journal, at no cost
    shared: int = 0  # waited for the same key of another asker
    sent: int = 0  # requests, retries included
    in_flight: int = 0
    retries: Counter[Code] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    unpriced: int = 0  # replies of unknown cost
    started_at: float = field(default_factory=time.time)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT), repr=False)

    def latency(self) -> dict[str, float]:
        """Seconds of the latest answered attempts: median, 95th percentile, longest. Empty before the first."""
        ordered = sorted(self.latencies)
        if not ordered:
            return {}
        last = len(ordered) - 1
        return {"p50": ordered[last // 2], "p95": ordered[round(last * 0.95)], "max": ordered[-1]}


class BudgetedEngine(Protocol):
    """What a budget reads of an engine, and `out`, which it counts: calls that it let go and that are not back."""

    limits: EngineLimits
    stats: EngineStats
    gate: ConcurrencyLimiter
    budget: Budget
    out: int


class SharedBudget(Protocol):
    """Where processes that share a budget read what the others spend, and write what they spend themselves."""

    name: str

    def turn(self, mine: Callable[[Spending], Spending | None]) -> None:
        """Exclusive among the processes. `mine` is given the sum of all others and returns our own tally, which is written in
        place of the last one; nothing is written where it returns None or raises. Raises `UserError` where the shared budget cannot be
        read or written."""


@dataclass
class Budget:
    """One budget: of the engines that share it, of what was spent `before` they were made, in so many requests and answers, and
    of what others have sent and spent, as of our last read of the shared budget."""

    engines: list[BudgetedEngine]
    before: Usage = field(default_factory=Usage)
    sent_before: int = 0
    answered_before: int = 0
    shared: SharedBudget | None = None
    others: Spending = field(default_factory=Spending)

    def spent(self, cap: Cap) -> float:
        known = read_cost(cap, self.before) + self.others.spent(cap)
        return known + sum(read_cost(cap, engine.stats.usage) for engine in self.engines)

    def held(self, cap: Cap) -> float:
        """What the others' calls in flight will cost, as far as one can know; or may have cost, where a kill cut them off."""
        return self.others.held(cap) + self.others.blind * self.mean(cap)

    def in_flight_cost(self, cap: Cap) -> float:
        """The same of our own, those included that have a place at a gate and are about to be sent."""
        return sum(engine.gate.in_flight * self.mean(cap, engine) for engine in self.engines)

    def out(self, cap: Cap) -> float:
        """The same of our own that were sent."""
        return sum(engine.out * self.mean(cap, engine) for engine in self.engines)

    def mean(self, cap: Cap, engine: BudgetedEngine | None = None) -> float:
        """What one reply costs: of this engine's so far, or else of all that share the budget; 0 before the first."""
        if engine is not None and (own := engine.stats.answered):
            return read_cost(cap, engine.stats.usage) / own
        return self.spent(cap) / self.answered if self.answered else 0.0

    @property
    def answered(self) -> int:
        return self.answered_before + self.others.answered + sum(engine.stats.answered for engine in self.engines)

    @property
    def sent(self) -> int:
        return self.sent_before + self.others.sent + sum(engine.stats.sent for engine in self.engines)

    def has_room(self, engine: BudgetedEngine) -> bool:
        """Whether one more call fits beside those in flight, each taken to cost the mean of the replies so far: what a gate asks.

        Without this, a full set of calls would be on its way when a cap is reached. Before the first reply there is no mean, so under a
        cap calls go one by one until it is there. Others count as they stood at our last look; `take` knows how they stand.
        Where `take` says no to a call, this must too, until one is back: or the call would go round between the two without a pause.
        """
        if not any(each.gate.in_flight for each in self.engines):
            return True  # `take` decides
        return all(
            self.answered > 0
            and self.spent(cap) < limit
            and self.spent(cap) + self.held(cap) + self.in_flight_cost(cap) + self.mean(cap, engine) <= limit * ROUNDING
            for cap, limit in engine.limits.caps()
        )

    def take(self, engine: BudgetedEngine) -> bool:
        """Count one more call of this engine as sent, if there is money for it. False: not before those in flight are back. Raises
        `BudgetReached` where there is none at all, and `UserError` where the shared budget cannot be used; nothing is counted then."""
        fits = True

        def mine(others: Spending) -> Spending | None:
            nonlocal fits
            self.others = others
            fits = self.fits(engine)
            return self.own_spending(also=engine) if fits else None

        if self.shared is None:
            fits = self.fits(engine)
        else:
            self.shared.turn(mine)
        if fits:
            engine.stats.sent += 1
            engine.out += 1
        return fits

    def fits(self, engine: BudgetedEngine) -> bool:
        """What others hold for their calls is as good as spent: to wait for it would mean to ask again and again."""
        who = f" by all that share {self.shared.name}" if self.shared else ""
        most, sent = engine.limits.max_requests, self.sent
        if most is not None and sent >= most:
            raise BudgetReached("max_requests", most, sent, who=who)
        for cap, limit in engine.limits.caps():
            spent, held = self.spent(cap), self.held(cap)
            if spent >= limit or spent + held + self.out(cap) + self.mean(cap, engine) > limit * ROUNDING:
                if any(each.out for each in self.engines):
                    return False
                raise BudgetReached(cap, limit, spent, held, who)
        return True

    def settle_call(self, engine: BudgetedEngine) -> None:
        """A call is over: what it cost, if anything, is in the engine's figures. Never raises, for a paid reply is in the caller's
        hands: where the shared budget cannot be written, it goes on holding what it held until our next turn, which says so."""
        engine.out -= 1
        if self.shared is not None:
            with contextlib.suppress(UserError):
                self.shared.turn(self._look)

    def own_spending(self, also: BudgetedEngine | None = None) -> Spending:
        """Our own, with one more call of `also`. What was spent before is the ledger's, and no part of it."""
        out = [(engine, engine.out + (engine is also)) for engine in self.engines]
        stats = [engine.stats for engine in self.engines]
        return Spending(
            sent=sum(each.sent for each in stats) + (also is not None),
            answered=sum(each.answered for each in stats),
            tokens=sum(read_cost("max_tokens", each.usage) for each in stats),
            cost=sum(read_cost("max_cost", each.usage) for each in stats),
            held_tokens=sum(n * self.mean("max_tokens", engine) for engine, n in out),
            held_cost=sum(n * self.mean("max_cost", engine) for engine, n in out),
            blind=0 if self.answered else sum(n for _, n in out),
        )

    def look_again(self, left: BudgetedEngine) -> None:
        """A call of one engine is over: there may be room for those that wait at the others."""
        for engine in self.engines:
            if engine is not left:
                engine.gate.look_again()

    def _look(self, others: Spending) -> Spending:
        self.others = others
        return self.own_spending()

    def open(self) -> Budget:
        """Our first read of the shared budget."""
        if self.shared is not None:
            self.shared.turn(self._look)
        return self


def read_cost(cap: Cap, usage: Usage) -> float:
    return usage.prompt + usage.completion if cap == "max_tokens" else usage.cost or 0.0


def share_budget(
    engines: Sequence[BudgetedEngine],
    before: Usage | None = None,
    *,
    sent: int = 0,
    answered: int = 0,
    shared: SharedBudget | None = None,
) -> None:
    """Let the caps hold for all of them together, for what an earlier session spent, and for all who share this budget. Raises
    `UserError` where the shared budget cannot be used."""
    budget = Budget(list(engines), before or Usage(), sent, answered, shared).open()
    for engine in engines:
        engine.budget = budget
