"""The amplification job: keep the endpoint busy until n trajectories are accepted or a stated stop is reached.

The coordinator plans items by ord, asks for their replies, judges them and lets `Acceptance` decide in order. It launches
an item only while accepted, passed and in-flight ones together could still fall short of n, so nothing is bought that
cannot be used. Everything it holds in memory can be rebuilt from the ledger; a kill at any point loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from simia.amplification.plans import Plans
from simia.amplification.progress import Progress
from simia.amplification.seeds import Seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Ask, Result, Simulator, head
from simia.errors import Code
from simia.jobs import FAILED, OPEN, PASSED, REJECTED, Item, Ledger, Run
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import Deferred, LLMFault, Reply, Request, reply_key
from simia.quality.acceptance import Acceptance, Decision, Outcome
from simia.quality.selection.near_duplicates import NearIndex, signature

COPIES = {Code.DUPLICATE, Code.NEAR_DUPLICATE}
FATAL = {Code.AUTH, Code.NOT_FOUND}
PASSING = {Code.RATE_LIMITED, Code.TIMEOUT, Code.CONNECTION, Code.SERVER_ERROR, Code.BAD_REPLY_BODY}


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ended: `complete`, `interrupted`, `budget`, `attempts`, `yield`, `endpoint`, `batch` or `disk`; a line for people."""

    kind: str
    detail: str = ""


