"""Derive every item of a synthesis again from its stored replies with the installed code, at no cost (`simia runs recheck`, `rebuild`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.errors import Code, UserError
from simia.jobs import Item, Ledger, Run, find_run
from simia.jobs.integrity import FREED
from simia.jobs.ledger import OPEN, PASSED, REJECTED
from simia.jobs.rebuild import Salvaged, salvage
from simia.jobs.run import saved_config
from simia.jobs.run_session import read_run_config, reopen_run
from simia.llm.backends import open_backend
from simia.llm.replay import ReplaySettings
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.prompts import read_prompt
from simia.search_path import searching_from
from simia.synthesis.job import StageResult, SynthesisWork
from simia.synthesis.recipes import RecipeKind, find_recipe
from simia.synthesis.session import collect_facts, find_changed_source, refuse_changed_source
from simia.synthesis.settings import SynthesisConfig
from simia.terminal import write_count

Decision = tuple[Item, StageResult | None]


class StoredReplies:
    """The stored replies of one model of a run, with the interface of its engine."""

    def __init__(self, ledger: Ledger, name: Mapping[str, str], by_draw: Mapping[str, str]) -> None:
        """`name`: the model's `alias` and `model`. `by_draw`: key of a sample's reply, for prompts that differ from the stored ones."""
        self._ledger, self._name, self._by_draw = ledger, name, by_draw

    async def ask(self, request: Request, *, item: str, draw: str) -> Reply:
        """Return the stored reply. Raises `LLMFault`."""
        reply = self._ledger.recall(self._find_key(request, draw))
        if reply is None:
            raise LLMFault(Code.REPLAY_MISS, draw, retry=False)
        return reply

    def find_asked(self, request: Request, draw: str) -> Request:
        """Return the stored request of the reply."""
        return self._ledger.recall_request(self._find_key(request, draw)) or request

    def _find_key(self, request: Request, draw: str) -> str:
        key = make_reply_key(self._name["alias"], self._name["model"], request, draw)
        if draw in self._by_draw and self._ledger.recall(key) is None:
            return self._by_draw[draw]
        return key


@dataclass(slots=True)
class Rechecked:
    """The result of a recheck."""

    run: str
    """The run."""
    figures: dict[str, tuple[int, int]]
    """Count of items by status: before and after."""
    missing: list[str] = field(default_factory=list)
    """Questions without a stored reply; their items are now open."""
    complete: bool = False
    """Whether every item of every stage is decided."""
    notes: list[str] = field(default_factory=list)
    """Lines for people."""


def recheck_synthesis(runs: Path, name: str, say: Callable[[str], None]) -> Rechecked:
    """Recheck a run. Raises `UserError`; the run is then unchanged."""
    kind = find_recipe(saved_config(find_run(runs, name)).get("recipe"))
    with reopen_run(kind.config, runs, name, say=say) as (run, config):
        refuse_changed_source(run, config, kind.make(config))
        return derive_again(run, kind, config)


def rebuild_synthesis(runs: Path, name: str) -> tuple[Salvaged, Rechecked]:
    """Rebuild a run's ledger from its replies: readable rows are kept, every item is derived again."""
    salvaged = salvage(runs, name)
    with (
        contextlib.closing(Run.open(runs, str(salvaged.folder), verify=False)) as run,
        searching_from(run.start_folder),
    ):
        kind = find_recipe(run.saved_config().get("recipe"))
        config = read_run_config(kind.config, run)
        if run.ledger.meta("facts") is None:
            models = {"writer": config.llm, **config.roles}
            backends = {role: open_backend(settings, say=lambda _: None) for role, settings in models.items()}
            run.ledger.set_meta("facts", collect_facts(config, kind.make(config), backends, {}), twice=True)
        found = derive_again(run, kind, config)
        stop = "complete" if found.complete else "rebuilt"
        run.ledger.set_meta("stopped", {"kind": stop, "detail": ""})
        return salvaged, found


