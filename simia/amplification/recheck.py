"""Derive every result of a run again from its stored replies, at no cost: after a parser or a check has changed (`recheck`), or after
a file was damaged (`rebuild`). The ledger changes in one transaction: a process that dies leaves the old results or the new ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from simia.amplification.job import AmplificationWork, is_open, read_outcome, store_result
from simia.amplification.seeds import META, Seeds, keep_judged_seeds
from simia.amplification.session import collect_facts, load_seeds, store_seeds
from simia.amplification.settings import AmplifyConfig
from simia.errors import UserError
from simia.jobs import Item, Run
from simia.jobs.coordinator import InOrder
from simia.jobs.rebuild import Salvaged, salvage
from simia.jobs.run_session import read_run_config, reopen_run
from simia.llm.backends import open_backend
from simia.llm.types import Reply, Request, make_reply_key
from simia.quality.acceptance import Outcome

T = TypeVar("T")
ChangedFigures = dict[str, tuple[int, int]]


class Unanswered(Exception):  # noqa: N818 - a finding
    """The store lacks a reply that an item needs."""


def recheck_items(
    run: Run, config: AmplifyConfig, seeds: Seeds, *, model: str, structured: bool, alias: str, planned: int = 0
) -> ChangedFigures:
    """Derive every result of a run again from its stored replies, at no cost: {figure: (before, after)}.

    `planned`: plan the items before this place that the ledger does not have. Raises `Damaged` for a reply that cannot be read; then
    nothing has changed.
    """
    ledger = run.ledger
    before, accepted_before = ledger.counts(), ledger.accepted_count()

    async def recall(item: Item, request: Request, draw: str) -> tuple[Reply, str]:
        key = make_reply_key(alias, model, request, draw)
        reply = ledger.recall(key)
        if reply is None:  # a prompt file has changed since: the reply that this item got then
            stored, at = ledger.reply_keys(item.id), int(draw.rpartition(".")[2])
            key = stored[at] if at < len(stored) else key
            reply = ledger.recall(key)
        if reply is None:
            raise Unanswered
        ledger.keep_texts(request)
        return reply, key

    work = AmplificationWork(run, config, seeds, recall, model=model, structured=structured)
    asked = (ledger.meta("facts") or {}).get("prompts", {})
    files = work.simulator.renderer.files  # a trajectory names the prompt files that its reply answered
    files.update({name: asked[name] for name in files.keys() & asked.keys()})
    order: InOrder[tuple[Item, Outcome]] = InOrder()
    with ledger.db.transaction():
        ledger.clear_acceptances()
        for item, outcome in list_items(run, work, planned):
            with contextlib.suppress(Unanswered):
                result = run_at_once(work.produce(item))
                store_result(ledger, work.simulator, item, result)
                outcome = result.outcome()
            if outcome is not None:  # else nothing after it is decided either, until it has its reply
                for ready in order.add(item.ord, (item, outcome)):
                    work.decide(*ready)
    after = ledger.counts()
    figures = {name: (before.get(name, 0), after.get(name, 0)) for name in sorted(before.keys() | after.keys())}
    return {"accepted": (accepted_before, work.acceptance.accepted), **figures}


def list_items(run: Run, work: AmplificationWork, planned: int) -> Iterator[tuple[Item, Outcome | None]]:
    """Yield each item in order with its stored outcome (None: it is open), and plan those that are missing before `planned`."""
    place = 0

    def plan_until(end: int) -> Iterator[tuple[Item, None]]:
        for ord_ in range(place, end):
            item = work.plan(ord_)
            run.ledger.plan(item)
            yield item, None

    for item, content_hash, tools, signature in run.ledger.outcomes():
        yield from plan_until(item.ord)
        place = item.ord + 1
        work.note_plan(item)
        is_known = not is_open(item, content_hash)
        yield item, read_outcome(item, content_hash, tools, signature) if is_known else None
    yield from plan_until(planned)


def recheck_run(runs: Path, name: str, say: Callable[[str], None]) -> tuple[str, ChangedFigures, int]:
    """Recheck a run: returns its id, the figures, and how many trajectories it is to have."""
    with reopen_run(AmplifyConfig, runs, name, say=say) as (run, config):
        seeds = keep_judged_seeds(run, load_seeds(config))
        return run.id, recheck_items(run, config, seeds, **select_model(run.ledger.meta("facts"))), config.n


def rebuild_run(runs: Path, name: str) -> tuple[Salvaged, ChangedFigures]:
    """Rebuild a run's ledger from its replies: readable rows of both files are kept, everything else is derived again.

    Raises `UserError` if neither the replies nor the config can restore a part.
    """
    salvaged = salvage(runs, name)
    with contextlib.closing(Run.open(runs, str(salvaged.folder), verify=False)) as run:
        config = read_run_config(AmplifyConfig, run)
        seeds = load_seeds(config)
        facts = run.ledger.meta("facts")
        if facts is None:
            facts = collect_facts(config, seeds, open_backend(config.llm, say=lambda _: None))
            run.ledger.set_meta("facts", facts, twice=True)
        if config.prefilter.enabled and run.ledger.meta(META) is None:
            raise UserError(f"run {run.id} has lost its verdicts on the seeds: start a new run")
        seeds = keep_judged_seeds(run, seeds)
        store_seeds(run, seeds)
        figures = recheck_items(run, config, seeds, planned=salvaged.planned, **select_model(facts))
        kind = "complete" if figures["accepted"][1] >= config.n else "rebuilt"
        run.ledger.set_meta("stopped", {"kind": kind, "detail": ""})
        return salvaged, figures


def select_model(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in ("model", "alias", "structured")}


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits: the store answers at once."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("the derivation waited")
