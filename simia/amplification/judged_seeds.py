"""Seeds judged by a model before a run (paper §2.2), once: the verdicts are part of the run.

Which seeds an item is made from follows from which seeds were kept, so a resume must keep the same ones: it reads the
verdicts that the first session wrote down, also those that a failing judge could not give (their seeds stay, and say so).
"""

from __future__ import annotations

from simia.amplification.seeds import Seeds, remove_seeds
from simia.amplification.settings import AmplifyConfig
from simia.errors import UserError
from simia.jobs import Run
from simia.llm.backends import find_price, open_backend
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import ModelBackend
from simia.quality.judging.judge_reply import Verdict
from simia.quality.judging.panel import judge_seeds_by_llm

META = "prefilter"


async def judge_seeds(run: Run, config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> Seeds:
    """The seeds that passed. Raises `UserError` when the judge gave no verdict at all, or nothing is left."""
    if not config.prefilter.enabled:
        return seeds
    known = run.ledger.meta(META)
    if known is None:
        verdicts = await ask(run, config, seeds, backend)
        if all(verdict.error is not None for verdict in verdicts):
            first = verdicts[0]
            raise UserError(
                f"the judge of the seeds gave no verdict ({first.error}: {first.detail}): see prefilter.llm"
            )
        known = {
            seed.id: verdict.model_dump(mode="json", exclude={"votes"})
            for seed, verdict in zip(seeds.order, verdicts, strict=True)
        }
        run.ledger.set_meta(META, known, twice=True)
    return keep_judged_seeds(run, seeds)


def keep_judged_seeds(run: Run, seeds: Seeds) -> Seeds:
    """The seeds less those that this run's judge refused, by what is written down."""
    refused = {}
    for name, verdict in (run.ledger.meta(META) or {}).items():
        read = Verdict.model_validate(verdict)
        if read.passed is False:
            refused[name] = read.issues
    return remove_seeds(seeds, refused)


async def ask(run: Run, config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> list[Verdict]:
    own = config.prefilter.llm
    judge = open_backend(own) if own is not None else backend
    engine = Engine(judge, run.ledger, config.limits, find_price(own or config.llm))
    engine.stats.usage, _ = run.ledger.spent()
    engine.stats.answered = engine.stats.sent = run.ledger.answered_count()
    if own is not None:
        await judge.start()
    try:
        return await judge_seeds_by_llm(seeds.order, config.prefilter, engine)
    except BudgetReached as reached:
        raise UserError(f"while the seeds were judged: {reached}") from None
    finally:
        engine.gate.close()
        if own is not None:
            await judge.close()
