"""Read the parts of an episode's state that a composed scorer needs besides the evidence: the final state, and numbers after each turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.envs.rewards.composed_scorer import ComposedScorer
from simia.envs.rewards.environment_value import pick_values
from simia.envs.rewards.step_rewards import HISTORY
from simia.envs.worlds.world import World
from simia.scorer import Scorer
from simia.task import Task
from simia.trajectory import Message


@dataclass(slots=True)
class StateTracker:
    """Reads a world's state, but only if the scorer needs it."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """Path → number, at the start and after each turn."""
    final: Any = None

    async def note(self, scorer: Scorer | None, task: Task, world: World | None) -> None:
        """Read the numbers now. Raises `Aborted`."""
        if world is not None and isinstance(scorer, ComposedScorer) and (paths := scorer.list_tracked_values(task)):
            self.rows.append(pick_values(await world.state(), paths))

    async def finish(
        self, scorer: Scorer | None, world: World, evidence: dict[str, Any], messages: Sequence[Message]
    ) -> dict[str, Any]:
        """Read the final state, and return the evidence with the numbers. Raises `Aborted`."""
        if not isinstance(scorer, ComposedScorer):
            return evidence
        if scorer.function is not None and "changes" in evidence:
            self.final = await world.state()
        if not self.rows:
            return evidence
        turns = sum(message.role == "assistant" for message in messages)
        rows = self.rows + self.rows[-1:] * (turns + 1 - len(self.rows))  # a cut message was not run
        return {**evidence, HISTORY: rows}

    def fork(self) -> StateTracker:
        return StateTracker(list(self.rows))
