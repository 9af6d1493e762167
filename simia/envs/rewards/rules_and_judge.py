"""The task's rules make the reward, and a model's verdict on the same episode is kept beside it: how often both agree costs no second run."""

from __future__ import annotations

from dataclasses import dataclass

from simia.envs.rewards.compose import score_trajectory
from simia.envs.rewards.judge import RewardJudge
from simia.errors import WAITING
from simia.pack import Pack
from simia.reward import Reward
from simia.task import Task
from simia.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class RulesAndJudge:
    """Scores episodes of one pack by its tasks' rules, and asks a judge too."""

    pack: Pack
    judge: RewardJudge

    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        """The reward by rules, with the judge's parts; without these where the judge gave no verdict.

        Where the judge's question waits for a batch or for a larger budget there is no reward yet: it is asked when the run goes on.
        """
        policies = self.pack.match
        found = score_trajectory(trajectory, task.reward, reference=task.actions, policies=policies, goals=task.goals)
        if found.value is None:
            return found
        verdict = await self.judge.score(trajectory, task)
        if verdict.error in WAITING:
            return verdict
        why = verdict.rationale or (verdict.error.meaning if verdict.error else "")
        words = "; ".join(filter(None, [found.rationale, f"judge: {why}" if why else ""]))
        return found.model_copy(update={"parts": {**found.parts, **verdict.parts}, "rationale": words})
