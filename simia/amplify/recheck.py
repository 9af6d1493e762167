"""Every result of a run derived again from its stored replies, after a parser or a check has changed: at no cost."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from simia.amplify.acceptance import Acceptance, Outcome
from simia.amplify.job import COPIES, judged, near_index, refuse_copy, store
from simia.amplify.seeds import Seeds
from simia.amplify.settings import AmplifyConfig
from simia.amplify.simulate import Simulator
from simia.llm.types import Reply, Request, reply_key
from simia.runs import OPEN, PASSED, Item, Run

T = TypeVar("T")


class Unanswered(Exception):  # noqa: N818 - a finding
    """A reply that an item needs is not in the store."""


def recheck(
    run: Run, config: AmplifyConfig, seeds: Seeds, *, model: str, structured: bool, alias: str
) -> dict[str, tuple[int, int]]:
    """Derive every result of a run again from its stored replies, at no cost: {figure: (before, after)}."""
    ledger = run.ledger
    simulator = Simulator(config, seeds, structured=structured, run_id=run.id)
    before, accepted_before = ledger.counts(), ledger.accepted_count()
    acceptance = Acceptance(config.n, near_index(config, seeds))
    ledger.clear_acceptances()
    undecided: dict[int, Item] = {}

    async def recall(request: Request, draw: str) -> tuple[Reply, str]:
        key = reply_key(alias, model, request, draw)
        reply = ledger.recall(key)
        if reply is None:
            raise Unanswered
        return reply, key

    for item, content_hash, tools, sketch in ledger.outcomes():
        kept = item.status == PASSED or item.reason in COPIES
        outcome = Outcome(content_hash, None, sketch, tools) if kept else Outcome(reason=item.reason)
        try:
            result = at_once(simulator.produce(item, recall, model=model))
        except Unanswered:
            if item.status == OPEN:
                undecided[item.ord] = item
                continue  # nothing after it is decided either, until it has its reply
        else:
            judged(item, result)
            outcome = result.outcome()
            store(ledger, simulator, item, result)
        undecided[item.ord] = item
        for decision in acceptance.add(item.ord, outcome):
            decided = undecided.pop(decision.ord)
            if decision.verdict == "accepted" and decision.outcome.content_hash:
                ledger.accept(decided, decision.outcome.content_hash)
            elif decision.reason in COPIES:
                refuse_copy(ledger, decided, decision)
    ledger.flush()
    after = ledger.counts()
    figures = {name: (before.get(name, 0), after.get(name, 0)) for name in sorted(before.keys() | after.keys())}
    return {"accepted": (accepted_before, acceptance.accepted), **figures}


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for anything: the store answers at once."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("it waited for something")
