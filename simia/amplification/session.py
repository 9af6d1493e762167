"""Run an amplification: `simia.amplify`, the session of a new run, and the session of a resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from simia import formats, terminal
from simia.amplification.acceptance_judge import AcceptanceJudge
from simia.amplification.job import AmplificationWork, ask_engines
from simia.amplification.model_mix import Writer, describe_writers, list_writers
from simia.amplification.node_work import JUDGE, AmplificationNodeWork, name_models
from simia.amplification.plan_lines import PERSONAS, TWISTS, WORDING
from simia.amplification.seeds import (
    IDENTIFIERS,
    Seeds,
    SeedsPending,
    describe_seeds,
    judge_seeds,
    load_seed_packs,
    take_seeds,
)
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator, choose_suite
from simia.authoring.fresh_people import describe_source
from simia.config import apply_settings, assign_setting, merge_sections, parse_config, read_config_file
from simia.errors import UserError, require_type
from simia.garbage_collection import collect_rarely
from simia.jobs import Run
from simia.jobs.coordinator import Coordinator, Stop
from simia.jobs.nodes.ray_launcher import open_cluster
from simia.jobs.progress import Progress
from simia.jobs.run import refuse_taken
from simia.jobs.run_session import OpenRun, SessionOptions, SessionResult, continue_run, coordinate, reopen_run
from simia.llm.backends import LLMSettings, attach_client, find_price, open_backend, read_llm
from simia.llm.budget import share_budget
from simia.llm.engine import Engine
from simia.llm.question_files import note_shared_batches
from simia.llm.types import DeferredBackend, ModelBackend, RecordedBackend
from simia.prompts import read_prompt
from simia.quality.judging.rubric import Rubric
from simia.trajectory import Trajectory

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NAMES = "names"  # the library that the names in fresh values come from, and its version
OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Amplified(SessionResult):
    """The result of an amplification: the run's folder, the reason why it stopped, the last figures."""

    progress: Progress


