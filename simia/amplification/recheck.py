"""Every result of a run derived again from its stored replies, at no cost: after a parser or a check has changed (`recheck`), or after
a file was damaged (`rebuild`). The ledger changes in one transaction: a process that dies leaves the old results or the new ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from simia.amplification.job import DUPLICATE_CODES, AmplificationWork, store_result, write_verdict
from simia.amplification.judged_seeds import META, keep_judged_seeds
from simia.amplification.seeds import Seeds
from simia.amplification.session import collect_facts, load_seeds, read_saved_config, store_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Ask
from simia.errors import UserError
from simia.jobs import OPEN, PASSED, Item, Run
from simia.jobs.coordinator import InOrder
from simia.jobs.rebuild import Salvaged, salvage
from simia.llm.backends import open_backend
from simia.llm.types import Reply, Request, make_reply_key
from simia.quality.acceptance import Outcome

T = TypeVar("T")
ChangedFigures = dict[str, tuple[int, int]]


class Unanswered(Exception):  # noqa: N818 - a finding
    """A reply that an item needs is not in the store."""


def recheck_items(
    run: Run, config: AmplifyConfig, seeds: Seeds, *, model: str, structured: bool, alias: str, planned: int = 0
) -> ChangedFigures:
    """Derive every result of a run again from its stored replies, at no cost: {figure: (before, after)}.

    `planned`: plan the items before this place that the ledger does not have. Raises `Damaged` for a reply that cannot be read; then
    nothing has changed.
    """
    ledger = run.ledger
    before, accepted_before = ledger.counts(), ledger.accepted_count()
    with ledger.db.transaction():
        ledger.clear_acceptances()
        accepted = Derivation(run, config, seeds, model, structured, alias).derive(planned)
    after = ledger.counts()
    figures = {name: (before.get(name, 0), after.get(name, 0)) for name in sorted(before.keys() | after.keys())}
    return {"accepted": (accepted_before, accepted), **figures}


class Derivation:
    """One pass over the items of a run, in their order."""

    def __init__(self, run: Run, config: AmplifyConfig, seeds: Seeds, model: str, structured: bool, alias: str) -> None:
        self.ledger, self.model, self.alias = run.ledger, model, alias
        self.work = AmplificationWork(run, config, seeds, self._asker, model=model, structured=structured)
        self.order: InOrder[tuple[Item, Outcome]] = InOrder()

    def derive(self, planned: int) -> int:
        """Derive every item; `planned`: how many the run has at least. Returns how many are accepted."""
        place = 0
        for item, content_hash, tools, sketch in self.ledger.outcomes():
            self._plan(place, item.ord)
            place = item.ord + 1
            kept = (item.status == PASSED or item.reason in DUPLICATE_CODES) and content_hash is not None
            self._derive_item(item, Outcome(content_hash, None, sketch, tools) if kept else Outcome(reason=item.reason))
        self._plan(place, planned)
        return self.work.acceptance.accepted

    def _plan(self, first: int, end: int) -> None:
        for ord_ in range(first, end):
            item = self.work.plan(ord_)
            self.ledger.plan(item)
            self._derive_item(item, Outcome())

    def _derive_item(self, item: Item, outcome: Outcome) -> None:
        try:
            result = run_at_once(self.work.produce(item))
        except Unanswered:
            if item.status == OPEN or (item.status == PASSED and outcome.content_hash is None):
                return  # nothing after it is decided either, until it has its reply
        else:
            write_verdict(item, result)
            outcome = result.outcome()
            store_result(self.ledger, self.work.simulator, item, result)
        for ready in self.order.add(item.ord, (item, outcome)):
            self.work.decide(*ready)

    def _asker(self, _: Item) -> Ask:
        return self._recall

    async def _recall(self, request: Request, draw: str) -> tuple[Reply, str]:
        key = make_reply_key(self.alias, self.model, request, draw)
        reply = self.ledger.recall(key)
        if reply is None:
            raise Unanswered
        self.ledger.keep_texts(request)
        return reply, key


def recheck_run(runs: Path, name: str, say: Callable[[str], None]) -> tuple[str, ChangedFigures, int]:
    """`recheck` with what the run itself says: its id, the figures, and how many trajectories it is to have."""
    run = Run.open(runs, name)
    try:
        if run.found is not None and run.found.findings:
            say(f"note: {run.found}")
        config = read_saved_config(run)
        facts = run.ledger.meta("facts")
        seeds = keep_judged_seeds(run, load_seeds(config, None))
        answers = {name: facts[name] for name in ("model", "alias", "structured")}
        return run.id, recheck_items(run, config, seeds, **answers), config.n
    finally:
        run.close()


def rebuild_run(runs: Path, name: str) -> tuple[Salvaged, ChangedFigures]:
    """Make a run's ledger from its replies: what can be read of both files is kept, everything else is derived again.

    Raises `UserError` for what neither the replies nor the configuration can give back.
    """
    salvaged = salvage(runs, name)
    run = Run.open(runs, str(salvaged.folder), verify=False)
    try:
        config = read_saved_config(run)
        seeds = load_seeds(config, None)
        known = run.ledger.meta("facts")
        if known is None:
            known = collect_facts(config, seeds, open_backend(config.llm, say=lambda _: None))
            run.ledger.set_meta("facts", known, twice=True)
        if config.prefilter.enabled and run.ledger.meta(META) is None:
            raise UserError(f"run {run.id} has lost its verdicts on the seeds: start a new run")
        seeds = keep_judged_seeds(run, seeds)
        store_seeds(run, seeds)
        answers = {name: known[name] for name in ("model", "alias", "structured")}
        figures = recheck_items(run, config, seeds, planned=salvaged.planned, **answers)
        done = figures["accepted"][1] >= config.n
        run.ledger.set_meta("stopped", {"kind": "complete" if done else "rebuilt", "detail": ""})
        return salvaged, figures
    finally:
        run.close()


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for anything: the store answers at once."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("it waited for something")
