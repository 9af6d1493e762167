"""Coordinate durable jobs: plan → produce → conclude → decide in order → stop.

A job is a run of numbered items. A method (amplification, rollouts) defines its items and their results by implementing `Work`. This module
handles the rest: when to plan items, how many to work on at once, retries, stops, resumes and Ctrl-C. Results arrive in any order and are
decided in plan order, so a resumed run accepts the same items as an uninterrupted one. Everything in memory can be rebuilt from the ledger:
a kill at any moment loses nothing that was paid for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import Field

from simia.config import Config
from simia.errors import Code
from simia.jobs.ledger import FAILED, PASSED, Item
from simia.jobs.progress import Progress
from simia.jobs.run import Run
from simia.llm.budget import count_tries
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import REFUSALS, LLMFault, describe_waiting
from simia.terminal import write_count
from simia.trajectory import Usage

TICK = 5.0  # seconds between two reports while no item ends
GRACE = 10.0  # seconds that work in flight gets when the user stops a job
PASSING = {Code.RATE_LIMITED, Code.TIMEOUT, Code.CONNECTION, Code.SERVER_ERROR, Code.BAD_REPLY_BODY}
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - outcome
T = TypeVar("T")
Verdict = Literal["accepted", "rejected", "surplus"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a job ended."""

    kind: str
    """`complete`, `interrupted`, `budget`, `attempts`, `yield`, `endpoint`, `batch` or `aborted`."""
    detail: str = ""
    """One line for people."""


class StopSettings(Config):
    """When a run stops before it is complete."""

    attempts: int | None = Field(
        None,
        ge=1,
        description="`simia amplify`: maximum number of items. null: 10 times `n`, plus 50. Other commands ignore it.",
    )
    min_yield: float = Field(default=0.02, ge=0, le=1)
    """Stop if less than this share (0 to 1) of the latest `window` items was accepted. 0: never."""
    window: int = Field(
        100, ge=10, le=1_000_000, description="Number of latest items over which the share of `min_yield` is computed."
    )
    item_tries: int = Field(
        3,
        ge=1,
        description="Maximum number of tries of an item whose requests fail. Each try includes all retries of `limits.retries`.",
    )
    outage: int = Field(default=8, ge=1)
    """Stop after this many consecutive failures of the endpoint, without a reply in between."""


class Work(Protocol[R, O]):
    """A method: its items, a result of type R for each, and an outcome of type O, from which the result is accepted or rejected.

    An item may need several replies (samples named after it) and leave files in the run's folder: `produce` makes them, `restore` checks
    that they still exist. `wants` and `plan` may depend on earlier decisions, so items can be made from the results of earlier ones.
    """

    def wants(self, ord_: int, in_flight: int) -> bool:
        """Whether to plan the item of this place now. Called again after every decision. `in_flight`: number of items not decided yet."""

    def plan(self, ord_: int) -> Item:
        """Return the item of a place: the same one in every session."""

    def restore(self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None) -> O | None:
        """Return the outcome of an item of an earlier session; None: it must be produced (again)."""

    async def produce(self, item: Item) -> R:
        """Make the result. Raises `LLMFault` and `BudgetReached` of the engine; any other exception ends the job."""

    def conclude(self, item: Item, result: R) -> O:
        """Write the verdict into the item, store the result in the ledger."""

    def decide(self, item: Item, outcome: O | None) -> Verdict:
        """Decide about an item, and write an accepted one to the ledger. Called in plan order. `outcome`: None if no result was produced."""

    def find_stop(self) -> Stop | None:
        """Return the method's own reason to plan nothing more, if there is one."""

    def explain_end(self) -> Stop:
        """Return the state of the job at the end of a session; of kind `complete` if it has all requested results."""


@dataclass(slots=True)
class InOrder(Generic[T]):
    """Accepts numbered values in any order and returns them by number, without gaps."""

    next: int = 0
    waiting: dict[int, T] = field(default_factory=dict)

    def add(self, number: int, value: T) -> Iterator[T]:
        self.waiting[number] = value
        while self.next in self.waiting:
            self.next += 1
            yield self.waiting.pop(self.next - 1)


