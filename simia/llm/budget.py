"""The limits of an engine, and one budget for several engines, several processes and all sessions of a run.

A user sets one cap, but each role of a rollout may have an engine of its own, a resumed run continues with the rest of the budget, and a
trainer has worker processes. Engines of one process share a `Budget`. Processes that share a budget each have a `Budget` and read and write
one `SharedBudget` before and after each call: the expected cost of a call is reserved there before it is sent and replaced by its real
cost afterwards. A crash leaves the reservation in place, since the call may have been paid, and so does a try without an answer in time.
There is no mean reply before the first one, so tries count from then on.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import Field

from simia.config import Config
from simia.errors import Code, UserError
from simia.llm.concurrency import ConcurrencyLimiter
from simia.trajectory import Usage

LATENCIES_KEPT = 10_000
ROUNDING = 1 + 1e-9  # sums of dollars in binary
Cap = Literal["tokens", "cost"]


class EngineLimits(Config):
    """Concurrency, retries and budget of the requests to an endpoint. All settings are operational: a resume may change them."""

    concurrency: int = Field(
        256, ge=1, description="Maximum number of concurrent requests. The actual number adapts to the endpoint."
    )
    start: int = Field(
        16,
        ge=1,
        description="Number of concurrent requests at the start. It grows while the endpoint accepts them, and shrinks when it refuses.",
    )
    stall: float | None = Field(
        6.0,
        gt=1,
        description="Cancel and retry a request that takes longer than this many times the 95th percentile of all durations, and "
        "longer than 60 s. null: never.",
    )
    retries: int = Field(6, ge=0, description="Maximum number of retries of a request after a temporary error.")
    backoff: float = Field(
        1.0,
        gt=0,
        description="Base of the retry delay, in seconds. Retry n (0, 1, …) waits a random time of at most backoff × 2^n.",
    )
    backoff_max: float = Field(60.0, gt=0, description="Maximum retry delay, in seconds.")
    retry_after_max: float = Field(
        600.0, gt=0, description="Do not retry a request if the endpoint asks to wait longer than this, in seconds."
    )
    outage: float = Field(
        1800.0,
        ge=0,
        description="In runs that can be resumed: how long to wait, in seconds, for an endpoint that has answered before and is now away or "
        "refuses every request. Its requests are retried, also beyond `retries`. 0: do not wait. Without effect if `retries` is 0.",
    )
    max_cost: float | None = Field(
        None,
        ge=0,
        description="Budget in US dollars. It and the other budgets do not limit a batch. A try without an answer in time counts like a mean reply, since it may have been billed. After a kill, a resume does not know of those that were repeated. null: no limit.",
    )
    max_tokens: int | None = Field(
        None,
        ge=0,
        description="Budget in tokens, prompt and completion together. A try without an answer in time counts like a mean reply. After a kill, a resume does not know of those that were repeated. null: no limit.",
    )
    max_requests: int | None = Field(
        None,
        ge=0,
        description="Maximum number of HTTP requests, retries included. After a kill, a resume does not know of the retries. null: no limit.",
    )

    @property
    def capped(self) -> bool:
        """Whether there is a budget at all."""
        return self.max_requests is not None or any(True for _ in self.caps())

    def caps(self) -> Iterator[tuple[Cap, float]]:
        """The caps on the cost of replies."""
        if self.max_tokens is not None:
            yield "tokens", self.max_tokens
        if self.max_cost is not None:
            yield "cost", self.max_cost


class BudgetReached(Exception):  # noqa: N818 - an ending, not a mistake
    """The next request would pass a cap of the budget. Nothing was sent; a run stops here and can be resumed with a higher cap.

    `held`: what calls that timed out may have cost, and what other processes have reserved for calls that are in flight, or were when a
    process was killed. `who`: names the shared budget.
    """

    def __init__(self, cap: str, limit: float, spent: float, held: float = 0.0, who: str = "") -> None:
        more = f" and up to {held:g} more may be" if held else ""
        again = "start again" if who else "resume"
        super().__init__(
            f"budget reached: {cap} is {limit:g} and {spent:g} is spent{more}{who}; raise {cap} and {again} to go on"
        )
        self.cap, self.limit, self.spent, self.held = cap, limit, spent, held


@dataclass(frozen=True, slots=True)
class Spending:
    """Requests sent, replies, tokens and dollars spent. `held_…`: the expected cost of the calls in flight and of those that
    timed out. `blind`: number of such calls whose cost is not in `held_…`: no reply had been received yet when they were sent, or they
    are an earlier session's."""

    sent: int = 0
    answered: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    held_tokens: float = 0.0
    held_cost: float = 0.0
    blind: int = 0


