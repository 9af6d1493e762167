"""The work of a synthesis: the stages of a recipe as items of a durable job.

The items of a stage are planned when all items of the stages before it are decided, so a plan depends on stored results alone. A stage
in which an endpoint failed on an item is not left: the session stops there, and a resume asks again. Everything else about an item,
a refusal included, is a result that lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.jobs.coordinator import Stop, Verdict
from simia.jobs.ledger import FAILED, PASSED, REJECTED, Item
from simia.jobs.progress import Progress
from simia.jobs.run import Run
from simia.llm.engine import Engine
from simia.synthesis.context import ItemContext
from simia.synthesis.reasons import Refused
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Refusal, Stage, StageInput, StageOutputs
from simia.trajectory import digest


@dataclass(slots=True)
class StageResult:
    """An output, or the reason why there is none, with the figures that were kept."""

    output: Any = None
    refusal: Refusal | None = None
    notes: dict[str, Any] = field(default_factory=dict)


class SynthesisWork:
    """One session's work on a recipe."""

    def __init__(
        self, run: Run, config: SynthesisConfig, stages: Sequence[Stage], engines: Mapping[str, Engine]
    ) -> None:
        self._run, self._config, self._stages, self._engines = run, config, list(stages), engines
        self._places = asyncio.Semaphore(config.executions)
        self._planned: list[tuple[Stage, StageInput]] = []
        self._next_stage = 0
        self._decided = 0
        self._failed: list[Item] = []
        self.outputs = StageOutputs()
        self.progress = Progress(run.id, 0)

    def wants(self, ord_: int, in_flight: int) -> bool:
        self._plan_stages()
        return ord_ < len(self._planned)

    def plan(self, ord_: int) -> Item:
        self._plan_stages()
        stage, given = self._planned[ord_]
        spec = {"stage": stage.name, "key": given.key, "input": digest(given.value)}
        return Item(f"{stage.name}/{given.key}", ord_, spec)

    def _plan_stages(self) -> None:
        """Plan the next stages with inputs once everything before them is decided."""
        while self._decided == len(self._planned) and self._next_stage < len(self._stages) and not self._failed:
            stage = self._stages[self._next_stage]
            self._next_stage += 1
            self._planned += [(stage, given) for given in stage.list_inputs(self.outputs)]
            self.progress.n = len(self._planned)

    def restore(self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None) -> Any:
        planned = self.plan(item.ord)
        if item.status not in (PASSED, REJECTED) or item.spec != planned.spec:
            item.spec = planned.spec
            return None
        body = self._run.ledger.result(item.id) or {}
        refusal = Refusal(item.reason or "", item.detail or "") if item.status == REJECTED else None
        return StageResult(body.get("output"), refusal, body.get("notes", {}))

    async def produce(self, item: Item) -> StageResult:
        stage, given = self._planned[item.ord]
        context = ItemContext(item.id, self._engines, self._config.sampling, self._places)
        try:
            return StageResult(await stage.make(given, context), notes=context.notes)
        except Refused as refused:
            return StageResult(refusal=Refusal(refused.reason, refused.detail[:500]), notes=context.notes)

    def conclude(self, item: Item, result: StageResult) -> StageResult:
        if result.refusal is None:
            item.status, item.reason, item.detail = PASSED, None, None
        else:
            item.status, item.reason, item.detail = REJECTED, result.refusal.reason, result.refusal.detail
        body = {"output": result.output, "notes": result.notes, "issues": [], "trajectory": None}
        self._run.ledger.conclude(item, digest([item.id, result.output]), body)
        return result

    def decide(self, item: Item, outcome: StageResult | None) -> Verdict:
        self._decided += 1
        stage, given = self._planned[item.ord]
        if outcome is None or item.status == FAILED:
            self._failed.append(item)
            return "rejected"
        if outcome.notes:
            self.outputs.notes.setdefault(stage.name, {})[given.key] = outcome.notes
        if outcome.refusal is not None:
            self.outputs.refused.setdefault(stage.name, {})[given.key] = outcome.refusal
            return "rejected"
        self.outputs.made.setdefault(stage.name, {})[given.key] = outcome.output
        self._run.ledger.accept(item, digest([item.id, outcome.output]))
        return "accepted"

    def find_stop(self) -> Stop | None:
        if self._failed and self._decided == len(self._planned):
            first = self._failed[0]
            count = len(self._failed)
            return Stop(
                "endpoint", f"{count} questions failed, the first of {first.id}: {first.detail or first.reason}"
            )
        return None

    def explain_end(self) -> Stop:
        self._plan_stages()
        if self._decided == len(self._planned) and self._next_stage == len(self._stages) and not self._failed:
            return Stop("complete")
        left = len(self._planned) - self._decided
        return Stop("interrupted", f"{left} items of the present stage are left")
