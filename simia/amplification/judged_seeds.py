"""Seeds judged by a model before a run (paper §2.2), once: the verdicts are part of the run.

Which seeds an item is made from follows from which seeds were kept, so a resume must keep the same ones: it reads the
verdicts that the first session wrote down, also those that a failing judge could not give (their seeds stay, and say so).
"""

from __future__ import annotations

import contextlib

from simia.amplification.seeds import Seeds, remove_seeds
from simia.amplification.settings import AmplifyConfig
from simia.errors import UserError
from simia.jobs import Run
from simia.llm.backends import find_price, open_backend
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import ModelBackend
from simia.quality.judging.judge_reply import Verdict
from simia.quality.judging.prefilter import judge_seeds_by_llm

META = "prefilter"


async def judge_seeds(run: Run, config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> Seeds:
    """Return the seeds that passed. Raises `UserError` if the judge gave no verdict at all, or nothing is left."""
    if config.prefilter.enabled and run.ledger.meta(META) is None:
        verdicts = await ask_judge(run, config, seeds, backend)
        first = verdicts[0]
        if all(verdict.error is not None for verdict in verdicts):
            raise UserError(
                f"the judge of the seeds gave no verdict ({first.error}: {first.detail}): see prefilter.llm"
            )
        rows = [verdict.model_dump(mode="json", exclude={"votes"}) for verdict in verdicts]
        run.ledger.set_meta(META, {seed.id: row for seed, row in zip(seeds.order, rows, strict=True)}, twice=True)
    return keep_judged_seeds(run, seeds)


def keep_judged_seeds(run: Run, seeds: Seeds) -> Seeds:
    """Remove the seeds that this run's judge refused, by the stored verdicts."""
    known = run.ledger.meta(META) or {}
    verdicts = {seed_id: Verdict.model_validate(row) for seed_id, row in known.items()}
    return remove_seeds(seeds, {seed_id: each.issues for seed_id, each in verdicts.items() if each.passed is False})


async def ask_judge(run: Run, config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> list[Verdict]:
    own = config.prefilter.llm
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            backend = open_backend(own)
            stack.push_async_callback(backend.close)
            await backend.start()
        engine = Engine(backend, run.ledger, config.limits, find_price(own or config.llm))
        stack.callback(engine.gate.close)
        engine.stats.usage, _ = run.ledger.spent()
        engine.stats.answered = engine.stats.sent = run.ledger.answered_count()
        try:
            return await judge_seeds_by_llm(seeds.order, config.prefilter, engine)
        except BudgetReached as reached:
            raise UserError(f"while the seeds were judged: {reached}") from None
