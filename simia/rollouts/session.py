"""One session of a rollout, from config to stop, for the command, the Python API and resumes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia.config import assign_setting, parse_config
from simia.envs.opening import PreparedEnvironment, prepare_environment
from simia.jobs import Run
from simia.jobs.coordinator import Coordinator, Stop, StopSettings, stop_on_signals
from simia.jobs.run import iterate_accepted, save_config
from simia.rollouts.job import RolloutWork
from simia.rollouts.progress import RolloutProgress
from simia.rollouts.settings import RolloutConfig
from simia.statistics import RolloutStatistics, summarize_rewards
from simia.trajectory import Trajectory, digest

OnProgress = Callable[[RolloutProgress], None]


@dataclass(slots=True)
class RolloutResult:
    """The result of a session: the run's folder, why it stopped, scores, and how many episodes were accepted."""

    folder: Path
    stop: Stop
    scores: RolloutStatistics
    """Mean reward, pass@k and pass^k over the episodes of all sessions, with intervals."""
    accepted: int

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def complete(self) -> bool:
        """Whether every planned episode was played to its end."""
        return self.stop.kind == "complete"

    @property
    def why(self) -> str:
        """Why it stopped, in words."""
        return self.stop.detail or self.stop.kind

    def trajectories(self, *, partial: bool = False) -> Iterator[Trajectory]:
        """The accepted trajectories of the run, in order.

        Raises `UserError` unless the run is complete; `partial`: take what there is.
        """
        return iterate_accepted(self.folder, partial=partial)


async def start_rollout(
    config: RolloutConfig,
    *,
    runs: Path = Path("runs"),
    name: str | None = None,
    say: Callable[[str], None] = print,
    on_progress: OnProgress | None = None,
    handle_signals: bool = False,
) -> RolloutResult:
    """Start a run and play every episode."""
    async with contextlib.AsyncExitStack() as stack:
        prepared = await prepare_environment(config, stack, say=say)
        run = Run.create(runs, config, name=name, facts=collect_rollout_facts(config, prepared))
        stack.callback(run.close)
        return await work_on_rollout(run, config, prepared, on_progress, handle_signals)


async def resume_rollout(
    run_id: str,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    say: Callable[[str], None] = print,
    on_progress: OnProgress | None = None,
    handle_signals: bool = False,
) -> RolloutResult:
    """Continue a run: finished episodes stay as they are. `changes` (dotted names) may touch operational settings."""
    run = Run.open(runs, run_id)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(run.close)
        if run.found is not None and run.found.findings:
            say(f"note: {run.found}")
        data = run.saved_config()
        for dotted, value in (changes or {}).items():
            assign_setting(data, dotted.split("."), value)
        config = parse_config(RolloutConfig, data, where=f"run {run.id}")
        prepared = await prepare_environment(config, stack, say=say)
        run.refuse_other_identity(config, collect_rollout_facts(config, prepared))
        save_config(run.folder, config)
        return await work_on_rollout(run, config, prepared, on_progress, handle_signals)


def collect_rollout_facts(config: RolloutConfig, prepared: PreparedEnvironment) -> dict[str, Any]:
    """Return what identifies a run beyond its config: the models that were found, the pack's contents."""
    pack, tasks, models = prepared.pack, prepared.tasks, prepared.models
    backend = models.model("agent")
    described = [
        pack.policy,
        [tool.model_dump() for tool in pack.tools],
        [task.model_dump(mode="json") for task in tasks],
    ]
    return {
        "model": backend.model if backend else config.agent,
        "alias": backend.alias if backend else "none",
        "pack": pack.name,
        "contents": digest(described),
        "planned": len(tasks) * config.group,
        **({"cast": models.facts} if models.facts else {}),
    }


async def work_on_rollout(
    run: Run,
    config: RolloutConfig,
    prepared: PreparedEnvironment,
    on_progress: OnProgress | None,
    handle_signals: bool,
) -> RolloutResult:
    """Play what is left of a run."""
    spent, attempts = run.ledger.spent()
    answered = run.ledger.answered_count()
    models = prepared.models
    environment = prepared.connect(run.ledger, before=spent, sent=sum(attempts.values()), answered=answered)
    work = RolloutWork(run, config, environment, prepared.tasks, models.engine("agent"))
    try:
        job = Coordinator(
            run,
            work,
            models.engines,
            work.progress,
            StopSettings(min_yield=0),
            concurrency=config.concurrency,
            decide_past_gaps=True,
            on_progress=lambda _: on_progress(work.progress) if on_progress else None,
        )
        with stop_on_signals(job) if handle_signals else contextlib.nullcontext():
            stop = await job.run()
    finally:
        models.close()
    return RolloutResult(run.folder, stop, summarize_rewards(work.progress.rewards), run.ledger.accepted_count())
