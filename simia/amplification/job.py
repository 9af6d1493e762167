"""The work of an amplification: make trajectories like the seeds until n are accepted.

A new item is planned only while accepted, passed and open items together are fewer than n, so that no reply is paid for in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simia.amplification.acceptance_judge import AcceptanceJudge
from simia.amplification.model_mix import Writer, get_writer
from simia.amplification.seeds import Seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Ask, SimulationResult, Simulator, read_plan, trajectory_head
from simia.amplification.tool_counts import PlanCounts
from simia.errors import Code, Issue
from simia.jobs import FAILED, OPEN, PASSED, REJECTED, Item, Ledger, Run
from simia.jobs.coordinator import PASSING, Stop, Verdict, explain_rejections
from simia.jobs.progress import Progress
from simia.llm.engine import Engine
from simia.llm.types import REFUSALS, Reply, Request
from simia.quality.acceptance import Acceptance, Outcome
from simia.quality.selection.near_duplicates import NearDuplicateIndex, compute_signature
from simia.terminal import write_count

DUPLICATE_CODES = {Code.DUPLICATE, Code.NEAR_DUPLICATE}


class AmplificationWork:
    """The work of one session: plans, derives and selects trajectories."""

    def __init__(
        self,
        run: Run,
        config: AmplifyConfig,
        seeds: Seeds,
        ask: Ask,
        *,
        writers: Sequence[Writer],
        may_wait: bool = True,
        prompts: dict[str, str] | None = None,
        find_plan: Callable[[str], dict[str, Any] | None] | None = None,
        judge: AcceptanceJudge | None = None,
    ) -> None:
        """`ask`: sends a request to the item's model. `writers`: the models. `may_wait`: whether open items are decided in this session (False
        for a batch). `prompts`: the prompt files of recorded requests, if these are sent in place of newly rendered ones. `find_plan`: returns
        the plan of a recorded sample. `judge`: judges trajectories that passed the checks."""
        self.simulator = Simulator(config, seeds, writers=writers, run_id=run.id)
        self.acceptance = Acceptance(config.n, build_near_index(config, seeds))
        self.progress = Progress(run.id, config.n)
        self._ledger, self._config, self._ask = run.ledger, config, ask
        self._may_wait, self._prompts, self._judge = may_wait, prompts, judge
        self._find_plan = find_plan
        self._plans = PlanCounts(used=config.prompt.scenarios)
        self._most = config.stop.attempts or 10 * config.n + 50
        self._passed = 0

    def wants(self, ord_: int, in_flight: int) -> bool:
        if self._passed + in_flight >= self._config.n or ord_ >= self._most:
            return False
        return not self._may_wait or self._plans.is_known(ord_)  # else wait: which tools are rare is not known yet

    def plan(self, ord_: int) -> Item:
        item = self.simulator.item(ord_, self._plans.counts(ord_))
        if self._prompts is not None:  # the recorded request was made with another plan than today's, or with none
            recorded = self._find_plan(f"{item.id}.0") if self._find_plan else None
            item.spec = {name: value for name, value in item.spec.items() if name not in ("plan", "scenario")}
            item.spec |= {} if recorded is None else {"plan": recorded}
        self.note_plan(item)
        return item

    def note_plan(self, item: Item) -> None:
        """Count the planned calls of an item, which may be new or of an earlier session. Items come in order."""
        if (plan := read_plan(item)) is not None:
            self._plans.note_plan(item.ord, plan.calls)

    def restore(
        self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None
    ) -> Outcome | None:
        self.note_plan(item)
        if is_open(item, content_hash) or (item.status == FAILED and item.reason in PASSING | REFUSALS):
            return None
        outcome = read_outcome(item, content_hash, tools, signature)
        self._passed += outcome.content_hash is not None
        return outcome

    async def produce(self, item: Item) -> SimulationResult:
        return await make_result(self.simulator, item, self._ask, prompts=self._prompts, judge=self._judge)

    def conclude(self, item: Item, result: SimulationResult) -> Outcome:
        result = store_result(self._ledger, self.simulator, item, result)
        self._passed += item.status == PASSED
        return result.outcome()

    def decide(self, item: Item, outcome: Outcome | None) -> Verdict:
        decision = self.acceptance.decide(outcome or Outcome(reason=item.reason))
        if decision.verdict == "accepted" and decision.outcome.content_hash:
            self._ledger.accept(item, decision.outcome.content_hash)
            self._plans.note(decision.outcome.tools)
        if (
            decision.verdict != "rejected" and item.status == REJECTED
        ):  # what it was a duplicate of is no longer accepted
            item.status, item.reason, item.detail = PASSED, None, None
            self._ledger.set_status(item)
        elif decision.reason in DUPLICATE_CODES:
            self._passed -= 1
            item.status, item.reason = REJECTED, decision.reason
            item.detail = f"{decision.reason}: {decision.detail or Code.DUPLICATE.meaning}"
            self._ledger.set_status(item)
        self._plans.decided(item.ord)
        return decision.verdict

    def find_stop(self) -> Stop | None:
        return Stop("complete") if self.acceptance.accepted >= self._config.n else None

    def explain_end(self) -> Stop:
        accepted = self.acceptance.accepted
        if accepted >= self._config.n:
            return Stop("complete")
        tried = f"{write_count(self._most, 'item')} tried and {accepted} accepted{explain_rejections(self.progress)}"
        return Stop("attempts", f"{tried}; raise stop.attempts to go on")


async def make_result(
    simulator: Simulator, item: Item, ask: Ask, *, prompts: dict[str, str] | None, judge: AcceptanceJudge | None
) -> SimulationResult:
    """Make, check and judge an item's trajectory. `prompts`, `judge`: see `AmplificationWork`."""
    result = await simulator.produce(item, ask)
    if prompts is not None and result.trajectory is not None:
        result.trajectory.provenance.prompts = prompts
    if judge is not None:
        await judge.judge(item, result)
    return result


