"""The task's rules give the reward, and a judge's verdict is recorded with it, so one run also shows how often both agree."""

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
        """The reward by rules, with the judge's parts if the judge gave a verdict.

        While the judge's request waits for a batch or for a larger budget there is no reward; a resumed run asks again.
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