async def amplify(
    seeds: str | Path | Sequence[str | Path] | Sequence[Trajectory] | None = None,
    *,
    llm: str | Mapping[str, Any] | LLMSettings | AsyncOpenAI | None = None,
    n: int | None = None,
    config: str | Path | None = None,
    runs: str | Path = "runs",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Amplified:
    """Amplify seeds into n validated trajectories (Simia-SFT, https://arxiv.org/abs/2511.01824 §2.2).

    Every reply is stored before it is used, so that a run that was stopped or killed can be resumed
    (`simia runs resume`) without asking for anything twice.

    Args:
        seeds: Packs, files or data sets (`hf:OWNER/NAME`) of trajectories, or trajectories. None: those that the config names.
        llm: The model: its name at an OpenAI-compatible endpoint, `"embedded"` (a small model on this machine), an `llm:`
            section as a mapping (`{"kind": "openai", "model": "gpt-5-mini"}`) or as settings, or an `openai.AsyncOpenAI`, with
            the model's name in `settings` as `llm.model`. A client's key is never stored.
        n: Number of accepted trajectories to stop at. None: the config's.
        config: The config to start from, by name or path. None: `amplify/quickstart` for the embedded model, else
            `amplify/default`.
        runs: The folder in which the run's folder is created.
        name: The run's id. None: an id made from the time.
        settings: Any further setting by its dotted name, such as `{"limits.max_cost": 20}`; `simia config amplify`
            lists them.
        on_progress: Called with the current figures while the run works.

    Returns:
        The run's folder, the reason why it stopped, its figures, and its `trajectories()`.

    Raises:
        UserError: The caller must change something: a setting, a seed file, a key. Other failures, such as a failing
            endpoint, do not raise; the result's `stop` names them.

    Example:
        ```python
        made = await simia.amplify("my_seeds.jsonl", llm={"kind": "openai", "model": "gpt-5-mini"}, n=1000)
        print(made.run_id, made.stop.kind)
        for trajectory in made.trajectories(partial=True):
            print(trajectory.id, len(trajectory.messages))
        ```
    """
    if seeds is not None:
        require_type("seeds", seeds, str, Path, Sequence)
        if not isinstance(seeds, str | Path) and not seeds:
            raise UserError("seeds is empty: give a pack, a file or trajectories")
    section = read_llm(llm)
    base = config or ("amplify/default" if section.get("kind", "embedded") != "embedded" else "amplify/quickstart")
    data = read_config_file(base)
    if section:
        data["llm"] = merge_sections(data.get("llm", {}), section)
    apply_settings(data, settings)
    if n is not None:
        data["n"] = n
    given: list[Trajectory] | None = None
    if isinstance(seeds, str | Path):
        seeds = [seeds]
    if seeds is not None:
        given = [seed for seed in seeds if isinstance(seed, Trajectory)]
        if len(given) < len(seeds):
            assign_setting(data, ["seeds", "packs"], [str(seed) for seed in seeds])
            given = None
    parsed = parse_config(AmplifyConfig, data, where=str(base))
    attach_client(parsed.llm, llm)
    options: SessionOptions = {"say": terminal.say_error, "on_progress": on_progress}
    return await start_amplification(parsed, given=given, runs=Path(runs), name=name, **options)


async def start_amplification(
    config: AmplifyConfig,
    *,
    given: Sequence[Trajectory] | None = None,
    runs: Path = Path("runs"),
    name: str | None = None,
    **options: Unpack[SessionOptions],
) -> Amplified:
    """Start a run and work on it until n trajectories are accepted or it stops. `given`: seeds in memory, instead of the config's.

    Data sets of the hub are pinned to their current commit in the run's config, so that a resume reads the same rows.
    """
    if given is None:
        pinned = [formats.pin_hub_name(name) for name in config.seeds.packs]
        config = config.model_copy(update={"seeds": config.seeds.model_copy(update={"packs": pinned})})
    if name is not None and config.engine.kind != "local":  # else the workers would be started first
        refuse_taken(runs, name, config)
    for line in note_shared_batches(config.model_dump(mode="json")):
        options.get("say", terminal.say)(line)
    open_run: OpenRun = lambda facts: Run.create(runs, config, name=name, facts=facts)  # noqa: E731
    return await work_on_amplification(config, given, open_run, **options)


async def resume_amplification(
    run_id: str,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    **options: Unpack[SessionOptions],
) -> Amplified:
    """Continue a run. `changes` (by dotted name) may set operational settings only, such as n, limits and stop.

    Raises `UserError` for an n below the number of accepted trajectories, which would withdraw some of them.
    """
    with reopen_run(AmplifyConfig, runs, run_id, changes, say=options.get("say", terminal.say)) as (run, config):
        accepted = run.ledger.accepted_count()
        if "n" in (changes or {}) and config.n < accepted:
            raise UserError(f"--n {config.n} is below the {accepted} accepted; leave it out, or give a larger total")
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
        cluster = open_cluster(config.engine, say)
        if cluster is None:
            backends = open_models(config, say=say)
            judge_model = open_judge_backend(config, backends[0], say=say)
        else:
            stack.push_async_callback(cluster.close)
            models = await cluster.open_models(name_models(config))
            judge_model = models.pop(JUDGE, None)
            backends = list(models.values())
            judge_model = judge_model or (backends[0] if config.judge.enabled else None)
        own_judge = judge_model if judge_model is not backends[0] else None
        for backend in [*backends, own_judge] if own_judge is not None else backends:
            await backend.start()
            stack.push_async_callback(backend.close)
        writers = list_writers(backends, config.mix)
        recorded = find_recording(backends[0])
        facts = collect_facts(config, seeds, writers, recorded=recorded, judge=judge_model)
        run = stack.enter_context(contextlib.closing(open_run(facts)))
        if cluster is not None:
            stack.push_async_callback(cluster.disconnect)
            await cluster.connect(run)
        for line in describe_seeds(seeds, config.n, language=config.checks.language):
            say(line)
        try:
            seeds = await judge_seeds(run, config, seeds, backends[0])
        except SeedsPending as pending:
            stop = Stop("batch", str(pending))
            run.ledger.set_meta("stopped", {"kind": stop.kind, "detail": stop.detail})
            return Amplified(run.folder, stop, Progress(run.id, config.n))
        store_seeds(run, seeds)
        if config.prompt.hints and run.ledger.meta(NAMES) is None:
            run.ledger.set_meta(NAMES, describe_source())
        engines = make_engines(run, config, backends)
        judge = None
        if own_judge is not None:
            engines.append(Engine(own_judge, run.ledger, config.limits, find_price(config.judge.llm or config.llm)))
        if judge_model is not None:
            judge = AcceptanceJudge(config.judge, engines[0] if own_judge is None else engines[-1])
        for engine in engines:
            stack.callback(engine.gate.close)
        if cluster is not None:
            node_work = AmplificationNodeWork(config, seeds, writers, run.id, facts["prompts"], bool(recorded))
            await cluster.begin(dict(zip(name_models(config), engines, strict=True)), node_work)
        share_budget(engines, run.ledger.earlier_spending())
        work = AmplificationWork(
            run,
            config,
            seeds,
            ask_engines(engines),
            writers=writers,
            may_wait=not any(isinstance(each.backend, DeferredBackend) for each in engines),
            prompts=facts["prompts"] if recorded else None,
            find_plan=recorded.find_plan if recorded else None,
            judge=judge,
        )
        job = Coordinator(
            run,
            work,
            engines,
            work.progress,
            config.stop,
            on_progress=on_progress,
            produce=cluster.produce if cluster is not None else None,
        )
        with collect_rarely():
            stop = await coordinate(job, handle_signals=handle_signals, say=say)
        return Amplified(run.folder, stop, work.progress)


def open_judge_backend(
    config: AmplifyConfig, backend: ModelBackend, *, say: Callable[[str], None]
) -> ModelBackend | None:
    """Return the back end of the judge of acceptance, its own (not started) or the run's; None if there is no judge."""
    if not config.judge.enabled:
        return None
    return backend if config.judge.llm is None else open_backend(config.judge.llm, say=say)


def open_models(config: AmplifyConfig, *, say: Callable[[str], None]) -> list[ModelBackend]:
    """Return the back ends of the models that write trajectories, not started."""
    return [open_backend(llm, say=say) for llm in (config.llm, *(each.llm for each in config.mix))]


def make_engines(run: Run, config: AmplifyConfig, backends: Sequence[ModelBackend]) -> list[Engine]:
    """Return an engine for each model, with its price and its limits."""
    first, *others = backends
    engines = [Engine(first, run.ledger, config.limits, find_price(config.llm))]
    for backend, each in zip(others, config.mix, strict=True):
        engines.append(Engine(backend, run.ledger, each.share_limits(config.limits), find_price(each.llm)))
    return engines


def load_seeds(config: AmplifyConfig, given: Sequence[Trajectory] | None = None) -> Seeds:
    """Load the seeds that the config names; `given`: seeds held in memory, instead of these."""
    if given is not None:
        return take_seeds(given, config.seeds, config.checks)
    return load_seed_packs(config.seeds, config.checks)


def collect_facts(
    config: AmplifyConfig,
    seeds: Seeds,
    writers: Sequence[Writer],
    *,
    recorded: RecordedBackend | None = None,
    judge: ModelBackend | None = None,
) -> dict[str, Any]:
    """Return what identifies a run beyond its config: the models, and the contents of the seeds and prompts."""
    chosen = {choose_suite(config, seed) for seed in seeds.order}
    files = [config.prompt.system, config.prompt.request, "amplify/form_json.md", "amplify/form_tagged.md"]
    prompts = {name: read_prompt(name)[1] for name in [*files, *(file for suite in chosen for file in suite.files)]}
    if config.prompt.scenarios:
        prompts |= {name: read_prompt(name)[1] for name in (PERSONAS, TWISTS, WORDING)}
    if config.prefilter.enabled:
        prompts |= Rubric(config.prefilter).files
    if recorded:
        prompts = recorded.prompts
    if judge is not None:
        prompts = prompts | (of_judge.prompts if (of_judge := find_recording(judge)) else Rubric(config.judge).files)
    return {
        **describe_writers(writers),
        **({"judge": name_model(judge)} if judge else {}),
        "seeds": seeds.digest,
        "prompts": dict(sorted(prompts.items())),
    }


def name_model(backend: ModelBackend) -> dict[str, Any]:
    return {"model": backend.model, "alias": backend.alias, "structured": backend.structured}


def find_recording(backend: ModelBackend) -> RecordedBackend | None:
    """Return the back end if it sends recorded requests in place of newly rendered ones; else None."""
    return backend if isinstance(backend, RecordedBackend) and backend.matches_draws else None


def store_seeds(run: Run, seeds: Seeds) -> None:
    """Store the seeds with the run, for reports and data cards."""
    rows = [(seed.id, seed) for seed in seeds.order]
    run.ledger.set_seeds(rows)
    used = [
        {"id": id_, "task": seed.task_id, "pack": seed.pack, "licence": seed.provenance.licence} for id_, seed in rows
    ]
    refused = [{"name": r.name, "issues": [str(issue) for issue in r.issues]} for r in seeds.refused]
    run.ledger.set_meta("seeds", {"read": seeds.read, "used": used, "refused": refused})
    run.ledger.set_meta(IDENTIFIERS, {pack: each.paths for pack, each in seeds.identifiers.items()}, twice=True)


def open_preview(config: AmplifyConfig) -> tuple[Simulator, Seeds]:
    """Return everything but the model, for `--dry-run`."""
    seeds = load_seeds(config)
    writers = list_writers(open_models(config, say=lambda _: None), config.mix)
    return Simulator(config, seeds, writers=writers), seeds