class Job:
    """One session of work on a run."""

    def __init__(
        self,
        run: Run,
        config: AmplifyConfig,
        seeds: Seeds,
        engine: Engine,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.run_dir = run
        self.ledger = run.ledger
        self.config = config
        self.engine = engine
        self.simulator = Simulator(config, seeds, structured=engine.backend.structured, run_id=run.id)
        self.acceptance = Acceptance(config.n, near_index(config, seeds))
        self.coverage = Plans(config)
        self.progress = Progress(run.id, config.n)
        self._on_progress = on_progress or (lambda _: None)
        self._stop: Stop | None = None
        self._retry: deque[Item] = deque()
        self._tries: Counter[int] = Counter()
        self._next_ord = 0
        self._passed = 0
        self._faults_in_a_row = 0
        self._waiting_for_answers = 0
        # Answers to a batch come after this session: nothing is decided in it that one could wait for.
        self._may_wait = not isinstance(engine.backend, Deferred)
        self._latest: deque[bool] = deque(maxlen=config.stop.window)
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: asyncio.Queue[asyncio.Task[None] | None] = asyncio.Queue()
        self._items: dict[int, Item] = {}

    def stop(self, kind: str, detail: str = "") -> None:
        """Launch nothing more; what is in flight may still arrive. The first reason stands."""
        if self._stop is None:
            self._stop = Stop(kind, detail)
            self.progress.stopping = kind
            self.engine.gate.shut()  # who waits to be sent is planned again by the next session
            self._done.put_nowait(None)  # wake the coordinator

    def let_go(self) -> None:
        """Do not even wait for what is in flight."""
        for task in self._tasks:
            task.cancel()

    async def run(self, *, grace: float = 10.0) -> Stop:
        """Work until a stop. After one, calls in flight get `grace` seconds (a complete run has none)."""
        self._restore()
        self.ledger.set_meta("stopped", None)
        try:
            await self._coordinate(grace)
        finally:  # an error of the disk or of ours: leave no call behind that writes to a closed run
            self.let_go()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._on_progress(self._figures())
        done = self.acceptance.accepted >= self.config.n
        stop = Stop("complete") if done or self._stop is None else self._stop
        if self.run_dir.failure is None:
            self.ledger.set_meta("stopped", {"kind": stop.kind, "detail": stop.detail})
        return stop

    async def _coordinate(self, grace: float) -> None:
        while True:
            self._note_limits()
            if self._stop is None:
                self._launch()
            if not self._tasks:
                if self._waiting_for_answers:
                    self.stop("batch", f"{self._waiting_for_answers:,} questions wait in {self._place()}")
                return
            if self._stop is not None:
                await self._drain(grace)
                return
            await self._next()
            self._on_progress(self._figures())

    def _place(self) -> str:
        backend = self.engine.backend
        return backend.place if isinstance(backend, Deferred) else "another place"

    # -- planning ------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Take up what earlier sessions left: decided results, items to be asked again."""
        for item, content_hash, tools, sketch in self.ledger.outcomes():
            while self._next_ord < item.ord:  # planned, but killed before its row was on disk
                missing = self.simulator.item(self._next_ord, self.coverage.counts(self._next_ord))
                self.ledger.plan(missing)
                self._retry.append(missing)
                self._next_ord += 1
            self._next_ord = item.ord + 1
            again = item.status == OPEN or (item.status == FAILED and item.reason in PASSING | FATAL)
            again |= item.status == PASSED and content_hash is None  # its result was lost; its reply is recalled
            if again:
                self._retry.append(item)
            elif content_hash is not None and (item.status == PASSED or item.reason in COPIES):
                self._passed += 1
                self._decide(item, Outcome(content_hash, None, sketch, tools))
            else:
                self._decide(item, Outcome(reason=item.reason))
        self._latest.clear()
        usage, _ = self.ledger.spent()
        self.engine.stats.usage = usage
        answered = self.ledger.answered_count()
        self.engine.stats.answered += answered
        self.engine.stats.sent += answered
        self.progress.accepted_before = self.acceptance.accepted

    def _note_limits(self) -> None:
        config, accepted = self.config.stop, self.acceptance.accepted
        if self.run_dir.failure is not None:
            self.stop("disk", str(self.run_dir.failure))
        elif accepted >= self.config.n:
            self.stop("complete")
        elif len(self._latest) == config.window and sum(self._latest) < config.min_yield * config.window:
            self.stop("yield", f"only {sum(self._latest)} of the latest {config.window} were accepted{self._mostly()}")

    def _mostly(self) -> str:
        """The reason of most rejections, for the line of a stop."""
        worst = self.progress.rejected.most_common(1)
        return f", mostly {worst[0][0]} ({Code(worst[0][0]).meaning})" if worst else ""

    def _launch(self) -> None:
        most = self.config.stop.attempts or 10 * self.config.n + 50
        room = 2 * self.engine.gate.limit + 16  # the engine's gate holds the rest; a few must wait at it
        while len(self._tasks) < room:
            if self._retry:  # whatever else has passed: nothing after it can be accepted before it is decided
                item = self._retry.popleft()
            elif self._passed + self._waiting_for_answers + len(self._tasks) >= self.config.n:
                return
            elif self._next_ord >= most:
                if not self._tasks:
                    tried = f"{most} items were tried and {self.acceptance.accepted} accepted{self._mostly()}"
                    self.stop("attempts", f"{tried}; raise stop.attempts to go on")
                return
            elif (counts := self.coverage.counts(self._next_ord, wait=self._may_wait)) is None:
                return  # until enough is decided to say what is rare
            else:
                item = self.simulator.item(self._next_ord, counts)
                self._next_ord += 1
                self.ledger.plan(item)
            self._items[item.ord] = item
            task = asyncio.create_task(self._work(item), name=item.id)
            self._tasks.add(task)
            task.add_done_callback(self._done.put_nowait)

    # -- working -------------------------------------------------------------------------------------------------

    async def _work(self, item: Item) -> None:
        try:
            result = await self.simulator.produce(item, self._asker(item), model=self.engine.backend.model)
        except BudgetReached as reached:
            self._retry.append(item)
            self.stop("budget", str(reached))
            return
        except LLMFault as fault:
            self._fault(item, fault)
            return
        self._faults_in_a_row = 0
        self._conclude(item, result)

    def _asker(self, item: Item) -> Ask:
        engine = self.engine

        async def ask(request: Request, draw: str) -> tuple[Reply, str]:
            key = reply_key(engine.backend.alias, engine.backend.model, request, draw)
            return await engine.ask(request, item=item.id, draw=draw, key=key), key

        return ask

    def _conclude(self, item: Item, result: Result) -> None:
        judged(item, result)
        self._passed += item.status == PASSED
        store(self.ledger, self.simulator, item, result)
        self._decide(item, result.outcome())

    def _decide(self, item: Item, outcome: Outcome) -> None:
        self._items[item.ord] = item
        for decision in self.acceptance.add(item.ord, outcome):
            decided = self._items.pop(decision.ord)
            if decision.verdict == "accepted" and decision.outcome.content_hash:
                self.ledger.accept(decided, decision.outcome.content_hash)
                self.coverage.note(decision.outcome.tools)
            elif decision.verdict == "rejected":
                if decision.reason in COPIES:
                    self._passed -= 1
                    refuse_copy(self.ledger, decided, decision)
                if decided.status != FAILED:
                    self.progress.rejected[decision.reason or str(Code.INTERNAL)] += 1
            self._latest.append(decision.verdict != "rejected")
            self.coverage.decided(decision.ord)

    def _fault(self, item: Item, fault: LLMFault) -> None:
        """Infrastructure failed on this item: try it again later, or pass over it; stop when nothing gets through."""
        self._faults_in_a_row += 1
        self._tries[item.ord] += 1
        lost = f"{fault.code}: {fault.detail or fault.code.meaning}"
        if fault.code is Code.PENDING:  # written down for a batch: open until its answer is there
            self._faults_in_a_row -= 1
            self._waiting_for_answers += 1
            self.progress.pending = self._waiting_for_answers
        elif fault.code in FATAL:
            self._retry.append(item)
            self.stop("endpoint", lost)
        elif self._faults_in_a_row >= self.config.stop.outage and fault.code is not Code.REPLAY_MISS:
            self._retry.append(item)
            self.stop("endpoint", f"{self._faults_in_a_row} calls in a row failed, the last one with {lost}")
        elif fault.code in PASSING and self._tries[item.ord] < self.config.stop.item_tries:
            self._retry.append(item)
        else:
            item.status, item.reason, item.detail = FAILED, str(fault.code), lost[:500]
            self.ledger.set_status(item)
            self.progress.failed += 1
            self._decide(item, Outcome(reason=item.reason))

    # -- ending --------------------------------------------------------------------------------------------------

    async def _next(self) -> None:
        self._reap(await self._done.get())
        while not self._done.empty():
            self._reap(self._done.get_nowait())

    def _reap(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.result()  # a fault of ours must not vanish

    async def _drain(self, grace: float) -> None:
        """Replies on their way are paid for: wait a little for them, then let go (they count as possibly paid twice)."""
        done, late = await asyncio.wait(self._tasks, timeout=grace)
        for task in late:
            task.cancel()
        outcomes = await asyncio.gather(*done, *late, return_exceptions=True)
        self._tasks.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _figures(self) -> Progress:
        stats, progress = self.engine.stats, self.progress
        progress.accepted = self.acceptance.accepted
        progress.waiting = self.acceptance.waiting
        progress.in_flight = stats.in_flight
        progress.limit = self.engine.gate.limit
        progress.retries = stats.retries.total()
        progress.replies = stats.answered
        progress.usage = stats.usage
        progress.unpriced = stats.unpriced
        return progress


def judged(item: Item, result: Result) -> None:
    """Write a result's verdict into its item."""
    if result.issues:
        first = result.issues[0]
        item.status, item.reason, item.detail = REJECTED, str(first.code), str(first)
    else:
        item.status, item.reason, item.detail = PASSED, None, None


def store(ledger: Ledger, simulator: Simulator, item: Item, result: Result) -> None:
    if result.head:
        ledger.head(result.head, lambda: head(simulator.by_id[item.spec["seed"]]))
    ledger.conclude(item, result.content_hash, result.body(), tools=result.tools, signature=result.signature)


def refuse_copy(ledger: Ledger, item: Item, decision: Decision) -> None:
    item.status, item.reason = REJECTED, decision.reason
    item.detail = f"{decision.reason}: {decision.detail or Code.DUPLICATE.meaning}"
    ledger.set_status(item)


def near_index(config: AmplifyConfig, seeds: Seeds) -> NearIndex | None:
    """Where near copies are looked for; the seeds stand in it first."""
    if config.select.near is None:
        return None
    index = NearIndex(config.select.near)
    for seed in seeds.order:
        index.add(f"seed {seed.task_id or seed.id}", signature(seed))
    return index
