"""Judge a run in one session: open the judges' models, ask, store the verdicts.

The run is only read, so it may still be in progress. The judges' replies have a ledger of their own in its folder
`judging`: a run's ledger has one writer, and the cost of judging is not part of the run's cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pydantic import Field

from simia.config import Config, parse_config
from simia.jobs import Run
from simia.jobs.database import Database
from simia.jobs.integrity import refuse_lost_replies
from simia.jobs.journal import Journal
from simia.jobs.run import take_lock
from simia.llm.backends import LLMSettings, find_price, open_backend
from simia.llm.budget import count_tries, share_budget
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import Engine
from simia.llm.journals import ReplyJournal
from simia.quality.judging.quality_judge import judge_run
from simia.quality.judging.run_judgement import JudgedItem, Judgement
from simia.quality.judging.settings import QualitySettings
from simia.trajectory import Usage

FOLDER = "judging"
Say = Callable[[str], None]


class RunModel(Config):
    """The part of a run's config that judging needs."""

    llm: LLMSettings = Field(default_factory=EmbeddedSettings)
    """The model that made the trajectories, and judges them where a judge names none of its own."""


async def judge_saved_run(
    run_id: str,
    config: QualitySettings,
    *,
    runs: Path = Path("runs"),
    say: Say = print,
    on_verdict: Callable[[JudgedItem], None] | None = None,
) -> tuple[Judgement, Usage]:
    """Judge a run by id or path. Return the verdicts and the usage of all judging of this run so far."""
    run = Run.read_only(runs, run_id)
    try:
        if not (found := run.verify()).complete:
            say(f"note: {found}")
        run.refuse_rollouts("this")
        saved = run.saved_config()
        own = parse_config(RunModel, {"llm": saved["llm"]} if "llm" in saved else {}, where=f"run {run.id}").llm
        models = {name: judge.llm or own for name, judge in config.judges.items()}
        folder = run.folder / FOLDER
        folder.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(take_lock(folder))
            refuse_lost_replies(folder)
            database = Database(folder)
            stack.callback(database.close)
            journal = Journal(database)
            journal.complete_attempts()
            async with open_engines(models, config, journal, say) as engines:
                several = list(dict.fromkeys(engines.values()))
                share_budget(several, journal.earlier_spending())
                try:
                    judgement = await judge_run(run, config, engines, on_verdict=on_verdict)
                finally:
                    journal.note_tries(*count_tries(several))
            journal.flush()
            return judgement, journal.spent()[0]
    finally:
        run.close()


@contextlib.asynccontextmanager
async def open_engines(
    models: dict[str, LLMSettings], config: QualitySettings, journal: ReplyJournal, say: Say
) -> AsyncIterator[dict[str, Engine]]:
    """Open an engine for each judge; judges with the same model share one."""
    async with contextlib.AsyncExitStack() as stack:
        engines: dict[str, Engine] = {}
        for name, model in models.items():
            same = next((engines[other] for other in engines if models[other] == model), None)
            if same is None:
                engine = Engine(open_backend(model, say=say), journal, config.limits, find_price(model))
                same = await stack.enter_async_context(engine)
            engines[name] = same
        yield engines
