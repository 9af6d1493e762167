"""Score the stored episodes of a rollout again by the current rules and tasks, at no cost (`simia runs recheck`).

Rewards are computed from the record: messages, ending and evidence of the final state. Verdicts of a judging model are recalled from the
run's replies. The conversations do not change. The ledger changes in one transaction.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from simia.envs.opening import BACKENDS, list_packs, load_tasks, make_backend
from simia.envs.remote.remote_pack import list_addresses
from simia.envs.rewards.composed_scorer import ComposedScorer
from simia.envs.role_models import judges_by_model
from simia.envs.scoring import check_reward_settings, make_scorer
from simia.envs.several_packs import CombinedPack
from simia.errors import Code, UserError
from simia.jobs import PASSED, REJECTED, Item, Ledger, Run
from simia.jobs.run_session import reopen_run
from simia.llm.backends import open_backend
from simia.llm.engine import Engine
from simia.llm.types import LLMFault, ModelBackend, Reply, Request
from simia.pack import Pack
from simia.rollouts.contents import hash_contents, hash_shown
from simia.rollouts.job import decide_status, store_episode
from simia.rollouts.settings import RolloutConfig
from simia.scorer import Scorer
from simia.statistics import SUCCESS
from simia.task import Task
from simia.trajectory import Trajectory

RESCORED = "rescored"
"""Key in the ledger's meta table: hash of the packs and tasks by which the rewards were computed."""


@dataclass(slots=True)
class Rescored:
    """What a recheck changed."""

    run: str
    """The run."""
    figures: dict[str, tuple[int, int]]
    """Scored, solved and accepted episodes, equal ones included: before and after."""
    changed: list[str] = field(default_factory=list)
    """Episodes whose reward changed, in the order of the plan."""
    kept: Counter[str] = field(default_factory=Counter)
    """Why episodes keep their reward → number of them."""


class StoredVerdicts:
    """The replies of a judge in a run's store, with the interface of an engine. A verdict is found by its key or its sample."""

    def __init__(self, ledger: Ledger, backend: ModelBackend) -> None:
        self.backend = backend
        self._ledger, self._keys = ledger, ledger.find_keys_by_draw()

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the stored reply. Raises `LLMFault`."""
        known = (self._ledger.recall(each) for each in (key, self._keys.get(draw)) if each is not None)
        reply = next((each for each in known if each is not None), None)
        if reply is None:
            raise LLMFault(Code.REPLAY_MISS, draw, retry=False)
        return reply


def recheck_rollout(runs: Path, name: str, say: Callable[[str], None]) -> Rescored:
    """Score every finished episode of a run again. Raises `UserError`; then nothing has changed."""
    with reopen_run(RolloutConfig, runs, name, say=say) as (run, config):
        if config.reward_function is not None:
            raise UserError(
                f"run {run.id} was scored by {config.reward_function}, which may read the final state, but a run does not store it: play it again"
            )
        if addresses := list_addresses(config):
            raise UserError(
                f"run {run.id} was scored by {addresses[0]}, which keeps the tasks' solutions and the final states: play it again"
            )
        pack, tasks = load_tasks(config)
        check_reward_settings(config, tasks)
        scorers = make_scorers(config, pack, run.ledger)
        with run.ledger.db.transaction():
            found = asyncio.run(score_items(run, config, {task.id: task for task in pack.tasks}, scorers))
            shown = (run.ledger.meta("facts") or {}).get("shown")
            if shown in (None, hash_shown(pack, tasks)):
                run.ledger.set_meta(RESCORED, hash_contents(pack, tasks))
            else:
                say(
                    f"note: {run.id} was played with other policies, tools or tasks than the packs have now, so simia eval compare goes on refusing it beside newer runs"
                )
        return found


def make_scorers(config: RolloutConfig, pack: Pack, ledger: Ledger) -> dict[str, Scorer]:
    """Return the scorer of each pack, keyed by the pack's name in task ids. For a single pack, the key is empty."""
    names = list(pack.members) if isinstance(pack, CombinedPack) else [""]
    found: dict[str, Scorer] = {}
    for name, (settings, each) in zip(names, list_packs(config, pack), strict=True):
        judge: Engine | None = None
        if judges_by_model(settings):
            model = open_backend(settings.judge or settings.simulator or settings.llm, say=lambda _: None)
            judge = cast(Engine, StoredVerdicts(ledger, model))
        installed = isinstance(settings.backend, str) and settings.backend not in BACKENDS
        own = getattr(make_backend(each, settings), "scorer", None) if installed else None
        found[name] = make_scorer(settings, each, judge, own) or ComposedScorer(each)
    return found


async def score_items(
    run: Run, config: RolloutConfig, tasks: Mapping[str, Task], scorers: Mapping[str, Scorer]
) -> Rescored:
    """Score the episodes in the order of the plan, and decide again which are accepted."""
    ledger = run.ledger
    counts: Counter[tuple[str, int]] = Counter()
    found = Rescored(run.id, {})
    seen: set[str] = set()
    ledger.clear_acceptances()
    for item, trajectory in iterate_episodes(run):
        task = tasks.get(item.spec["task"])
        scorer = scorers[item.spec["task"].partition("/")[0] if config.packs else ""]
        old, why = trajectory.reward, explain_kept(trajectory, task)
        if why is None:
            assert task is not None
            new = await scorer.score(trajectory.model_copy(update={"reward": None}), task)
            if new.error is Code.REPLAY_MISS:
                why = "the judge's verdict is not stored"
            elif new.value is None and trajectory.evidence is None and old is not None:
                why = "the final state was not readable"
            elif new != old:
                trajectory = trajectory.model_copy(update={"reward": new})
        if why is not None:
            found.kept[why] += 1
        values = [each.value if each is not None else None for each in (old, trajectory.reward)]
        for side, value in enumerate(values):
            counts["scored", side] += value is not None
            counts["solved", side] += value is not None and value >= SUCCESS
        if values[0] != values[1]:
            found.changed.append(item.id)
        counts["accepted", 0] += item.status == PASSED
        decide_status(item, trajectory, config.accept)
        counts["accepted", 1] += item.status == PASSED
        hashed = store_episode(ledger, item, trajectory)
        if item.status == PASSED and hashed not in seen:
            seen.add(hashed)
            ledger.accept(item, hashed)
    found.figures = {name: (counts[name, 0], counts[name, 1]) for name in ("scored", "solved", "accepted")}
    return found


def iterate_episodes(run: Run) -> Iterator[tuple[Item, Trajectory]]:
    """Yield the finished episodes of a rollout. Those that failed are left to a resume."""
    for item in run.ledger.items():
        body = run.ledger.result(item.id) if item.status in (PASSED, REJECTED) else None
        if body is not None and body["trajectory"]:
            yield item, Trajectory.from_row(body["trajectory"])


def explain_kept(trajectory: Trajectory, task: Task | None) -> str | None:
    """Say why an episode keeps its reward; None if it is scored again."""
    if task is None:
        return "the pack has no such task any more"
    if trajectory.end.kind == "aborted":
        return "the episode was aborted"
    return None
