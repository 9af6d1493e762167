"""The work of a rollout: every sample of every task is an item, and its result is an episode, stored as a trajectory with a reward.

A killed rollout can be resumed: finished episodes are kept. An interrupted one is played again from the stored replies (its samples
are named by item and turn, the environment is deterministic) until it reaches a request that was not sent yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simia.envs.environment import Environment, Episode
from simia.envs.play.agent import Agent
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.function_agent import FunctionAgent, load_agent_function
from simia.envs.play.llm_agent import LLMAgent
from simia.envs.play.player import play
from simia.errors import WAITING, Aborted, Code, UserError
from simia.jobs import FAILED, PASSED, REJECTED, Item, Ledger, Run
from simia.jobs.coordinator import PASSING, Stop, StopSettings, Verdict
from simia.jobs.progress import Progress
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import REFUSALS
from simia.quality.exact_duplicates import hash_content
from simia.reward import Reward
from simia.rollouts.settings import RolloutConfig
from simia.task import Task
from simia.trajectory import Trajectory, digest

OUTAGE = StopSettings().outage


@dataclass(slots=True)
class RolloutProgress(Progress):
    """The figures of a running rollout: those of every job, and rewards."""

    rewards: defaultdict[str, list[float | None]] = field(default_factory=lambda: defaultdict(list))
    """Task id → rewards of its finished episodes; None for one without a reward."""
    scenarios: dict[str, str] = field(default_factory=dict)
    """Task id → its scenario, for tasks that have one."""

    def add(self, task: str, reward: float | None, extra: Mapping[str, Any]) -> None:
        """Add a finished episode. `extra`: that of its trajectory."""
        self.rewards[task].append(reward)
        if scenario := extra.get("scenario"):
            self.scenarios[task] = scenario

    @property
    def done(self) -> int:
        """Finished episodes."""
        return sum(map(len, self.rewards.values()))

    @property
    def mean(self) -> float | None:
        """Mean reward of the scored episodes; None before the first."""
        known = [reward for values in self.rewards.values() for reward in values if reward is not None]
        return sum(known) / len(known) if known else None


class EpisodePlayer:
    """Plays the episodes of items: in the job's process, or on a node."""

    def __init__(
        self,
        run_id: str,
        config: RolloutConfig,
        environment: Environment,
        tasks: list[Task],
        engine: Engine | None,
        has_failed: Callable[[], bool] = lambda: False,
    ) -> None:
        """`engine`: the engine of the agent's model; None if the agent is no model. `has_failed`: whether the run can no longer be written."""
        self._run_id, self._config, self._environment, self._engine = run_id, config, environment, engine
        self._has_failed = has_failed
        self._function = load_agent_function(config.agent_function) if config.agent_function else None
        self.samples = [(task, sample) for task in tasks for sample in range(config.group)]

    async def produce(self, item: Item) -> Trajectory:
        config, (task, sample) = self._config, self.samples[item.ord]
        agent: Agent
        if self._engine:
            agent = LLMAgent(self._engine, config.sampling, item=item.id)
        elif self._function is not None:
            agent = FunctionAgent(config.agent_name, self._function)
        else:
            agent = AGENTS[config.agent](task, sample)
        try:
            try:
                episode = await self._environment.reset(task, seed=config.seed, group=task.id, name=item.id)
            except UserError as error:  # other episodes can still be played
                episode = self.abort(task, Code.NO_START, str(error))
            trajectory = await play(episode, agent)
        except BudgetReached:
            raise
        except Exception as error:  # a bug aborts this episode, which records it, not the run
            if self._has_failed():
                raise
            trajectory = self.abort(task, Code.INTERNAL, f"{type(error).__name__}: {error}"[:300]).trajectory
        model = self._engine.backend.model if self._engine else config.agent_name
        keys = agent.reply_keys if isinstance(agent, LLMAgent) else []
        about = {"run": self._run_id, "item": item.id, "model": model, "reply_keys": keys}
        return trajectory.model_copy(update={"provenance": trajectory.provenance.model_copy(update=about)})

    def abort(self, task: Task, code: Code, detail: str) -> Episode:
        return Episode.aborted(self._environment, task, self._config.seed, Aborted(code, detail))


