"""Let a model judge each trajectory that has passed the structural checks, as a part of its acceptance (`judge.enabled`).

The judge's replies are stored in the run under the item's id before they are used, so a resume and `simia runs recheck` derive the same
verdicts at no cost. An unreachable judge leaves the item open or failed, like any unreachable endpoint, and a resume continues from the
stored trajectory.
"""

from __future__ import annotations

from typing import Any

from simia.amplification.simulate import SimulationResult
from simia.errors import Code, Issue
from simia.jobs import Item
from simia.llm.types import LLMFault
from simia.quality.judging.panel import Asker, Panelist
from simia.quality.judging.settings import AcceptanceSettings

SUFFIX = ".judge"  # appended to the item's id in the ledger's attempts and in the names of samples
KEPT = {Code.CONTENT_FILTER, Code.BAD_REQUEST}  # faults that a retry would meet again; they count as no verdict


class AcceptanceJudge:
    """Judges results through an engine, or from stored replies."""

    def __init__(self, settings: AcceptanceSettings, asker: Asker, *, in_turn: bool = False) -> None:
        """`in_turn`: ask for one vote after the other, for an asker that never waits."""
        self.panelist = Panelist(settings, asker, keeps=KEPT)
        self._in_turn = in_turn

    async def judge(self, item: Item, result: SimulationResult) -> None:
        """Write the verdict into a result that passed the checks. Raises `BudgetReached`, and `LLMFault` if the judge cannot be reached."""
        trajectory = result.trajectory
        if trajectory is None or result.issues:
            return
        name, goals = f"{item.id}{SUFFIX}", find_goals(item)
        try:
            verdict = await self.panelist.verdict(trajectory, item=name, draw=name, goals=goals, in_turn=self._in_turn)
        except LLMFault as fault:
            raise LLMFault(
                fault.code,
                f"the judge: {fault.detail or fault.code.meaning}",
                retry=fault.retry,
                retry_after=fault.retry_after,
                status=fault.status,
            ) from None
        result.verdict = verdict.model_dump(mode="json", exclude={"votes"}, exclude_defaults=True)
        result.issues = verdict.issues
        if verdict.passed is None:
            result.issues = [Issue(code=Code.NO_VERDICT, detail=f"{verdict.error}: {verdict.detail}"[:500])]
        trajectory.issues = result.issues
        trajectory.provenance.stages = [*trajectory.provenance.stages[:-1], "judge", *trajectory.provenance.stages[-1:]]
        if result.issues:
            result.signature = None


def find_goals(item: Item) -> list[Any]:
    """Return the goals of an item's plan, if it has one."""
    plan = item.spec.get("plan")
    goals = plan.get("goals") if isinstance(plan, dict) else None
    return goals if isinstance(goals, list) else []
