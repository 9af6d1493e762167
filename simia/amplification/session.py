"""One session of an amplification, from config to stop, for the command, the Python API and resumes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from simia import terminal
from simia.amplification import scenario
from simia.amplification.job import AmplificationWork, ask_engine
from simia.amplification.judged_seeds import judge_seeds
from simia.amplification.seeds import Seeds, load_seed_packs, take_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator, choose_suite
from simia.garbage_collection import collect_rarely
from simia.jobs import Run
from simia.jobs.coordinator import Coordinator
from simia.jobs.progress import Progress
from simia.jobs.run_session import OpenRun, SessionOptions, SessionResult, continue_run, coordinate, reopen_run
from simia.llm.backends import find_price, open_backend
from simia.llm.budget import share_budget
from simia.llm.engine import Engine
from simia.llm.types import DeferredBackend, ModelBackend
from simia.prompts import read_prompt
from simia.quality.judging.rubric import Rubric
from simia.trajectory import Trajectory

OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Amplified(SessionResult):
    """The result of an amplification: the run's folder, the reason why it stopped, the last figures."""

    progress: Progress


async def start_amplification(
    config: AmplifyConfig,
    *,
    given: Sequence[Trajectory] | None = None,
    runs: Path = Path("runs"),
    name: str | None = None,
    **options: Unpack[SessionOptions],
) -> Amplified:
    """Start a run and work on it until n are accepted or a stop. `given`: seeds held in memory, instead of the config's."""
    open_run: OpenRun = lambda facts: Run.create(runs, config, name=name, facts=facts)  # noqa: E731
    return await work_on_amplification(config, given, open_run, **options)


async def resume_amplification(
    run_id: str,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    **options: Unpack[SessionOptions],
) -> Amplified:
    """Continue a run. `changes` (dotted names) may touch operational settings: n, limits, stop."""
    with reopen_run(AmplifyConfig, runs, run_id, changes, say=options.get("say", terminal.say)) as (run, config):
        return await work_on_amplification(config, None, partial(continue_run, run, config), **options)


async def work_on_amplification(
    config: AmplifyConfig,
    given: Sequence[Trajectory] | None,
    open_run: OpenRun,
    *,
    say: Callable[[str], None] = terminal.say,
    on_progress: Callable[[Any], None] | None = None,
    handle_signals: bool = False,
) -> Amplified:
    """Load the seeds, start the model, open the run, and work on it until it stops."""
    seeds = load_seeds(config, given)
    async with contextlib.AsyncExitStack() as stack:
        backend = open_backend(config.llm, say=say)
        await backend.start()
        stack.push_async_callback(backend.close)
        run = stack.enter_context(contextlib.closing(open_run(collect_facts(config, seeds, backend))))
        seeds = await judge_seeds(run, config, seeds, backend)
        store_seeds(run, seeds)
        engine = Engine(backend, run.ledger, config.limits, find_price(config.llm))
        stack.callback(engine.gate.close)
        spent, attempts = run.ledger.spent()
        share_budget([engine], spent, sent=sum(attempts.values()), answered=run.ledger.answered_count())
        ask, can_wait = ask_engine(engine), not isinstance(backend, DeferredBackend)
        work = AmplificationWork(
            run, config, seeds, ask, model=backend.model, structured=backend.structured, may_wait=can_wait
        )
        job = Coordinator(run, work, [engine], work.progress, config.stop, on_progress=on_progress)
        with collect_rarely():
            stop = await coordinate(job, handle_signals=handle_signals)
        return Amplified(run.folder, stop, work.progress)


def load_seeds(config: AmplifyConfig, given: Sequence[Trajectory] | None = None) -> Seeds:
    """Load the seeds that the config names; `given`: seeds held in memory, instead of these."""
    if given is not None:
        return take_seeds(given, config.seeds, config.checks)
    return load_seed_packs(config.seeds, config.checks)


def collect_facts(config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> dict[str, Any]:
    """Return what identifies a run beyond its config: the model, and the contents of the seeds and prompts."""
    chosen = {choose_suite(config, seed) for seed in seeds.order}
    files = [config.prompt.system, config.prompt.request, "amplify/form_json.md", "amplify/form_tagged.md"]
    prompts = {name: read_prompt(name)[1] for name in [*files, *(suite.rules for suite in chosen)]}
    if config.prompt.scenarios:
        prompts |= scenario.hash_scenario_files()
    if config.prefilter.enabled:
        prompts |= Rubric(config.prefilter).files
    return {
        "model": backend.model,
        "alias": backend.alias,
        "structured": backend.structured,
        "seeds": seeds.digest,
        "prompts": dict(sorted(prompts.items())),
    }


def store_seeds(run: Run, seeds: Seeds) -> None:
    """Store the seeds with the run, for reports and data cards."""
    rows = [(seed.id, seed) for seed in seeds.order]
    run.ledger.set_seeds(rows)
    used = [
        {"id": id_, "task": seed.task_id, "pack": seed.pack, "licence": seed.provenance.licence} for id_, seed in rows
    ]
    refused = [{"name": r.name, "issues": [str(issue) for issue in r.issues]} for r in seeds.refused]
    run.ledger.set_meta("seeds", {"read": seeds.read, "used": used, "refused": refused})


def open_preview(config: AmplifyConfig) -> tuple[Simulator, Seeds]:
    """Return everything but the model, for `--dry-run`."""
    seeds = load_seeds(config)
    return Simulator(config, seeds, structured=open_backend(config.llm, say=lambda _: None).structured), seeds