def derive_again(run: Run, kind: RecipeKind, config: SynthesisConfig) -> Rechecked:
    """Derive every item, then replace the ledger's results in one transaction."""
    ledger = run.ledger
    before = ledger.counts()
    changed = find_changed_prompts(ledger.meta("facts") or {})
    askers = make_askers(ledger, config, loose=bool(changed))
    work = SynthesisWork(run, config, kind.make(config).list_stages(), askers)
    freed = (
        {item.id: item for item in ledger.items() if item.status == REJECTED} if ledger.meta(FREED, "replies") else {}
    )
    decisions, missing = asyncio.run(derive_items(work, freed))
    decided = [item for item, result in decisions if result is not None]
    found = Rechecked(run.id, {}, missing, complete=work.explain_end().kind == "complete")
    if source := find_changed_source(run, config, kind.make(config)):
        found.notes.append(f"{source} since the run was made: items that follow from it are other ones")
    if changed:
        found.notes.append(
            f"prompt files changed since the run was made ({', '.join(changed)}): replies are matched by sample"
        )
    with ledger.db.transaction():
        ledger.drop_items(0, wait=False)
        for item, result in decisions:
            ledger.plan(item)
            if result is not None and work.conclude(item, result).refusal is None:
                ledger.accept(item, work.hash_output(item, result))
    if not found.complete and (ledger.meta("stopped") or {}).get("kind") == "complete":
        ledger.set_meta("stopped", {"kind": "rechecked", "detail": f"{write_count(len(missing), 'missing reply')}"})
    elif found.complete:
        ledger.set_meta("stopped", {"kind": "complete", "detail": ""})
    made = sum(item.status == PASSED for item in decided)
    after = {PASSED: made, REJECTED: len(decided) - made, OPEN: len(decisions) - len(decided)}
    names = sorted({name for name in (*before, *after) if before.get(name) or after.get(name)})
    found.figures = {name: (before.get(name, 0), after.get(name, 0)) for name in names}
    return found


async def derive_items(work: SynthesisWork, freed: Mapping[str, Item]) -> tuple[list[Decision], list[str]]:
    """Derive the items stage by stage, as far as there are stored replies. `freed`: rejected items whose replies may have been removed on
    request; without replies they keep their verdict."""
    decisions: list[Decision] = []
    missing: list[str] = []

    async def derive(item: Item) -> StageResult | None:
        try:
            return await work.produce(item)
        except LLMFault as fault:
            if fault.code is not Code.REPLAY_MISS:
                raise UserError(f"{item.id} cannot be derived: {fault.detail}; fix this and try again") from None
            if (known := freed.get(item.id)) is not None and known.spec == item.spec:
                return work.read_result(known)
            missing.append(fault.detail)
            return None

    while work.wants(len(decisions), 0):
        items: list[Item] = []
        while work.wants(len(decisions) + len(items), 0):
            items.append(work.plan(len(decisions) + len(items)))
        results = await asyncio.gather(*map(derive, items))
        decisions += zip(items, results, strict=True)
        for item, result in zip(items, results, strict=True):
            if result is not None:
                work.take(item, result)
    return decisions, sorted(missing)


def make_askers(ledger: Ledger, config: SynthesisConfig, *, loose: bool) -> dict[str, StoredReplies]:
    """Return the stored replies of each role's model. `loose`: if a request has no reply, use that of the same sample."""
    facts: dict[str, Any] = ledger.meta("facts") or {}
    models: Sequence[Any] = (config.llm, *config.roles.values())
    loose = loose or any(isinstance(llm, ReplaySettings) and llm.match == "draw" for llm in models)
    by_draw = ledger.find_keys_by_draw() if loose else {}
    names = {"writer": {"alias": facts["alias"], "model": facts["model"]}, **facts.get("roles", {})}
    return {role: StoredReplies(ledger, name, by_draw) for role, name in names.items()}


def find_changed_prompts(facts: Mapping[str, Any]) -> list[str]:
    """Name the prompt files of a run that differ today or are gone."""
    changed = []
    for name, hashed in facts.get("prompts", {}).items():
        try:
            same = read_prompt(name)[1] == hashed
        except UserError:
            same = False
        if not same:
            changed.append(name)
    return changed
