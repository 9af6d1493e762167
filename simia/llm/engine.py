"""Ask a model for a reply that is paid for once: stored replies, concurrency, budget and retries around one back end.

Order of events for one key: recall (a stored reply costs nothing) → a place at the gate → the budget → `journal.asked`, durable before
the first byte is sent, so that a kill leaves a trace of what may have been paid → attempts → `journal.answered`, durable before the reply
is used. A retry belongs to the same sample and the same key. Two concurrent asks with one key are one call.

The engine starts no tasks of its own: cancelling the asker cancels the call.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

from simia import event_loop
from simia.errors import Code, UserError
from simia.garbage_collection import lower_thresholds, raise_thresholds
from simia.llm.budget import Budget, EngineStats
from simia.llm.budget import BudgetReached as BudgetReached
from simia.llm.budget import EngineLimits as EngineLimits
from simia.llm.concurrency import AdaptiveConcurrency, ConcurrencyLimiter
from simia.llm.http_response import RateLimits
from simia.llm.journals import ClaimingJournal, MemoryJournal, ReplyJournal
from simia.llm.prices import Price
from simia.llm.types import (
    REFUSALS,
    DeferredBackend,
    LLMFault,
    ModelBackend,
    RecordedBackend,
    Reply,
    Request,
    make_reply_key,
)

log = logging.getLogger(__name__)

BUSY = {503, 529}  # a server error that means "too much at once"
DOWN = {*BUSY, 502, 504}  # one that tells of the endpoint, not of the prompt
STALL_EVERY, STALL_LEAST = 64, 60.0


class Engine:
    """`async with Engine(...) as engine: reply = await engine.ask(request, item=..., draw=...)`. One event loop, any number of tasks."""

    def __init__(
        self,
        backend: ModelBackend,
        journal: ReplyJournal | None = None,
        limits: EngineLimits | None = None,
        price: Price | None = None,
    ) -> None:
        self.backend = backend
        self.journal: ReplyJournal = journal if journal is not None else MemoryJournal()
        # A check of 6 µs, made once.
        self._claiming = self.journal if isinstance(self.journal, ClaimingJournal) else None
        self.limits = limits or EngineLimits()
        if isinstance(backend, DeferredBackend) and self.limits.capped:
            log.warning(
                "%s: max_cost, max_tokens and max_requests do not limit a batch: count its requests before you send them",
                backend.alias,
            )
            self.limits = self.limits.model_copy(update=dict.fromkeys(("max_cost", "max_tokens", "max_requests")))
        self.price = price
        if self.limits.max_cost is not None and price is None:
            raise UserError(
                f"max_cost needs a price and none is known for {backend.model}: set price in the model's config (in a pool: of each endpoint), or use max_tokens"
            )
        self._capped = self.limits.max_tokens is not None or self.limits.max_cost is not None
        self.stats = EngineStats()
        self.budget = Budget([self])
        self.out = 0  # calls that the budget admitted and that have not returned
        self.pace = AdaptiveConcurrency(self.limits.start, self.limits.concurrency)
        self.gate = ConcurrencyLimiter(int(self.pace.limit), lambda: self.budget.has_room(self))
        self._rates: RateLimits | None = getattr(backend, "rates", None)
        self._patience: float | None = None  # seconds; known once there is a distribution of latencies
        self._until_update = STALL_EVERY  # answers until it is computed again
        self._warned_at: int | None = None  # how many replies there were at the latest warning of an outage
        self.waits_out_outages = False
        """Whether `limits.outage` holds: in runs that a resume continues, which are often left alone at night."""
        self._answered_at: float | None = None  # time of the latest reply, by the monotonic clock
        self._sharing: dict[str, asyncio.Future[Reply | None]] = {}
        self._random = random.Random()  # timing only: no result depends on it
        self._started = False
        self._recorded = backend if isinstance(backend, RecordedBackend) and backend.matches_draws else None

    async def start(self) -> None:
        await self.backend.start()
        if not self._started:
            self._started = True
            raise_thresholds()

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.gate.close()
        if self._started:
            self._started = False
            lower_thresholds()
        await self.backend.close()

    def make_key(self, request: Request, draw: str) -> str:
        """Return the key of the reply that `ask` gives: of the recorded request, where the back end matches by draw."""
        request = self.find_asked(request, draw)
        return make_reply_key(self.backend.alias, self.backend.model, request, draw)

    def find_asked(self, request: Request, draw: str) -> Request:
        """Return the request that `ask` sends: the recorded one, where the back end matches by draw."""
        return self._recorded.find_recorded(request, draw) if self._recorded else request

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """The reply of this sample. Raises `LLMFault` after the last try, and `BudgetReached` without sending.

        `key`: the sample's reply key, where the caller has made it already.
        """
        request = self.find_asked(request, draw)
        key = key or make_reply_key(self.backend.alias, self.backend.model, request, draw)
        while True:
            known = self.journal.recall(key)
            if known is not None:
                self.stats.recalled += 1
                await event_loop.share_loop()
                return known
            if (other := self._sharing.get(key)) is None:
                break
            shared = await asyncio.shield(other)
            if shared is not None:
                self.stats.shared += 1
                return shared  # None: the other caller was cancelled; one of the waiting callers takes over
        call = self._sharing[key] = asyncio.get_running_loop().create_future()
        try:
            reply = await self._call_claimed(key, request, item, draw)
            call.set_result(reply)
            await event_loop.share_loop()  # a store's replies come in large batches
            return reply
        except Exception as error:
            call.set_exception(error)
            call.exception()  # mark it as retrieved, since nobody may wait for it
            raise
        finally:
            del self._sharing[key]
            if not call.done():
                call.set_result(None)

    async def _call_claimed(self, key: str, request: Request, item: str, draw: str) -> Reply:
        """Call, or return the reply that another process received in the meantime. Waiting for a claim takes no place at the gate."""
        claiming = self._claiming
        if claiming is None:
            return await self._call(key, request, item, draw)
        await claiming.claim(key)
        try:
            known = claiming.recall_from_others(key)
            if known is not None:
                self.stats.shared += 1
                return known
            return await self._call(key, request, item, draw)
        finally:
            claiming.release(key)

    async def _call(self, key: str, request: Request, item: str, draw: str) -> Reply:
        stats, tries = self.stats, 0
        fault: LLMFault | None = None
        delay: float | None = None
        answered = stats.answered  # later: when the call failed first
        while True:
            try:
                if delay is not None:
                    await self.gate.sleep(delay)
                await self._enter(first=tries > 0)
            except (BudgetReached, asyncio.CancelledError):
                if fault is not None:
                    stats.failed += 1
                    await self.journal.failed(key, item, fault)
                raise
            try:
                mark = self.pace.sent()
                if tries == 0:
                    stats.asked += 1
                    await self.journal.asked(key, item, draw, request)
                started = time.perf_counter()
                stats.in_flight += 1
                try:
                    reply = await self._attempt(request, draw)
                finally:
                    stats.in_flight -= 1
                self._account_reply(reply)
                self._note(reply, time.perf_counter() - started)
                break
            except LLMFault as error:
                fault = error
                answered = answered if tries else stats.answered
                stats.refused = stats.refused + 1 if fault.code in REFUSALS else 0
                stats.timed_out += fault.code is Code.TIMEOUT and fault.status is None
                busy = fault.code in (Code.RATE_LIMITED, Code.TIMEOUT)
                busy |= fault.code is Code.SERVER_ERROR and fault.status in BUSY
                if busy and not fault.elsewhere:
                    self.pace.refused(mark, self.gate.in_flight - 1)
                    self.gate.resize(int(self.pace.limit))
                delay = self._choose_delay(fault, tries, answered)
            finally:
                self.budget.settle_call(self)
                self._leave()
            if delay is None:
                if fault.code is Code.PENDING:
                    stats.sent -= 1  # written down, not sent
                    stats.asked -= 1
                else:
                    stats.failed += 1
                await self.journal.failed(key, item, fault)
                raise fault
            stats.retries[fault.code] += 1
            tries += 1
            if tries == 2 and answered == stats.answered:
                self._warn_of_outage(fault, delay, answered)
        await self.journal.answered(key, item, reply)
        return reply

    def _warn_of_outage(self, fault: LLMFault, delay: float, answered: int) -> None:
        """Log, once until the next reply, that nothing is answered and calls are retried. Rate limits are no outage."""
        if fault.code is Code.RATE_LIMITED or self._warned_at == self.stats.answered:
            return
        self._warned_at = self.stats.answered
        endpoint = getattr(self.backend, "url", self.backend.alias)
        plan = f"retry 2 of {self.limits.retries} in {delay:.0f} s"
        if self._is_outage(fault, answered):
            plan += f", and more until it has answered nothing for {self.limits.outage / 60:.0f} min (limits.outage)"
        log.warning(
            "%s: %s; %s: check that the endpoint runs and that base_url is right, or stop with Ctrl-C",
            endpoint,
            fault,
            plan,
        )

    async def _enter(self, *, first: bool) -> None:
        """Wait for a place at the gate and for budget; the call counts as sent from here on. `_leave` gives the place back."""
        await self.gate.enter(first=first)
        while True:
            try:
                if self.budget.take(self):
                    return
            except Exception:
                self._leave()
                raise
            # Other processes reserved the rest of the budget, but calls of this engine are in flight: the gate waits for these.
            self.gate.leave()
            await self.gate.enter(first=True)

    def _leave(self) -> None:
        self.gate.leave()
        for engine in self.budget.engines:
            if engine is not self:
                engine.gate.admit()  # the end of this call may make room in the budget

    async def _attempt(self, request: Request, draw: str) -> Reply:
        """One try, cancelled when it takes far longer than others do: a connection that died silently."""
        if self._patience is None:
            return await self.backend.complete(request, draw=draw)
        try:
            async with asyncio.timeout(self._patience) as limit:
                return await self.backend.complete(request, draw=draw)
        except TimeoutError:
            if not limit.expired():
                raise
        self.stats.stalled += 1
        raise LLMFault(
            Code.TIMEOUT, f"stalled: no answer within {self._patience:.0f} s, far beyond the others", retry=True
        )

    def _note(self, reply: Reply, latency: float) -> None:
        """Adapt to a success: the concurrency, the longest time of a call, the pause for rate limits."""
        stats = self.stats
        stats.latencies.append(latency)
        self.pace.answered(latency, waiting=self.gate.waiting)
        self.gate.resize(int(self.pace.limit))
        self._until_update -= 1
        if self.limits.stall is not None and self._until_update <= 0:
            self._patience = max(STALL_LEAST, self.limits.stall * stats.latency()["p95"])
            self._until_update = max(
                STALL_EVERY, len(stats.latencies) // 8
            )  # it sorts all latencies: rarely if there are many
        if self._rates is not None and self._rates.allowances:
            wait = self._rates.wait(reply.usage.prompt + reply.usage.completion)
            if wait > 0:
                self.gate.pause(wait)

    def _choose_delay(self, fault: LLMFault, tries: int, answered: int) -> float | None:
        """Seconds until the next try; None: there is none. Called before the call leaves the gate, so that a pause starts before the next
        call. `answered`: number of replies when the call failed first."""
        asked_for = fault.retry_after or 0.0
        if fault.elsewhere and fault.retry and tries < self.limits.retries:
            return 0.0
        if not fault.retry or asked_for > self.limits.retry_after_max:
            return None
        if tries >= self.limits.retries and not self._is_outage(fault, answered):
            return None
        backoff = self._random.uniform(0, min(self.limits.backoff_max, self.limits.backoff * 2 ** min(tries, 30)))
        if fault.retry_after is None:
            return backoff
        if fault.code is Code.RATE_LIMITED or fault.status in BUSY:
            self.gate.pause(asked_for)
        # A little later, so that not all calls come at once; much later if the endpoint keeps naming times that are too short.
        return max(asked_for + min(backoff, self.limits.backoff), backoff)

    def _is_outage(self, fault: LLMFault, answered: int) -> bool:
        """Whether to wait for an endpoint that has answered before: it is away or refuses for a time, and no call was answered since this
        one failed first."""
        if not self.waits_out_outages or not self.limits.retries or self._answered_at is None:
            return False
        down = fault.code in (Code.CONNECTION, Code.RATE_LIMITED) or fault.status in DOWN
        short = time.monotonic() - self._answered_at < self.limits.outage
        return down and short and answered == self.stats.answered

    def _account_reply(self, reply: Reply) -> None:
        usage, total = reply.usage, self.stats.usage
        if self._capped and not usage.prompt and not usage.completion:
            self._capped = False  # warn only once
            log.warning("%s reports no token usage: max_tokens and max_cost cannot be enforced", self.backend.alias)
        if usage.cost is None and self.price is not None and (usage.prompt or usage.completion):
            usage.cost = self.price.of(usage)
        self.stats.answered += 1
        self.stats.refused, self._answered_at = 0, time.monotonic()
        total.prompt += usage.prompt
        total.completion += usage.completion
        total.cached += usage.cached
        total.reasoning += usage.reasoning
        if usage.cost is None:
            self.stats.unpriced += 1
        else:
            total.cost = (total.cost or 0.0) + usage.cost