class Coordinator(Generic[R, O]):
    """One session of work on a run: make one, `await run()`."""

    def __init__(
        self,
        run: Run,
        work: Work[R, O],
        engines: Sequence[Engine],
        progress: Progress,
        settings: StopSettings,
        *,
        concurrency: int | None = None,
        decide_past_gaps: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        produce: Callable[[Item], Awaitable[R]] | None = None,
    ) -> None:
        """`engines`: all engines that the work uses. `concurrency`: items at once; None: more than the engines' gates admit.
        `decide_past_gaps`: at the end of a session, also decide results that wait for earlier open items; the next session decides them
        again. `produce`: makes results in place of `work.produce`, such as on other nodes."""
        self._produce_result = produce or work.produce
        self._run, self._work, self._engines, self.progress = run, work, engines, progress
        for engine in engines:
            engine.waits_out_outages = True
        self._settings, self._concurrency, self._past_gaps = settings, concurrency, decide_past_gaps
        self._on_progress = on_progress or (lambda _: None)
        self._stop: Stop | None = None
        self._order: InOrder[tuple[Item, O | None]] = InOrder()
        self._retry: deque[Item] = deque()
        self._tries: Counter[int] = Counter()
        self._next_ord = 0
        self._faults_in_a_row = 0
        self._latest: deque[bool] = deque(maxlen=settings.window)
        self._spent_before, self._answered_before = Usage(), 0
        # Places whose acceptance an earlier session wrote and that are not decided yet.
        self._accepted_before: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: asyncio.Queue[asyncio.Task[None] | None] = asyncio.Queue()
        self._interrupted = False

    def stop(self, kind: str, detail: str = "") -> None:
        """Launch nothing more; results in flight may still arrive. The first reason is kept."""
        if self._stop is None:
            self._stop = Stop(kind, detail)
            self.progress.stopping = kind
            for engine in self._engines:
                engine.gate.close()  # requests that wait to be sent are planned again by the next session
        if kind == "interrupted":
            self._interrupted = True
            self._done.put_nowait(None)  # wake the loop

    def let_go(self) -> None:
        """Cancel the work in flight."""
        for task in self._tasks:
            task.cancel()

    async def run(self, *, grace: float = GRACE) -> Stop:
        """Work until the job is complete or stops, and wait for work in flight: `grace` seconds if the user stops the job, else to its end.
        Raises `UserError` when the run's files can no longer be written."""
        ledger = self._run.ledger
        self._spent_before, self._answered_before = ledger.spent()[0], ledger.answered_count()
        self._restore()
        ledger.set_meta("stopped", None)
        before = count_tries(self._engines)
        ticks = asyncio.create_task(self._report_regularly())
        try:
            await self._coordinate(grace)
        finally:  # also when something has failed: leave no task behind that writes to a closed run
            ticks.cancel()
            self.let_go()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._run.failure is not None:
                raise self._run.failure
            ledger.note_tries(*(now - then for now, then in zip(count_tries(self._engines), before, strict=True)))
        if self._past_gaps:
            for _, waiting in sorted(self._order.waiting.items()):
                self._decide(*waiting)
        self._on_progress(self._update_progress())
        end = self._work.explain_end()
        if end.kind != "complete":
            end = self._stop or self._find_batch() or end
        ledger.set_meta("stopped", {"kind": end.kind, "detail": end.detail})
        return end

    async def _report_regularly(self) -> None:
        """Report the progress while no item ends: an episode with a slow model can take many minutes."""
        while True:
            await asyncio.sleep(TICK)
            self._on_progress(self._update_progress())

    async def _coordinate(self, grace: float) -> None:
        while self._run.failure is None:
            self._note_stop()
            if self._stop is None:
                self._launch()
            if not self._tasks:
                return
            if self._interrupted:
                await self._drain(grace)
                return
            self._reap(await self._done.get())
            while not self._done.empty():
                self._reap(self._done.get_nowait())
            self._on_progress(self._update_progress())

    def _note_stop(self) -> None:
        latest, least = self._latest, self._settings.min_yield * self._settings.window
        if found := self._work.find_stop():
            self.stop(found.kind, found.detail)
        elif len(latest) == self._settings.window and sum(latest) < least:
            detail = f"only {sum(latest)} of the latest {len(latest)} were accepted{explain_rejections(self.progress)}"
            self.stop("yield", detail)

    # -- planning ------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Restore the state of earlier sessions: outcomes to decide, items to produce again."""
        ledger = self._run.ledger
        self._accepted_before = ledger.accepted_ords()
        self.progress.accepted = len(self._accepted_before)
        for item, content_hash, tools, signature in ledger.outcomes():
            while self._next_ord < item.ord:  # planned, but killed before its row was on disk
                self._retry.append(self._plan())
            self._next_ord = item.ord + 1
            outcome = self._work.restore(item, content_hash, tools, signature)
            if outcome is None:
                self._retry.append(item)
            else:
                self._arrive(item, outcome)
        self._latest.clear()
        self.progress.accepted_before = self.progress.accepted

    def _plan(self) -> Item:
        item = self._work.plan(self._next_ord)
        self._next_ord += 1
        self._run.ledger.plan(item)
        return item

    def _launch(self) -> None:
        # More items than the gates admit, so that requests always wait there.
        most = self._concurrency or 2 * max(engine.gate.limit for engine in self._engines) + 16
        while len(self._tasks) < most:
            if self._retry:  # nothing after it can be decided before it is
                item = self._retry.popleft()
            elif self._work.wants(self._next_ord, len(self._tasks) + self.progress.pending):
                item = self._plan()
            else:
                return
            task = asyncio.create_task(self._produce(item), name=item.id)
            self._tasks.add(task)
            task.add_done_callback(self._done.put_nowait)

    # -- working -------------------------------------------------------------------------------------------------

    async def _produce(self, item: Item) -> None:
        try:
            result = await self._produce_result(item)
        except BudgetReached as reached:
            self.stop("budget", str(reached))
        except LLMFault as fault:
            self._fail(item, fault)
        else:
            self._faults_in_a_row = 0
            self._arrive(item, self._work.conclude(item, result))

    def _fail(self, item: Item, fault: LLMFault) -> None:
        """The endpoint failed on this item: try it again later, or give it up; stop when nothing gets through."""
        self._faults_in_a_row += 1
        self._tries[item.ord] += 1
        detail = f"{fault.code}: {fault.detail or fault.code.meaning}"
        if fault.code is Code.PENDING:  # written to a batch: open until its reply is there
            self._faults_in_a_row -= 1
            self.progress.pending += 1
        elif fault.code in REFUSALS and self._is_refused():
            self.stop("endpoint", detail)
        elif self._faults_in_a_row >= self._settings.outage and fault.code is not Code.REPLAY_MISS:
            self.stop(
                "endpoint", f"{write_count(self._faults_in_a_row, 'call')} in a row failed, the last one with {detail}"
            )
        elif fault.code in PASSING and self._tries[item.ord] < self._settings.item_tries:
            self._retry.append(item)
        else:
            item.status, item.reason, item.detail = FAILED, str(fault.code), detail[:500]
            self._run.ledger.set_status(item)
            self._arrive(item, None)

    def _is_refused(self) -> bool:
        """Check whether an endpoint refuses every call: a router refuses a flagged prompt, and a tunnel all prompts for a moment, in the
        same way."""
        stats = [engine.stats for engine in self._engines]
        answered = self._answered_before + sum(each.answered for each in stats)
        return not answered or any(each.refused >= self._settings.outage for each in stats)

    def _arrive(self, item: Item, outcome: O | None) -> None:
        self.progress.waiting += item.status == PASSED
        for ready in self._order.add(item.ord, (item, outcome)):
            self._decide(*ready)

    def _decide(self, item: Item, outcome: O | None) -> None:
        progress = self.progress
        progress.waiting -= item.status == PASSED
        verdict = self._work.decide(item, outcome)
        progress.accepted += verdict == "accepted"
        progress.failed += item.status == FAILED
        if verdict == "rejected" and item.status != FAILED:
            progress.rejected[item.reason or str(Code.INTERNAL)] += 1
        if item.ord in self._accepted_before:
            self._accepted_before.discard(item.ord)
            progress.accepted -= 1  # counted since the start of the session
            if verdict != "accepted":  # an earlier item was open when it was accepted
                self._run.ledger.withdraw(item)
        self._latest.append(verdict != "rejected")

    # -- ending --------------------------------------------------------------------------------------------------

    def _reap(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.result()  # an error of the disk or a bug must not vanish

    async def _drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for replies in flight, then cancel them (the ledger counts them as possibly paid twice)."""
        done, late = await asyncio.wait(self._tasks, timeout=grace)
        for task in late:
            task.cancel()
        outcomes = await asyncio.gather(*done, *late, return_exceptions=True)
        self._tasks.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _find_batch(self) -> Stop | None:
        """Return a stop if requests wait in a batch, whose replies come after the session."""
        waiting = describe_waiting([engine.backend for engine in self._engines])
        return Stop("batch", waiting) if waiting else None

    def _update_progress(self) -> Progress:
        progress, stats = self.progress, [engine.stats for engine in self._engines]
        progress.in_flight = sum(each.in_flight for each in stats)
        progress.limit = sum(engine.gate.limit for engine in self._engines)
        progress.retries = sum(each.retries.total() for each in stats)
        progress.replies = self._answered_before + sum(each.answered for each in stats)
        progress.usage = sum((each.usage for each in stats), self._spent_before)
        progress.unpriced = sum(each.unpriced for each in stats)
        return progress


def explain_rejections(progress: Progress) -> str:
    """The reason of most rejections, for the line of a stop; empty without any."""
    worst = progress.rejected.most_common(1)
    if not worst:
        return ""
    reason = worst[0][0]
    return f", mostly {reason}" + (f" ({Code(reason).meaning})" if reason in set(Code) else "")


@contextlib.contextmanager
def stop_on_signals(coordinator: Coordinator[R, O], say: Callable[[str], None] = lambda line: None) -> Iterator[None]:
    """Stop on Ctrl-C or SIGTERM. Once: launch nothing more and wait a grace period for work in flight. Twice: cancel that work too."""
    loop = asyncio.get_running_loop()
    presses = 0

    def on_signal() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            coordinator.stop("interrupted", "stopped on request")
            say(f"stopping, up to {GRACE:g} s for what is in flight (Ctrl-C again: at once); nothing is lost")
        else:
            coordinator.let_go()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
