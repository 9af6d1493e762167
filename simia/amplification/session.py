"""Amplify seeds from config to stop: `simia.amplify`, the session of a new run, and the session of a resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from simia import terminal
from simia.amplification.job import AmplificationWork, ask_engine
from simia.amplification.plan_lines import PERSONAS, TWISTS, WORDING
from simia.amplification.seeds import Seeds, judge_seeds, load_seed_packs, take_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator, choose_suite
from simia.config import apply_settings, assign_setting, merge_sections, parse_config, read_config_file
from simia.errors import UserError, require_type
from simia.garbage_collection import collect_rarely
from simia.jobs import Run
from simia.jobs.coordinator import Coordinator
from simia.jobs.progress import Progress
from simia.jobs.run_session import OpenRun, SessionOptions, SessionResult, continue_run, coordinate, reopen_run
from simia.llm.backends import LLMSettings, attach_client, find_price, open_backend, read_llm
from simia.llm.budget import share_budget
from simia.llm.engine import Engine
from simia.llm.types import DeferredBackend, ModelBackend
from simia.prompts import read_prompt
from simia.quality.judging.rubric import Rubric
from simia.trajectory import Trajectory

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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
        seeds: Packs or files of trajectories by name or path, or trajectories. None: those that the config names.
        llm: The model: its name at an OpenAI-compatible endpoint, `"embedded"` (a small model on this machine), an `llm:`
            section as a mapping (`{"kind": "openai", "model": "gpt-5-mini"}`) or as settings, or an `openai.AsyncOpenAI`, with
            the model's name in `settings` as `llm.model`. A client's key is kept nowhere.
        n: How many accepted trajectories to stop at. None: as the config says.
        config: The config to start from, by name or path. None: `amplify/quickstart` for the embedded model, else
            `amplify/default`.
        runs: The folder in which the run's folder is made.
        name: The run's id. None: one is made up from the time.
        settings: Any further setting by its dotted name, such as `{"limits.max_cost": 20}`; `simia config amplify`
            lists them.
        on_progress: Is called with the present figures while the run works.

    Returns:
        The run's folder, the reason why it stopped, its figures, and its `trajectories()`.

    Raises:
        UserError: Something must be changed by the caller: a setting, a seed file, a key. Everything else, such as an
            endpoint that fails, is no exception but the reason in `stop`.

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
    return await start_amplification(parsed, given=given, runs=Path(runs), name=name, on_progress=on_progress)


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
        prompts |= {name: read_prompt(name)[1] for name in (PERSONAS, TWISTS, WORDING)}
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