@dataclass
class EngineStats:
    """Counts of one engine since it was made."""

    asked: int = 0  # keys that went to the endpoint
    answered: int = 0
    failed: int = 0
    refused: int = 0  # calls in a row that ended with one of `REFUSALS`
    stalled: int = 0  # tries cut short, since they took far longer than others
    timed_out: int = 0  # tries without an answer in time, stalled ones included; each may have been paid
    recalled: int = 0  # served by the journal, at no cost
    shared: int = 0  # waited for another caller's request with the same key
    sent: int = 0  # requests, retries included
    in_flight: int = 0
    retries: Counter[Code] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    unpriced: int = 0  # replies of unknown cost
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT), repr=False)

    def latency(self) -> dict[str, float]:
        """Seconds of the latest answered attempts: median, 95th percentile, longest. Empty before the first."""
        ordered = sorted(self.latencies)
        if not ordered:
            return {}
        last = len(ordered) - 1
        return {"p50": ordered[last // 2], "p95": ordered[round(last * 0.95)], "max": ordered[-1]}


class BudgetedEngine(Protocol):
    """The part of an engine that a budget uses. The budget counts `out`: calls that were sent and are not back."""

    limits: EngineLimits
    stats: EngineStats
    gate: ConcurrencyLimiter
    budget: Budget
    out: int


class SharedBudget(Protocol):
    """The common record of processes that share a budget: each reads the others' spending and writes its own."""

    name: str

    def turn(self, mine: Callable[[Spending], Spending | None]) -> None:
        """Call `mine` with the sum of the other processes' spending, while no other process can do so. It returns the new spending of this
        process, which replaces the previous one; if it returns None or raises, nothing is written. Raises `UserError` if the shared budget
        cannot be read or written."""


@dataclass
class Budget:
    """The budget of the `engines` that share it. `before`: spending of earlier sessions; `others`: spending of other processes at the
    last read of the shared budget."""

    engines: list[BudgetedEngine]
    before: Spending = field(default_factory=Spending)
    shared: SharedBudget | None = None
    others: Spending = field(default_factory=Spending)

    def spent(self, cap: Cap) -> float:
        known: float = getattr(self.before, cap) + getattr(self.others, cap)
        return known + sum(read_cost(cap, engine.stats.usage) for engine in self.engines)

    def held(self, cap: Cap) -> float:
        """The expected cost of the others' calls in flight, of calls that were in flight when a process ended, and of those that timed out:
        an endpoint may finish such a reply, and bill it."""
        held: float = getattr(self.others, f"held_{cap}")
        timed_out = sum(engine.stats.timed_out * self.mean(cap, engine) for engine in self.engines)
        return held + timed_out + (self.before.blind + self.others.blind) * self.mean(cap)

    def mean(self, cap: Cap, engine: BudgetedEngine | None = None) -> float:
        """The mean cost of a reply: of this engine's so far, or else of all that share the budget; 0 before the first."""
        if engine is not None and (own := engine.stats.answered):
            return read_cost(cap, engine.stats.usage) / own
        return self.spent(cap) / self.answered if self.answered else 0.0

    @property
    def answered(self) -> int:
        return self.before.answered + self.others.answered + sum(engine.stats.answered for engine in self.engines)

    @property
    def sent(self) -> int:
        return self.before.sent + self.others.sent + sum(engine.stats.sent for engine in self.engines)

    def has_room(self, engine: BudgetedEngine) -> bool:
        """Whether one more call fits in addition to those in flight, each expected to cost the mean of the replies so far. Used by the gate.

        Without this check, as many calls as the gate admits would be in flight when a cap is reached. Before the first reply there is no
        mean, so under a cap calls are sent one at a time until then. The spending of other processes is that of the last read; `take` reads
        it again. If `take` refuses a call, this must return False until a call returns; otherwise the engine would loop between the two.
        """
        if not any(each.gate.in_flight for each in self.engines):
            return True  # `take` decides
        for cap, limit in engine.limits.caps():
            spent, own = self.spent(cap), sum(each.gate.in_flight * self.mean(cap, each) for each in self.engines)
            expected = spent + self.held(cap) + own + self.mean(cap, engine)
            if not self.answered or spent >= limit or expected > limit * ROUNDING:
                return False
        return True

    def take(self, engine: BudgetedEngine) -> bool:
        """Count one more call of this engine as sent, if the budget allows it. Returns False if it must wait for calls in flight. Raises
        `BudgetReached` if waiting does not help, and `UserError` if the shared budget cannot be used; nothing is counted then."""
        fits = True

        def reserve(others: Spending) -> Spending | None:
            nonlocal fits
            self.others = others
            fits = self.fits(engine)
            return self.own_spending(also=engine) if fits else None

        if self.shared is None:
            fits = self.fits(engine)
        else:
            self.shared.turn(reserve)
        if fits:
            engine.stats.sent += 1
            engine.out += 1
        return fits

    def fits(self, engine: BudgetedEngine) -> bool:
        """Whether one more call fits. Reservations of other processes count as spent, since waiting for their end would require polling."""
        who = f" by all that share {self.shared.name}" if self.shared else ""
        most, sent = engine.limits.max_requests, self.sent
        if most is not None and sent >= most:
            raise BudgetReached("max_requests", most, sent, who=who)
        for cap, limit in engine.limits.caps():
            spent, held = self.spent(cap), self.held(cap)
            own = sum(each.out * self.mean(cap, each) for each in self.engines)
            if spent >= limit or spent + held + own + self.mean(cap, engine) > limit * ROUNDING:
                if any(each.out for each in self.engines):
                    return False
                raise BudgetReached(f"max_{cap}", limit, spent, held, who)
        return True

    def settle_call(self, engine: BudgetedEngine) -> None:
        """Count a call as over; its cost, if any, is in the engine's stats. Never raises, because the caller has a paid reply: if the
        shared budget cannot be written, the reservation stays until the next call, which raises."""
        engine.out -= 1
        with contextlib.suppress(UserError):
            self.update_shared()

    def update_shared(self) -> None:
        """Write this process's spending to the shared budget and read the others'. Raises `UserError`."""

        def exchange(others: Spending) -> Spending:
            self.others = others
            return self.own_spending()

        if self.shared is not None:
            self.shared.turn(exchange)

    def own_spending(self, also: BudgetedEngine | None = None) -> Spending:
        """The spending of this session, with one more call of `also`. The ledger holds the spending of earlier sessions."""
        out = [(each, each.out + (each is also) + each.stats.timed_out) for each in self.engines]
        stats = [engine.stats for engine in self.engines]
        return Spending(
            sent=sum(each.sent for each in stats) + (also is not None),
            answered=sum(each.answered for each in stats),
            tokens=sum(read_cost("tokens", each.usage) for each in stats),
            cost=sum(read_cost("cost", each.usage) for each in stats),
            held_tokens=sum(n * self.mean("tokens", engine) for engine, n in out),
            held_cost=sum(n * self.mean("cost", engine) for engine, n in out),
            blind=0 if self.answered else sum(n for _, n in out),
        )


def read_cost(cap: Cap, usage: Usage) -> float:
    return usage.prompt + usage.completion if cap == "tokens" else usage.cost or 0.0


def count_tries(engines: Iterable[BudgetedEngine]) -> tuple[int, int]:
    """Return the number of retries of these engines, and of their tries without an answer in time."""
    stats = [engine.stats for engine in engines]
    return sum(each.sent - each.asked for each in stats), sum(each.timed_out for each in stats)


def share_budget(
    engines: Sequence[BudgetedEngine],
    before: Spending | None = None,
    *,
    shared: SharedBudget | None = None,
) -> None:
    """Apply the caps to the sum of these engines, the earlier sessions, and all processes that share this budget. Raises
    `UserError` if the shared budget cannot be used."""
    budget = Budget(list(engines), before or Spending(), shared)
    budget.update_shared()
    for engine in engines:
        engine.budget = budget
