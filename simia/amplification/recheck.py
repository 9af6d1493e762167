"""Derive every result of a run again from its stored replies, at no cost: after a parser or a check has changed (`recheck`), or after
a file was damaged (`rebuild`). The ledger changes in one transaction: a process that dies leaves the old results or the new ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from simia.amplification.acceptance_judge import AcceptanceJudge
from simia.amplification.job import AmplificationWork, is_open, read_outcome, store_result
from simia.amplification.model_mix import Writer, get_writer, list_writers, read_writers
from simia.amplification.seeds import META, Seeds, keep_judged_seeds, restore_seeds
from simia.amplification.session import (
    collect_facts,
    find_recording,
    load_seeds,
    open_judge_backend,
    open_models,
    store_seeds,
)
from simia.amplification.settings import AmplifyConfig
from simia.errors import UserError
from simia.jobs import Item, Ledger, Run
from simia.jobs.coordinator import InOrder
from simia.jobs.rebuild import Salvaged, salvage
from simia.jobs.run_session import read_run_config, reopen_run
from simia.llm.backends import LLMSettings
from simia.llm.replay import ReplaySettings
from simia.llm.types import Reply, Request, make_reply_key
from simia.quality.acceptance import Outcome
from simia.search_path import searching_from

T = TypeVar("T")
ChangedFigures = dict[str, tuple[int, int]]


class Unanswered(Exception):  # noqa: N818 - a finding
    """The store lacks a reply that an item needs."""


class StoredReplies:
    """A model's replies in a run's store, with the interface of an engine. It never waits."""

    def __init__(self, ledger: Ledger, settings: LLMSettings, *, model: str, alias: str, structured: bool) -> None:
        self.backend = StoredBackend(model, alias, structured)
        self.recorded = isinstance(settings, ReplaySettings) and settings.match == "draw"
        self._ledger = ledger
        self._keys = ledger.find_keys_by_draw() if self.recorded else {}

    def make_key(self, request: Request, draw: str) -> str:
        known = self._keys.get(draw)
        return known or make_reply_key(self.backend.alias, self.backend.model, request, draw)

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the stored reply. Raises `Unanswered`."""
        reply = self._ledger.recall(key or self.make_key(request, draw))
        if reply is None:
            raise Unanswered
        if not self.recorded:
            self._ledger.keep_texts(request)
        return reply


@dataclass
class StoredBackend:
    """The names of a back end that is not asked."""

    model: str
    alias: str
    structured: bool

    async def start(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        raise Unanswered

    async def close(self) -> None: ...


def recheck_items(
    run: Run, config: AmplifyConfig, seeds: Seeds, writers: Sequence[Writer], *, planned: int = 0
) -> ChangedFigures:
    """Derive every result of a run again from its stored replies, at no cost: {figure: (before, after)}.

    `planned`: also plan items with a place below this that the ledger lacks. Raises `Damaged` for a reply that cannot be read; nothing
    has changed then.
    """
    ledger = run.ledger
    facts = ledger.meta("facts") or {}
    settings = [config.llm, *(each.llm for each in config.mix)]
    stored = [
        StoredReplies(ledger, llm, model=each.model, alias=each.alias, structured=each.structured)
        for llm, each in zip(settings, writers, strict=True)
    ]
    judge = None
    if config.judge.enabled:
        of_judge = stored[0]
        if config.judge.llm is not None:
            of_judge = StoredReplies(ledger, config.judge.llm, **facts["judge"])
        judge = AcceptanceJudge(config.judge, of_judge, in_turn=True)
    before, accepted_before = ledger.counts(), ledger.accepted_count()

    async def recall(item: Item, request: Request, draw: str) -> tuple[Reply, str]:
        replies = stored[get_writer(item)]
        key = replies.make_key(request, draw)
        if ledger.recall(key) is None:  # a prompt file has changed since: take the reply that this item got then
            known, at = ledger.reply_keys(item.id), int(draw.rpartition(".")[2])
            key = known[at] if at < len(known) else key
        return await replies.ask(request, item=item.id, draw=draw, key=key), key

    prompts = facts.get("prompts") if stored[0].recorded else None
    work = AmplificationWork(run, config, seeds, recall, writers=writers, prompts=prompts, judge=judge)
    asked = facts.get("prompts", {})
    for renderer in work.simulator.renderers:  # record the prompt files for which the reply was made
        renderer.files.update({name: asked[name] for name in renderer.files.keys() & asked.keys()})
    order: InOrder[tuple[Item, Outcome]] = InOrder()
    with ledger.db.transaction():
        ledger.clear_acceptances()
        for item, outcome in list_items(run, work, planned):
            with contextlib.suppress(Unanswered):
                result = run_at_once(work.produce(item))
                outcome = store_result(ledger, work.simulator, item, result).outcome()
            if outcome is not None:  # else later items stay undecided until it has its reply
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
    """Recheck a run. Returns its id, the figures, and its target number of trajectories."""
    with reopen_run(AmplifyConfig, runs, name, say=say) as (run, config):
        facts = run.ledger.meta("facts")
        return run.id, recheck_items(run, config, find_seeds(run, config), read_writers(facts)), config.n


def find_seeds(run: Run, config: AmplifyConfig) -> Seeds:
    """Return the seeds that the run was made with: from the files that its config names or, if these have changed, from its ledger.

    Raises `UserError` if neither holds them.
    """
    try:
        seeds = load_seeds(config)
    except UserError:
        if (stored := restore_seeds(run)) is None:
            raise
        return stored
    if seeds.digest == run.ledger.meta("facts")["seeds"]:
        return keep_judged_seeds(run, seeds)
    if (stored := restore_seeds(run)) is None:
        raise UserError(
            f"run {run.id} was made with other seeds than {', '.join(config.seeds.packs)} has now: restore these files and try again"
        )
    return stored


def rebuild_run(runs: Path, name: str) -> tuple[Salvaged, ChangedFigures]:
    """Rebuild a run's ledger from its replies: readable rows of both files are kept, everything else is derived again.

    Raises `UserError` if neither the replies nor the config can restore a part.
    """
    salvaged = salvage(runs, name)
    with (
        contextlib.closing(Run.open(runs, str(salvaged.folder), verify=False)) as run,
        searching_from(run.start_folder),
    ):
        config = read_run_config(AmplifyConfig, run)
        facts = run.ledger.meta("facts")
        if facts is None:
            backends = open_models(config, say=lambda _: None)
            facts = collect_facts(
                config,
                load_seeds(config),
                list_writers(backends, config.mix),
                recorded=find_recording(backends[0]),
                judge=open_judge_backend(config, backends[0], say=lambda _: None),
            )
            run.ledger.set_meta("facts", facts, twice=True)
        if config.prefilter.enabled and run.ledger.meta(META) is None:
            raise UserError(f"run {run.id}: the judge's verdicts on its seeds are missing; start a new run")
        seeds = find_seeds(run, config)
        if run.ledger.meta("seeds") is None or restore_seeds(run) is None:
            store_seeds(run, seeds)
        figures = recheck_items(run, config, seeds, read_writers(facts), planned=salvaged.planned)
        kind = "complete" if figures["accepted"][1] >= config.n else "rebuilt"
        run.ledger.set_meta("stopped", {"kind": kind, "detail": ""})
        return salvaged, figures


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits: the store answers at once."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("the derivation waited")
