"""One session of an amplification, from config to stop, for the command, the Python API and resumes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia.amplification import scenario
from simia.amplification.job import AmplificationWork, ask_engine
from simia.amplification.judged_seeds import judge_seeds
from simia.amplification.seeds import Seeds, load_seed_packs, take_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.config import assign_setting, parse_config
from simia.garbage_collection import collect_rarely
from simia.jobs import Run
from simia.jobs.coordinator import Coordinator, Stop, stop_on_signals
from simia.jobs.progress import Progress
from simia.jobs.run import iterate_accepted, save_config
from simia.llm.backends import find_price, open_backend
from simia.llm.budget import share_budget
from simia.llm.engine import Engine
from simia.llm.types import DeferredBackend, ModelBackend
from simia.prompts import read_prompt
from simia.quality import suites
from simia.quality.judging.rubric import Rubric
from simia.trajectory import Trajectory

Say = Callable[[str], None]
OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Amplified:
    """The result of a session: the run's folder, why it stopped, the last figures."""

    folder: Path
    stop: Stop
    progress: Progress

    @property
    def run_id(self) -> str:
        return self.folder.name

    def trajectories(self, *, partial: bool = False) -> Iterator[Trajectory]:
        """The accepted trajectories of the run, in order.

        Raises `UserError` unless the run is complete; `partial`: take what there is.
        """
        return iterate_accepted(self.folder, partial=partial)


async def start_amplification(
    config: AmplifyConfig,
    *,
    given: Sequence[Trajectory] | None = None,
    runs: Path = Path("runs"),
    name: str | None = None,
    say: Say = print,
    on_progress: OnProgress | None = None,
    handle_signals: bool = False,
) -> Amplified:
    """Start a run and work on it until n are accepted or a stop. `given`: seeds held in memory, instead of the config's."""
    seeds = load_seeds(config, given)
    async with open_model(config, say) as backend:
        run = Run.create(runs, config, name=name, facts=collect_facts(config, seeds, backend))
        try:
            return await work_on_amplification(run, config, seeds, backend, on_progress, handle_signals)
        finally:
            run.close()


async def resume_amplification(
    run_id: str,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    given: Sequence[Trajectory] | None = None,
    say: Say = print,
    on_progress: OnProgress | None = None,
    handle_signals: bool = False,
) -> Amplified:
    """Continue a run. `changes` (dotted names) may touch operational settings: n, limits, stop."""
    run = Run.open(runs, run_id)
    try:
        if run.found is not None and run.found.findings:
            say(f"note: {run.found}")
        config = read_saved_config(run, changes)
        seeds = load_seeds(config, given)
        async with open_model(config, say) as backend:
            run.refuse_other_identity(config, collect_facts(config, seeds, backend))
            save_config(run.folder, config)
            return await work_on_amplification(run, config, seeds, backend, on_progress, handle_signals)
    finally:
        run.close()


def read_saved_config(run: Run, changes: dict[str, Any] | None = None) -> AmplifyConfig:
    """Return the config that a run was made with, with operational changes applied."""
    run.refuse_rollouts("this")
    data = run.saved_config()
    for dotted, value in (changes or {}).items():
        assign_setting(data, dotted.split("."), value)
    return parse_config(AmplifyConfig, data, where=f"run {run.id}")


def load_seeds(config: AmplifyConfig, given: Sequence[Trajectory] | None) -> Seeds:
    if given is not None:
        return take_seeds(given, config.seeds, config.checks)
    return load_seed_packs(config.seeds, config.checks)


@contextlib.asynccontextmanager
async def open_model(config: AmplifyConfig, say: Say) -> AsyncIterator[ModelBackend]:
    """Open the model's back end and close it at the end."""
    backend = open_backend(config.llm, say=say)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def collect_facts(config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> dict[str, Any]:
    """Return what identifies a run beyond its config: the contents of the seeds and prompts that it names, and the model."""
    files = [config.prompt.system, config.prompt.request, "amplify/form_json.md", "amplify/form_tagged.md"]
    prompts = {name: read_prompt(name)[1] for name in files}
    if config.prompt.scenarios:
        prompts |= scenario.hash_scenario_files()
    if config.prefilter.enabled:
        prompts |= Rubric(config.prefilter).files
    for suite in {
        suites.detect_suite(seed) if config.suite == "auto" else suites.get_suite(config.suite) for seed in seeds.order
    }:
        prompts[suite.rules] = read_prompt(suite.rules)[1]
    return {
        "model": backend.model,
        "alias": backend.alias,
        "structured": backend.structured,
        "seeds": seeds.digest,
        "prompts": dict(sorted(prompts.items())),
    }


def store_seeds(run: Run, seeds: Seeds) -> None:
    """Keep the seeds with the run, for reports and data cards."""
    ids = [seed.id for seed in seeds.order]
    run.ledger.set_seeds(list(zip(ids, seeds.order, strict=True)))
    refused = [{"name": r.name, "issues": [str(issue) for issue in r.issues]} for r in seeds.refused]
    used = [
        {"id": id_, "task": seed.task_id, "pack": seed.pack, "licence": seed.provenance.licence}
        for id_, seed in zip(ids, seeds.order, strict=True)
    ]
    run.ledger.set_meta("seeds", {"read": seeds.read, "used": used, "refused": refused})


async def work_on_amplification(
    run: Run,
    config: AmplifyConfig,
    seeds: Seeds,
    backend: ModelBackend,
    on_progress: OnProgress | None,
    handle_signals: bool,
) -> Amplified:
    seeds = await judge_seeds(run, config, seeds, backend)
    store_seeds(run, seeds)
    engine = Engine(backend, run.ledger, config.limits, find_price(config.llm))
    spent, attempts = run.ledger.spent()
    share_budget([engine], spent, sent=sum(attempts.values()), answered=run.ledger.answered_count())
    work = AmplificationWork(
        run,
        config,
        seeds,
        ask_engine(engine),
        model=backend.model,
        structured=backend.structured,
        may_wait=not isinstance(backend, DeferredBackend),
    )
    try:
        job = Coordinator(run, work, [engine], work.progress, config.stop, on_progress=on_progress)
        with collect_rarely(), stop_on_signals(job) if handle_signals else contextlib.nullcontext():
            stop = await job.run()
        return Amplified(run.folder, stop, work.progress)
    finally:
        engine.gate.close()


def open_preview(config: AmplifyConfig, *, structured: bool | None = None) -> tuple[Simulator, Seeds]:
    """Return everything but the model, for `--dry-run`. `structured`: whether the back end can constrain replies; asked of it when None."""
    seeds = load_seeds(config, None)
    if structured is None:
        structured = open_backend(config.llm, say=lambda _: None).structured
    return Simulator(config, seeds, structured=structured), seeds