class RolloutWork:
    """The work of one session: plays the planned episodes and scores them."""

    def __init__(
        self, run: Run, config: RolloutConfig, environment: Environment, tasks: list[Task], engine: Engine | None
    ) -> None:
        """`engine`: the engine of the agent's model; None if the agent is no model."""
        self._run, self._config = run, config
        self._player = EpisodePlayer(run.id, config, environment, tasks, engine, lambda: run.failure is not None)
        self._samples = self._player.samples
        self.progress = RolloutProgress(run.id, len(self._samples))
        self._stop: Stop | None = None
        self._lost_in_a_row = 0  # episodes that an endpoint failed on
        self._seen: set[str] = set()
        self._missing: Counter[str] = Counter()  # failed episodes, by reason
        self._settled = 0

    def wants(self, ord_: int, in_flight: int) -> bool:
        return ord_ < len(self._samples)

    def plan(self, ord_: int) -> Item:
        task, sample = self._samples[ord_]
        return Item(f"{task.id}.{sample}", ord_, {"task": task.id, "draw": sample})

    def restore(self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None) -> str | None:
        if item.status not in (PASSED, REJECTED):
            return None
        row = (self._run.ledger.result(item.id) or {}).get("trajectory") or {}
        self.progress.add(item.spec["task"], row.get("reward", {}).get("value"), row.get("extra") or {})
        return content_hash or ""

    async def produce(self, item: Item) -> Trajectory:
        return await self._player.produce(item)

    def conclude(self, item: Item, result: Trajectory) -> str:
        task, _ = self._samples[item.ord]
        try:
            return self._conclude(item, task, result)
        except (TypeError, ValueError, RecursionError) as error:  # a record that cannot be written: the others go on
            if self._run.failure is not None:
                raise
            detail = f"task {task.id}: the record cannot be written: {type(error).__name__}: {error}"[:300]
            aborted = self._player.abort(task, Code.INTERNAL, detail).trajectory
            return self._conclude(item, task, aborted.model_copy(update={"provenance": result.provenance}))

    def _conclude(self, item: Item, task: Task, trajectory: Trajectory) -> str:
        decide_status(item, trajectory, self._config.accept)
        if item.reason is Code.BUDGET:
            self._stop = Stop("budget", item.detail or item.reason.meaning)
        lost = item.status == FAILED and item.reason in PASSING | REFUSALS
        self._lost_in_a_row = self._lost_in_a_row + 1 if lost else 0
        if self._lost_in_a_row >= OUTAGE:
            self._stop = Stop("endpoint", f"{OUTAGE} episodes in a row were aborted, the last one with {item.detail}")
        hashed = store_episode(self._run.ledger, item, trajectory)
        self.progress.add(task.id, (trajectory.reward or Reward()).value, trajectory.extra)
        return hashed

    def decide(self, item: Item, outcome: str | None) -> Verdict:
        """Accept the first of equal conversations."""
        self._settled += item.status != FAILED
        if item.status == FAILED:
            named = f"{item.reason}: " if item.reason == Code.CHECK_TIMEOUT else ""
            self._missing[f"{named}{item.detail or item.reason or ''}"] += 1
        if item.status != PASSED or not outcome:
            return "rejected"
        if outcome in self._seen:
            return "surplus"
        self._seen.add(outcome)
        self._run.ledger.accept(item, outcome)
        return "accepted"

    def find_stop(self) -> Stop | None:
        return self._stop

    def explain_end(self) -> Stop:
        left = len(self._samples) - self._settled
        if not left:
            return Stop("complete")
        worst = self._missing.most_common(1)
        return Stop("aborted", f"{left} aborted, mostly: {worst[0][0]}" if worst else f"{left} not played")


def decide_status(item: Item, trajectory: Trajectory, accept: float) -> None:
    """Set an item's status and reason by the reward of its episode. `accept`: the lowest reward of an accepted episode."""
    reward = trajectory.reward or Reward()
    if (waiting := find_waiting_call(trajectory)) is not None:
        item.status, item.reason, item.detail = FAILED, Code(waiting.partition(":")[0]), waiting[:300]
    elif reward.value is None:
        item.reason, item.detail = reward.error or Code.UNSCORED, reward.rationale[:300]
        item.status = REJECTED if is_settled(trajectory, Code(item.reason)) else FAILED
    elif reward.value >= accept:
        item.status, item.reason, item.detail = PASSED, None, None
    else:
        item.status, item.reason, item.detail = (
            REJECTED,
            Code.LOW_REWARD,
            f"reward {reward.value:g}, asked for {accept:g}",
        )


def find_waiting_call(trajectory: Trajectory) -> str | None:
    """Return why a simulator's answer is still missing in the comparison of a shadow world, as code and words; None: none is missing. A resume
    plays such an episode again, since this comparison is the purpose of a shadow world."""
    rows = (trajectory.evidence or {}).get("differences", [])
    lost = (str(row["lost"]) for row in rows if "lost" in row)
    return next((each for each in lost if each.startswith(tuple(f"{code}:" for code in WAITING))), None)


def store_episode(ledger: Ledger, item: Item, trajectory: Trajectory) -> str:
    """Store an episode as its item's result, and return the hash of its conversation."""
    row = trajectory.to_row()
    head: dict[str, Any] = {name: row.pop(name) for name in ("system", "tools", "user_tools") if name in row}
    issues = [issue.model_dump(mode="json") for issue in trajectory.issues]
    body = {"trajectory": row, "head": ledger.head(digest(head), lambda: head), "issues": issues}
    hashed = hash_content(trajectory)
    ledger.conclude(item, hashed, body, tools=sorted({call.name for _, _, call in trajectory.calls()}))
    return hashed


def is_settled(trajectory: Trajectory, code: Code) -> bool:
    """Check whether an episode without a reward is final. After a failure of infrastructure, of the judge, or of a check that ran out of
    time, it is not: a resume plays the episode again."""
    if code is Code.UNSCORED:
        return not any(issue.where == "score" for issue in trajectory.issues)  # else the evidence was lost, not missing
    return code in (Code.UNPARSABLE, Code.USER_FAILED, Code.NO_START)