def ask_engines(engines: Sequence[Engine]) -> Ask:
    """Return a function that sends a request to the engine of the item's model."""

    async def ask(item: Item, request: Request, draw: str) -> tuple[Reply, str]:
        engine = engines[get_writer(item)]
        key = engine.make_key(request, draw)
        return await engine.ask(request, item=item.id, draw=draw, key=key), key

    return ask


def is_open(item: Item, content_hash: str | None) -> bool:
    """Check whether a stored item has no result: it was not produced, or its result was lost and is derived again from its reply."""
    return item.status == OPEN or (item.status == PASSED and content_hash is None)


def read_outcome(item: Item, content_hash: str | None, tools: list[str], signature: bytes | None) -> Outcome:
    """Return the outcome of a stored item."""
    if content_hash is not None and (item.status == PASSED or item.reason in DUPLICATE_CODES):
        return Outcome(content_hash, None, signature, tools)
    return Outcome(reason=item.reason)


def store_result(ledger: Ledger, simulator: Simulator, item: Item, result: SimulationResult) -> SimulationResult:
    """Write a result's verdict into its item, store both, and return the result. One that cannot be written, such as one that nests too deep,
    is stored as an internal error; the other items go on."""
    try:
        body = result.body()
    except (TypeError, ValueError, RecursionError) as error:
        detail = f"the result cannot be written: {type(error).__name__}: {error}"
        result = SimulationResult(None, [Issue(code=Code.INTERNAL, where=item.id, detail=detail[:300])])
        body = result.body()
    item.status, item.reason, item.detail = PASSED, None, None
    if result.issues:
        first = result.issues[0]
        item.status, item.reason, item.detail = REJECTED, str(first.code), str(first)
    if result.head:
        ledger.head(result.head, lambda: trajectory_head(simulator.by_id[item.spec["seed"]]))
    ledger.conclude(item, result.content_hash, body, tools=result.tools, signature=result.signature)
    return result


def build_near_index(config: AmplifyConfig, seeds: Seeds) -> NearDuplicateIndex | None:
    """Build the index of near-duplicates, with the seeds in it; None if the config wants none."""
    if config.select.near is None:
        return None
    index = NearDuplicateIndex(config.select.near)
    for seed in seeds.order:
        index.add(f"seed {seed.task_id or seed.id}", compute_signature(seed))
    return index
