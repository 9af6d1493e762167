"""What amplification makes of a job: trajectories after seeds, until n are accepted.

Items are planned only while accepted, passed and open ones together could still fall short of n, so nothing is bought that cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable

from simia.amplification.scenario_counts import PlanCounts
from simia.amplification.seeds import Seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Ask, SimulationResult, Simulator, trajectory_head
from simia.errors import Code
from simia.jobs import FAILED, OPEN, PASSED, REJECTED, Item, Ledger, Run
from simia.jobs.coordinator import FATAL, PASSING, Stop, Verdict, explain_rejections
from simia.jobs.progress import Progress
from simia.llm.engine import Engine
from simia.llm.types import Reply, Request, make_reply_key
from simia.quality.acceptance import Acceptance, Decision, Outcome
from simia.quality.selection.near_duplicates import NearDuplicateIndex, compute_signature

DUPLICATE_CODES = {Code.DUPLICATE, Code.NEAR_DUPLICATE}


class AmplificationWork:
    """The work of one session: plans, derives and selects trajectories."""

    def __init__(
        self,
        run: Run,
        config: AmplifyConfig,
        seeds: Seeds,
        asker: Callable[[Item], Ask],
        *,
        model: str,
        structured: bool,
        may_wait: bool = True,
    ) -> None:
        """`asker`: how an item's replies are asked for. `may_wait`: whether open items are decided in this session; not for a batch."""
        self.simulator = Simulator(config, seeds, structured=structured, run_id=run.id)
        self.acceptance = Acceptance(config.n, build_near_index(config, seeds))
        self.progress = Progress(run.id, config.n)
        self._ledger, self._config, self._asker, self._model, self._may_wait = (
            run.ledger,
            config,
            asker,
            model,
            may_wait,
        )
        self._plans = PlanCounts(config)
        self._most = config.stop.attempts or 10 * config.n + 50
        self._passed = 0

    def wants(self, ord_: int, in_flight: int) -> bool:
        if self._passed + in_flight >= self._config.n or ord_ >= self._most:
            return False
        return (
            self._plans.counts(ord_, wait=self._may_wait) is not None
        )  # else until enough is decided to say what is rare

    def plan(self, ord_: int) -> Item:
        return self.simulator.item(ord_, self._plans.counts(ord_))

    def restore(
        self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None
    ) -> Outcome | None:
        is_lost = item.status == PASSED and content_hash is None  # the result; its reply is recalled
        if is_lost or item.status == OPEN or (item.status == FAILED and item.reason in PASSING | FATAL):
            return None
        if content_hash is not None and (item.status == PASSED or item.reason in DUPLICATE_CODES):
            self._passed += 1
            return Outcome(content_hash, None, signature, tools)
        return Outcome(reason=item.reason)

    async def produce(self, item: Item) -> SimulationResult:
        return await self.simulator.produce(item, self._asker(item), model=self._model)

    def conclude(self, item: Item, result: SimulationResult) -> Outcome:
        write_verdict(item, result)
        self._passed += item.status == PASSED
        store_result(self._ledger, self.simulator, item, result)
        return result.outcome()

    def decide(self, item: Item, outcome: Outcome | None) -> Verdict:
        decision = self.acceptance.decide(outcome or Outcome(reason=item.reason))
        if decision.verdict == "accepted" and decision.outcome.content_hash:
            self._ledger.accept(item, decision.outcome.content_hash)
            self._plans.note(decision.outcome.tools)
        elif decision.reason in DUPLICATE_CODES:
            self._passed -= 1
            reject_duplicate(self._ledger, item, decision)
        self._plans.decided(item.ord)
        return decision.verdict

    def find_stop(self) -> Stop | None:
        return Stop("complete") if self.acceptance.accepted >= self._config.n else None

    def explain_end(self) -> Stop:
        accepted = self.acceptance.accepted
        if accepted >= self._config.n:
            return Stop("complete")
        tried = f"{self._most} items were tried and {accepted} accepted{explain_rejections(self.progress)}"
        return Stop("attempts", f"{tried}; raise stop.attempts to go on")


def ask_engine(engine: Engine) -> Callable[[Item], Ask]:
    """An item's replies come from this engine."""

    def asker(item: Item) -> Ask:
        async def ask(request: Request, draw: str) -> tuple[Reply, str]:
            key = make_reply_key(engine.backend.alias, engine.backend.model, request, draw)
            return await engine.ask(request, item=item.id, draw=draw, key=key), key

        return ask

    return asker


def write_verdict(item: Item, result: SimulationResult) -> None:
    """Write a result's verdict into its item."""
    if result.issues:
        first = result.issues[0]
        item.status, item.reason, item.detail = REJECTED, str(first.code), str(first)
    else:
        item.status, item.reason, item.detail = PASSED, None, None


def store_result(ledger: Ledger, simulator: Simulator, item: Item, result: SimulationResult) -> None:
    if result.head:
        ledger.head(result.head, lambda: trajectory_head(simulator.by_id[item.spec["seed"]]))
    ledger.conclude(item, result.content_hash, result.body(), tools=result.tools, signature=result.signature)


def reject_duplicate(ledger: Ledger, item: Item, decision: Decision) -> None:
    """Reject a trajectory that repeats an earlier one."""
    item.status, item.reason = REJECTED, decision.reason
    item.detail = f"{decision.reason}: {decision.detail or Code.DUPLICATE.meaning}"
    ledger.set_status(item)


def build_near_index(config: AmplifyConfig, seeds: Seeds) -> NearDuplicateIndex | None:
    """Where near-duplicates are looked for; the seeds are in it first."""
    if config.select.near is None:
        return None
    index = NearDuplicateIndex(config.select.near)
    for seed in seeds.order:
        index.add(f"seed {seed.task_id or seed.id}", compute_signature(seed))
    return index
