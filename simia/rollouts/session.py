"""Run a rollout: `simia.rollout`, the session of a new run, and the session of a resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from simia import search_path, terminal
from simia.config import apply_settings, merge_sections, parse_config, read_config_file
from simia.envs.opening import PreparedEnvironment, prepare_environment
from simia.envs.play.function_agent import load_agent_function
from simia.envs.play.solution_lengths import SCRIPTED, note_long_solutions
from simia.errors import UserError, require_type
from simia.jobs import Run
from simia.jobs.coordinator import Coordinator, StopSettings
from simia.jobs.nodes.ray_launcher import open_cluster
from simia.jobs.run import refuse_taken
from simia.jobs.run_session import OpenRun, SessionOptions, SessionResult, continue_run, coordinate, reopen_run
from simia.llm.budget import share_budget
from simia.rollouts.contents import hash_contents, hash_shown, hash_worlds
from simia.rollouts.job import RolloutProgress, RolloutWork
from simia.rollouts.node_work import RolloutNodeWork, runs_code
from simia.rollouts.settings import RolloutConfig
from simia.statistics import RolloutStatistics, summarize_rewards

OnProgress = Callable[[RolloutProgress], None]


@dataclass(slots=True)
class RolloutResult(SessionResult):
    """The result of a rollout: the run's folder, the reason why it stopped, scores, and the number of accepted episodes without duplicates."""

    scores: RolloutStatistics
    """Mean reward, pass@k and pass^k over the episodes of all sessions, with intervals."""
    accepted: int

    @property
    def complete(self) -> bool:
        """Whether every planned episode was played to its end."""
        return self.stop.kind == "complete"

    @property
    def why(self) -> str:
        """Why it stopped, in words."""
        return self.stop.detail or self.stop.kind


async def rollout(
    config: RolloutConfig | Mapping[str, Any] | str | Path,
    *,
    runs: str | Path = "runs",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> RolloutResult:
    """Play every task of a pack with an agent, and keep the trajectories with their rewards in a run.

    Args:
        config: a `RolloutConfig`, a mapping with the values that differ from `rollout/default`, or the name or path of a config.
        runs: folder of the runs.
        name: name of the run; made from the time when left out.
        settings: any further setting by its dotted name.
        on_progress: called with the run's `RolloutProgress` after each change.

    Returns:
        The run's folder, why it stopped, scores with intervals, and the accepted trajectories.

    Raises:
        UserError: the caller must change something; any other reason to stop is in the result's `stop`.
    """
    resolved = resolve_config(config, settings)
    return await start_rollout(resolved, runs=Path(runs), name=name, on_progress=on_progress)


def resolve_config(
    config: RolloutConfig | Mapping[str, Any] | str | Path, settings: Mapping[str, Any] | None
) -> RolloutConfig:
    """Return the config with `settings` applied. Raises `UserError` for an invalid config, `TypeError` for an argument of another type."""
    require_type("config", config, RolloutConfig, Mapping, str, Path)
    where = "config"
    if isinstance(config, RolloutConfig):
        data = config.model_dump(mode="json")
    elif isinstance(config, Mapping):
        data = merge_sections(read_config_file("rollout/default"), dict(config))
    else:
        data, where = read_rollout_config(config), str(config)
    return parse_config(RolloutConfig, apply_settings(data, settings), where=where)


def read_rollout_config(name: str | Path) -> dict[str, Any]:
    """Read a config by name or path. Raises `UserError`, which says how to play a pack where `name` is one."""
    try:
        return read_config_file(name)
    except UserError:
        is_pack = (Path(name) / "pack.yaml").is_file() or str(name) in search_path.list_names("seeds")
        if is_pack:
            raise UserError(f"{str(name)!r} is a pack, not a config: rollout({{'pack': {str(name)!r}}})") from None
        raise


async def start_rollout(
    config: RolloutConfig, *, runs: Path = Path("runs"), name: str | None = None, **options: Unpack[SessionOptions]
) -> RolloutResult:
    """Start a run and play every episode."""
    if name is not None and config.engine.kind != "local":  # else the workers would be started first
        refuse_taken(runs, name, config)
    return await work_on_rollout(config, lambda facts: Run.create(runs, config, name=name, facts=facts), **options)


async def resume_rollout(
    run_id: str,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    **options: Unpack[SessionOptions],
) -> RolloutResult:
    """Continue a run. Finished episodes are kept. `changes` (by dotted name) may set operational settings only."""
    with reopen_run(RolloutConfig, runs, run_id, changes, say=options.get("say", terminal.say)) as (run, config):
        return await work_on_rollout(config, partial(continue_run, run, config), **options)


async def work_on_rollout(
    config: RolloutConfig,
    open_run: OpenRun,
    *,
    say: Callable[[str], None] = terminal.say,
    on_progress: Callable[[Any], None] | None = None,
    handle_signals: bool = False,
) -> RolloutResult:
    """Prepare the environment, open the run, and play the remaining episodes."""
    if config.agent_function is not None:
        load_agent_function(config.agent_function)  # a wrong name is reported before a run is made
    async with contextlib.AsyncExitStack() as stack:
        cluster = open_cluster(config.engine, say, needs_sandbox=runs_code(config))
        if cluster is not None:
            stack.push_async_callback(cluster.close)
        prepared = await prepare_environment(config, stack, elsewhere=cluster, say=say)
        if config.agent in SCRIPTED and (
            note := note_long_solutions(prepared.tasks, config.episode, prepared.pack.limits)
        ):
            say(note)
        facts = collect_rollout_facts(config, prepared)
        run = stack.enter_context(contextlib.closing(open_run(facts)))
        models = prepared.models
        environment = prepared.connect(run.ledger)
        stack.callback(models.close)
        if cluster is not None:
            stack.push_async_callback(cluster.disconnect)
            await cluster.connect(run)
            await cluster.begin(
                models.engines_by_name, RolloutNodeWork(config, run.id, facts["contents"], facts["world"])
            )
        share_budget(models.engines, run.ledger.earlier_spending())
        work = RolloutWork(run, config, environment, prepared.tasks, models.engine("agent"))
        job = Coordinator(
            run,
            work,
            models.engines,
            work.progress,
            StopSettings(min_yield=0),
            concurrency=models.limit_episodes(config.concurrency) if cluster is None else config.concurrency,
            decide_past_gaps=True,
            on_progress=on_progress,
            produce=cluster.produce if cluster is not None else None,
        )
        stop = await coordinate(job, handle_signals=handle_signals, say=say)
        scores = summarize_rewards(work.progress.rewards, work.progress.scenarios)
        return RolloutResult(run.folder, stop, scores, run.ledger.accepted_count())


def collect_rollout_facts(config: RolloutConfig, prepared: PreparedEnvironment) -> dict[str, Any]:
    """Return what identifies a run beyond its config: the models that were found, the pack's contents."""
    pack, tasks, models = prepared.pack, prepared.tasks, prepared.models
    backend = models.model("agent")
    return {
        "model": backend.model if backend else config.agent_name,
        "alias": backend.alias if backend else "none",
        "pack": pack.name,
        "contents": hash_contents(pack, tasks),
        "shown": hash_shown(pack, tasks),
        "world": hash_worlds(pack),
        "planned": len(tasks) * config.group,
        **({"cast": models.facts} if models.facts else {}),
    }
