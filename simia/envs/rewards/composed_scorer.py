"""Rules or a judge, the rewards of single turns, and the user's own function, composed into one reward of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simia.envs.rewards.compose import score_trajectory
from simia.envs.rewards.environment_value import list_value_paths
from simia.envs.rewards.judge import RewardJudge
from simia.envs.rewards.reward_function import FinishedEpisode, RewardFunction
from simia.envs.rewards.step_rewards import StepRewardSettings, score_calls, score_values
from simia.errors import Code
from simia.pack import Pack
from simia.reward import Reward
from simia.scorer import ScheduledScorer, Scorer
from simia.task import Task
from simia.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class ComposedScorer:
    """Scores episodes of one pack.

    `outcome` judges the episode in place of the task's rules. `judges_outcome`: the `judge` of single turns also judges the outcome.
    `unjudged`: no rules and no judge are used for the outcome; the function alone gives the value.
    """

    pack: Pack
    outcome: Scorer | None = None
    judge: RewardJudge | None = None
    judges_outcome: bool = False
    unjudged: bool = False
    function: RewardFunction | None = None
    steps: StepRewardSettings | None = None

    def note_step(self, step: int) -> None:
        """Set how many steps the training has made."""
        if isinstance(self.outcome, ScheduledScorer):
            self.outcome.note_step(step)

    def list_tracked_values(self, task: Task) -> list[str]:
        """The paths of the state whose numbers are needed after each turn."""
        tracked = self.steps is not None and self.steps.by == "value"
        return list_value_paths(task.reward.parts) if tracked else []

    async def score(self, trajectory: Trajectory, task: Task, state: Any = None) -> Reward:
        """Score an episode. `state`: the final one, where the world has one. Failures give a reward of None."""
        if trajectory.end.kind == "aborted":
            return Reward(error=trajectory.end.code or Code.INTERNAL, rationale="the episode was aborted")
        turns = await self.judge.score_turns(trajectory, task) if self.judge is not None else None
        reward = await self._score_outcome(trajectory, task, turns)
        if reward is not None and reward.value is None:
            return reward
        steps = self._score_steps(trajectory, task, turns)
        if isinstance(steps, Reward):
            return steps
        if self.function is None:
            assert reward is not None
            return reward.model_copy(update={"steps": steps})
        before = reward.model_copy(update={"steps": steps}) if reward is not None else None
        found = await self.function.score(FinishedEpisode(trajectory, task, before, state))
        return found if found.value is None or found.steps else found.model_copy(update={"steps": steps})

    async def _score_outcome(self, trajectory: Trajectory, task: Task, turns: Reward | None) -> Reward | None:
        if self.unjudged:
            return None
        if self.judges_outcome and turns is not None:
            return turns
        if self.outcome is not None:
            return await self.outcome.score(trajectory, task)
        policies = self.pack.match
        return score_trajectory(trajectory, task.reward, reference=task.actions, policies=policies, goals=task.goals)

    def _score_steps(self, trajectory: Trajectory, task: Task, turns: Reward | None) -> list[float] | Reward:
        """Return the weighted rewards of the turns, or a `Reward` without a value if they are unknown."""
        if self.steps is None:
            return []
        if self.steps.by == "judge":
            assert turns is not None
            if turns.value is None:
                return turns
            found: list[float] | None = turns.steps
        else:
            found = (score_calls if self.steps.by == "calls" else score_values)(trajectory, task)
        if found is None:
            return Reward(error=Code.UNSCORED, rationale="no evidence of the values after each turn")
        return [round(each * self.steps.weight, 9) for each in found]
