"""A rollout as a run: every episode an item, every reply of the agent's model stored, every trajectory a result.

A killed rollout goes on where it was: finished episodes stay, an interrupted one is played again from the stored replies
(their draws are named by item and turn, the world is deterministic) until it reaches what was not asked yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.config import assign, parse
from simia.envs.environment import Environment, Episode
from simia.envs.opening import PreparedEnvironment, prepare_environment
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import AGENTS
from simia.envs.play.llm_agent import LLMAgent
from simia.envs.play.player import play
from simia.envs.role_models import RoleModels
from simia.errors import Aborted, Code, UserError
from simia.jobs import FAILED, OPEN, PASSED, REJECTED, Item, Run
from simia.jobs.run import save_config
from simia.llm.engine import BudgetReached
from simia.llm.types import Deferred
from simia.quality.exact_duplicates import content_hash
from simia.rollouts.settings import RolloutConfig
from simia.statistics import Scores, figures
from simia.task import Task
from simia.trajectory import Trajectory, digest

GRACE = 5.0  # seconds for episodes under way after a stop


@dataclass(slots=True)
class Progress:
    """What a live line shows."""

    run_id: str
    planned: int
    done: int = 0
    aborted: int = 0
    rewards: dict[str, list[float | None]] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        known = [r for values in self.rewards.values() for r in values if r is not None]
        return sum(known) / len(known) if known else None


@dataclass(slots=True)
class RolledOut:
    """What a session leaves."""

    folder: Path
    complete: bool
    why: str
    scores: Scores
    accepted: int


OnProgress = Callable[[Progress], None]


async def rollout(
    config: RolloutConfig,
    *,
    runs: Path = Path("runs"),
    name: str | None = None,
    say: Callable[[str], None] = print,
    on_progress: OnProgress | None = None,
    handle_signals: bool = False,
) -> RolledOut:
    """Start a run and play every episode."""
    async with contextlib.AsyncExitStack() as stack:
        prepared = await prepare_environment(config, stack, say=say)
        run = Run.create(runs, config, name=name, facts=facts_of(config, prepared))
        stack.callback(run.close)
        return await work(run, config, prepared, on_progress, handle_signals)


async def resume(
    run_id: str,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    say: Callable[[str], None] = print,
    on_progress: OnProgress | None = None,
    handle_signals: bool = False,
) -> RolledOut:
    """Go on with a run: episodes that are finished stay as they are. `changes` (dotted names) may touch what is operational."""
    run = Run.open(runs, run_id)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(run.close)
        if run.found is not None and run.found.findings:
            say(f"note: {run.found}")
        data = run.saved_config()
        for dotted, value in (changes or {}).items():
            assign(data, dotted.split("."), value)
        config = parse(RolloutConfig, data, where=f"run {run.id}")
        prepared = await prepare_environment(config, stack, say=say)
        run.refuse_other_identity(config, facts_of(config, prepared))
        save_config(run.folder, config)
        return await work(run, config, prepared, on_progress, handle_signals)


def facts_of(config: RolloutConfig, prepared: PreparedEnvironment) -> dict[str, Any]:
    """Identity beyond the config's words: the models that were found, the pack's contents."""
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


async def work(
    run: Run,
    config: RolloutConfig,
    prepared: PreparedEnvironment,
    on_progress: OnProgress | None,
    handle_signals: bool,
) -> RolledOut:
    spent, attempts = run.ledger.spent()
    answered = run.ledger.answered_count()
    models = prepared.models
    environment = prepared.connect(run.ledger, before=spent, sent=sum(attempts.values()), answered=answered)
    try:
        job = Job(run, config, environment, models, on_progress)
        with interruptible(job) if handle_signals else contextlib.nullcontext():
            return await job.run()
    finally:
        models.close()


class Job:
    """One session of work on a rollout's run."""

    def __init__(
        self,
        run: Run,
        config: RolloutConfig,
        environment: Environment,
        models: RoleModels,
        on_progress: OnProgress | None,
    ) -> None:
        self._run, self._config, self._environment, self._models = run, config, environment, models
        self._engine = models.engine("agent")
        self._tasks = environment.tasks
        self._stopped: str | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._on_progress = on_progress or (lambda _: None)
        self.progress = Progress(run.id, len(self._tasks) * config.group)
        self._seen: set[str] = set()

    def stop(self, why: str) -> None:
        """Launch nothing more."""
        self._stopped = self._stopped or why
        for engine in self._models.engines:
            engine.gate.shut()
        self._wake.set()

    async def run(self) -> RolledOut:
        ledger = self._run.ledger
        ledger.set_meta("stopped", None)
        left = self._plan()
        try:
            while (left or self._working) and self._run.failure is None:
                while left and self._stopped is None and len(self._working) < self._config.concurrency:
                    item, task = left.pop(0)
                    working = asyncio.create_task(self._episode(item, task))
                    self._working.add(working)
                    working.add_done_callback(self._done)
                if self._stopped is not None:
                    await self._drain()
                    break
                self._wake.clear()
                if self._working:
                    await self._wake.wait()
        finally:
            for working in self._working:
                working.cancel()
            await asyncio.gather(*self._working, return_exceptions=True)
        if self._run.failure is not None:
            raise UserError(
                f"the run's disk refused a write: {self._run.failure}; free it, then: simia runs resume {self._run.id}"
            )
        ledger.flush()
        self._accept()
        left_over = ledger.counts().get(OPEN, 0) + ledger.counts().get(FAILED, 0)
        complete = self._stopped is None and left_over == 0
        why = "complete" if complete else self._stopped or self._waiting() or self._lost(left_over)
        scores = figures(self.progress.rewards)
        ledger.set_meta(
            "stopped",
            {"kind": "complete" if complete else "interrupted" if self._stopped else "aborted", "detail": why},
        )
        return RolledOut(self._run.folder, complete, why, scores, ledger.accepted_count())

    def _lost(self, count: int) -> str:
        """What most of the aborted episodes were aborted for."""
        reasons = Counter(item.detail or item.reason for item in self._run.ledger.items() if item.status == FAILED)
        return f"{count} aborted, mostly: {reasons.most_common(1)[0][0]}" if reasons else f"{count} not played"

    def _waiting(self) -> str | None:
        """A batch's answers come after the session."""
        for engine in self._models.engines:
            backend: object = engine.backend
            if isinstance(backend, Deferred) and backend.pending:
                return f"{backend.pending:,} questions wait in {backend.place}"
        return None

    def _plan(self) -> list[tuple[Item, Task]]:
        ledger = self._run.ledger
        known = {item.id: item for item in ledger.items()}
        left = []
        for ord_, (task, draw) in enumerate((task, draw) for task in self._tasks for draw in range(self._config.group)):
            item_id = f"{task.id}.{draw}"
            item = known.get(item_id)
            if item is None:
                item = Item(item_id, ord_, {"task": task.id, "draw": draw})
                ledger.plan(item)
            if item.status in (PASSED, REJECTED):
                body = ledger.result(item.id)
                reward = body["trajectory"].get("reward", {}).get("value") if body and body["trajectory"] else None
                self._count(task.id, reward)
            else:
                item.status, item.reason, item.detail = OPEN, None, None
                left.append((item, task))
        return left

    def _count(self, task: str, reward: float | None) -> None:
        self.progress.done += 1
        self.progress.aborted += reward is None
        self.progress.rewards.setdefault(task, []).append(reward)
        self._on_progress(self.progress)

    def _done(self, working: asyncio.Task[None]) -> None:
        self._working.discard(working)
        self._wake.set()
        if not working.cancelled() and (error := working.exception()) is not None:
            self.stop(str(error))

    async def _drain(self) -> None:
        if self._working:
            await asyncio.wait(self._working, timeout=GRACE)

    async def _episode(self, item: Item, task: Task) -> None:
        config = self._config
        agent = self._agent(item, task)
        try:
            try:
                episode = await self._environment.reset(task, seed=config.seed, group=task.id, name=item.id)
            except UserError as error:  # the others can be played all the same
                episode = Episode.aborted(self._environment, task, config.seed, Aborted(Code.NO_START, str(error)))
            trajectory = await play(episode, agent)
        except BudgetReached as error:
            self.stop(str(error))
            return
        except Exception as error:  # a fault of ours on this record: the others go on, and this one says so
            if self._run.failure is not None:
                raise
            detail = f"{type(error).__name__}: {error}"[:300]
            trajectory = Episode.aborted(
                self._environment, task, config.seed, Aborted(Code.INTERNAL, detail)
            ).trajectory
        keys = agent.reply_keys if isinstance(agent, LLMAgent) else []
        provenance = trajectory.provenance.model_copy(
            update={
                "run": self._run.id,
                "item": item.id,
                "model": self._engine.backend.model if self._engine else config.agent,
                "reply_keys": keys,
            }
        )
        trajectory = trajectory.model_copy(update={"provenance": provenance})
        try:
            self._conclude(item, task, trajectory)
        except (TypeError, ValueError, RecursionError) as error:  # a record that cannot be written: the others go on
            if self._run.failure is not None:
                raise
            detail = f"task {task.id}: the record cannot be written: {type(error).__name__}: {error}"[:300]
            lost = Episode.aborted(self._environment, task, config.seed, Aborted(Code.INTERNAL, detail)).trajectory
            self._conclude(item, task, lost.model_copy(update={"provenance": provenance}))

    def _agent(self, item: Item, task: Task) -> Agent:
        config = self._config
        if config.agent == "llm":
            assert self._engine is not None
            return LLMAgent(self._engine, config.sampling, item=item.id)
        made: Agent = AGENTS[config.agent](task, int(item.spec["draw"]))
        return made

    def _conclude(self, item: Item, task: Task, trajectory: Trajectory) -> None:
        reward = trajectory.reward
        value = reward.value if reward else None
        if value is None:
            code = (reward.error if reward else None) or Code.UNSCORED
            item.status = REJECTED if settled(trajectory, code) else FAILED
            item.reason, item.detail = code, reward.rationale[:300] if reward else ""
            if code is Code.BUDGET:
                self.stop(item.detail or code.meaning)
        elif value >= self._config.accept:
            item.status = PASSED
        else:
            item.status, item.reason, item.detail = REJECTED, Code.LOW_REWARD, f"{value:g}"
        ledger = self._run.ledger
        row = trajectory.to_row()
        head: dict[str, Any] = {name: row.pop(name) for name in ("system", "tools", "user_tools") if name in row}
        body = {
            "trajectory": row,
            "head": ledger.head(digest(head), lambda: head),
            "issues": [issue.model_dump(mode="json") for issue in trajectory.issues],
        }
        names = sorted({call.name for _, _, call in trajectory.calls()})
        ledger.conclude(item, content_hash(trajectory), body, tools=names)
        self._count(task.id, value)

    def _accept(self) -> None:
        """In ord order, so that of equal conversations the same one counts however the episodes were timed."""
        ledger = self._run.ledger
        seen: set[str] = set()
        with ledger.db.transaction():
            ledger.clear_acceptances()
            for item, hashed, _, _ in ledger.outcomes():
                if item.status == PASSED and hashed is not None and hashed not in seen:
                    seen.add(hashed)
                    ledger.accept(item, hashed)


def settled(trajectory: Trajectory, code: Code) -> bool:
    """Whether an episode without a value stays without one. Infrastructure, the judge's too, is asked again by a resume, where stored
    replies cost nothing. What these replies say, how a task begins and what rules miss in the record would be the same again."""
    if code is Code.UNSCORED:
        return not any(issue.where == "score" for issue in trajectory.issues)  # else the evidence was lost, not missing
    return code in (Code.UNPARSABLE, Code.USER_FAILED, Code.NO_START)


@contextlib.contextmanager
def interruptible(job: Job) -> Iterator[None]:
    """Ctrl-C: launch nothing more, wait shortly for what is under way."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, job.stop, "interrupted")
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
