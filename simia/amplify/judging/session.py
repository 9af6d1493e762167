"""One session of judging a run: open the judges' models, ask, write down.

The run is only read, so it may still be at work. The judges' replies have a ledger of their own in its folder `judging`:
a run's ledger has one writer, and what judging costs is not what making the data cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from simia.amplify.judging.judgement import Judged, Judgement
from simia.amplify.judging.quality import judge_run
from simia.amplify.judging.settings import QualitySettings
from simia.amplify.session import Say, saved
from simia.llm.backends import LLMSettings, open_backend, price_for
from simia.llm.engine import Engine, Journal
from simia.runs import Ledger, Run
from simia.runs.check import refuse_lost_replies
from simia.runs.database import Database
from simia.runs.run import take_lock
from simia.trajectory import Usage

FOLDER = "judging"


async def judge(
    run_id: str,
    config: QualitySettings,
    *,
    runs: Path = Path("runs"),
    say: Say = print,
    on_verdict: Callable[[Judged], None] | None = None,
) -> tuple[Judgement, Usage]:
    """Judge a run by id or path: the verdicts, and what all judging of this run has cost so far."""
    run = Run.read_only(runs, run_id)
    try:
        if not (found := run.verify()).complete:
            say(f"note: {found}")
        own = saved(run).llm
        models = {name: judge.llm or own for name, judge in config.judges.items()}
        folder = run.folder / FOLDER
        folder.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(take_lock(folder))
            refuse_lost_replies(folder)
            database = Database(folder)
            stack.callback(database.close)
            ledger = Ledger(database)
            async with opened(models, config, ledger, say) as engines:
                judgement = await judge_run(run, config, engines, on_verdict=on_verdict)
            ledger.flush()
            return judgement, ledger.spent()[0]
    finally:
        run.close()


@contextlib.asynccontextmanager
async def opened(
    models: dict[str, LLMSettings], config: QualitySettings, journal: Journal, say: Say
) -> AsyncIterator[dict[str, Engine]]:
    """An engine for each judge; judges with the same model share one."""
    async with contextlib.AsyncExitStack() as stack:
        known: list[tuple[LLMSettings, Engine]] = []
        engines: dict[str, Engine] = {}
        for name, model in models.items():
            engine = next((engine for settings, engine in known if settings == model), None)
            if engine is None:
                backend = open_backend(model, say=say)
                engine = await stack.enter_async_context(Engine(backend, journal, config.limits, price_for(model)))
                known.append((model, engine))
            engines[name] = engine
        yield engines
