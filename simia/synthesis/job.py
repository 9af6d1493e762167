"""The work of a synthesis: the inputs of a recipe's stages are the items of a durable job.

The items of a stage are planned when all items of the earlier stages are decided, so a plan depends only on stored results. If an endpoint
failed on an item of a stage, the session stops after this stage, and a resume asks again. Any other outcome of an item, also a refusal, is
stored and final.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from simia.errors import Code, UserError
from simia.jobs.coordinator import Stop, Verdict
from simia.jobs.ledger import FAILED, PASSED, REJECTED, Item
from simia.jobs.run import Run
from simia.llm.engine import BudgetReached
from simia.llm.types import LLMFault
from simia.sandbox.inside.frames import pack_json, unpack_json
from simia.synthesis.context import Asker, ItemContext
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Refusal, Stage, StageInput, StageOutputs
from simia.synthesis.stage_errors import describe_failure, find_cause, is_infrastructure, mask_places
from simia.synthesis.stage_figures import Spending
from simia.synthesis.stage_progress import SynthesisProgress
from simia.terminal import write_count
from simia.trajectory import digest

LONGEST = 500  # characters of a detail
ENDPOINT_REFUSES = {Code.BAD_REQUEST, Code.CONTENT_FILTER}


@dataclass(slots=True)
class StageResult:
    """An output or a refusal, with the figures that the stage kept and the tokens and cost of the replies."""

    output: Any = None
    refusal: Refusal | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    spent: Spending = field(default_factory=Spending)

    def body(self) -> dict[str, Any]:
        """Return the result in the form that the ledger stores."""
        return {
            "output": self.output, "notes": self.notes, "spent": asdict(self.spent), "issues": [], "trajectory": None,
        }  # fmt: skip


class StageMaker:
    """Makes the results of items: in the job's process, or on a node."""

    def __init__(
        self,
        config: SynthesisConfig,
        askers: Mapping[str, Asker],
        keep_prompt: Callable[[str, str], None],
        has_answers: Callable[[], bool],
        has_failed: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_answers`: whether the run holds any reply. `has_failed`: whether the run can no longer be written."""
        self._config, self._askers, self._keep_prompt = config, askers, keep_prompt
        self._has_answers, self._has_failed = has_answers, has_failed
        self._places = asyncio.Semaphore(config.executions)

    async def make(self, item: str, stage: Stage, given: StageInput) -> StageResult:
        """Return the output of a stage for an input, or its refusal. Raises errors that are not the item's, such as a failed endpoint."""
        context = ItemContext(item, self._askers, self._config.sampling, self._places, self._keep_prompt)
        result = StageResult()
        try:
            output = await stage.make(StageInput(given.key, copy.deepcopy(given.value)), context)
            result.output = unpack_json(pack_json(output))  # the same value that a resume would read
        except Exception as error:
            result.refusal = self._judge_error(find_cause(error), context)
        finally:
            if not (task := asyncio.current_task()) or not task.cancelling():
                await context.settle()
        result.spent = context.spent
        try:
            result.notes = unpack_json(pack_json(context.notes))
        except (TypeError, ValueError, RecursionError) as error:
            result.output, result.refusal = (
                None,
                Refusal(str(Reason.INTERNAL), f"a note is not JSON: {error}"[:LONGEST]),
            )
        return result

    def _judge_error(self, error: Exception, context: ItemContext) -> Refusal:
        """Return why the item is refused, or raise the error if it is not the item's."""
        if isinstance(error, Refused):
            return Refusal(str(error.reason), mask_places(error.detail)[:LONGEST])
        if isinstance(error, LLMFault) and error.code in ENDPOINT_REFUSES and self._has_answers():
            return Refusal(str(Reason.REFUSED_QUESTION), f"{error.code}: {error.detail}"[:LONGEST])
        if isinstance(error, LLMFault | BudgetReached) or error is context.user_error or self._has_failed():
            raise error
        if is_infrastructure(error):
            raise LLMFault(Code.WORKER_LOST, describe_failure(error), retry=False) from error
        return Refusal(str(Reason.INTERNAL), describe_failure(error)[:LONGEST])


class SynthesisWork:
    """One session's work on a recipe."""

    def __init__(
        self,
        run: Run,
        config: SynthesisConfig,
        stages: Sequence[Stage],
        askers: Mapping[str, Asker],
        keep_prompt: Callable[[str, str], None] = lambda name, hashed: None,
    ) -> None:
        """`askers`, `keep_prompt`: see `ItemContext`."""
        self._run, self._stages = run, list(stages)
        self._maker = StageMaker(
            config,
            askers,
            keep_prompt,
            lambda: run.ledger.answered_count() > 0,
            lambda: run.failure is not None,
        )
        self._planned: list[tuple[Stage, StageInput]] = []
        self._next_stage = 0
        self._decided = 0
        self._failed: list[Item] = []
        self.outputs = StageOutputs()
        self.spent: dict[str, Spending] = {}
        self.progress = SynthesisProgress(run.id, 0, stages=len(self._stages))

    # -- planning ------------------------------------------------------------------------------------------------

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
            inputs = list_stage_inputs(stage, self.outputs)
            self._planned += [(stage, given) for given in inputs]
            if inputs:
                self.progress.enter_stage(stage.name, self._next_stage, len(inputs))

    def restore(
        self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None
    ) -> StageResult | None:
        self._plan_stages()
        return self.read_result(item)

    def read_result(self, item: Item) -> StageResult | None:
        """Return the stored result of an item; None if it is not decided."""
        body = self._run.ledger.result(item.id) if item.status in (PASSED, REJECTED) else None
        if body is None:
            return None
        refusal = Refusal(item.reason or "", item.detail or "") if item.status == REJECTED else None
        return StageResult(body["output"], refusal, body["notes"], Spending(**body["spent"]))

    def drop_stale_items(self) -> None:
        """Remove items from the ledger that the present plan does not have, such as those after a stage whose results were lost. Their replies
        stay.

        Call this on a separate `SynthesisWork`, before the session's own work begins.
        """
        for item, *_ in self._run.ledger.outcomes():
            if (
                not self.wants(item.ord, 0)
                or (planned := self.plan(item.ord)).id != item.id
                or planned.spec != item.spec
            ):
                self._run.ledger.drop_items(item.ord)
                return
            if (outcome := self.read_result(item)) is not None:
                self.take(item, outcome)

    # -- working -------------------------------------------------------------------------------------------------

    async def produce(self, item: Item) -> StageResult:
        return await self._maker.make(item.id, *self._planned[item.ord])

    def find_input(self, item: Item) -> tuple[str, str, StageInput]:
        """Return what a node needs to make an item: its id, its stage and its input."""
        stage, given = self._planned[item.ord]
        return item.id, stage.name, given

    def conclude(self, item: Item, result: StageResult) -> StageResult:
        if result.refusal is None:
            item.status, item.reason, item.detail = PASSED, None, None
        else:
            item.status, item.reason, item.detail = REJECTED, result.refusal.reason, result.refusal.detail
        self._run.ledger.conclude(item, self.hash_output(item, result), pack_json(result.body()))
        return result

    def hash_output(self, item: Item, result: StageResult) -> str:
        """Return the hash of an item's output."""
        return digest([item.id, result.output])

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, item: Item, outcome: StageResult | None) -> Verdict:
        if outcome is None or item.status == FAILED:
            self._decided += 1
            self._failed.append(item)
            return "rejected"
        if not self.take(item, outcome):
            return "rejected"
        self._run.ledger.accept(item, self.hash_output(item, outcome))
        return "accepted"

    def take(self, item: Item, outcome: StageResult) -> bool:
        """Add a result to `outputs`, in plan order; return whether the item has an output. Writes nothing to the ledger."""
        self._decided += 1
        stage, given = self._planned[item.ord]
        if outcome.notes:
            self.outputs.notes.setdefault(stage.name, {})[given.key] = outcome.notes
        self.spent.setdefault(stage.name, Spending()).add(outcome.spent)
        if outcome.refusal is not None:
            self.outputs.refused.setdefault(stage.name, {})[given.key] = outcome.refusal
            self.progress.refused[outcome.refusal.reason] += 1
            return False
        self.outputs.made.setdefault(stage.name, {})[given.key] = outcome.output
        self.progress.made += 1
        return True

    # -- ending --------------------------------------------------------------------------------------------------

    def find_stop(self) -> Stop | None:
        if self._failed and self._decided == len(self._planned):
            first, count = self._failed[0], len(self._failed)
            which = "1 item" if count == 1 else f"{count} items, the first"
            return Stop("endpoint", f"no answer for {which} {first.id}: {first.detail or first.reason}")
        return None

    def explain_end(self) -> Stop:
        self._plan_stages()
        if self._decided == len(self._planned) and self._next_stage == len(self._stages) and not self._failed:
            return Stop("complete")
        left = len(self._planned) - self._decided + len(self._failed)
        return Stop("interrupted", f"{write_count(left, 'item')} of stage {self.progress.stage} left")


def list_stage_inputs(stage: Stage, outputs: StageOutputs) -> list[StageInput]:
    """Return a stage's inputs. Raises a one-line `UserError` if the stage fails or gives two inputs the same key."""
    try:
        inputs = list(stage.list_inputs(outputs))
        for given in inputs:
            pack_json(given.value)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"stage {stage.name} cannot list its inputs: {describe_failure(error)}; {GOES_ON}") from error
    repeated = [key for key, count in Counter(given.key for given in inputs).items() if count > 1]
    if repeated:
        raise UserError(f"stage {stage.name} has two inputs named {repeated[0]!r}; {GOES_ON}")
    return inputs


GOES_ON = "no reply is lost: correct the recipe and try again"
