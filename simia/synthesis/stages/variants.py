"""Stage `variants`: scenarios that an agent solves only if it asks, or waits for a tool (EnvScaler §4; BFCL's multi-turn categories).

Each scenario with a task that passed the gate gives at most one variant of each kind. Rules make it from the conversation, or from the task
without one, which then becomes a conversation. If no rule can remove a value from the user's words, a model is asked for them, once. A
variant is kept if agents that do not ask or do not wait fail to solve it, and if the gate passes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.authoring.task_variants import (
    MISSING_PARAMETER,
    Candidate,
    NoVariant,
    VariantFault,
    VariantKind,
    list_hidden,
    list_withheld,
    withhold_value,
)
from simia.authoring.variant_checks import VariedTask, find_variant
from simia.authoring.verification_gate import verify_tasks
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.withheld_wording import ask_withheld_wording
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.gated import explain_faults
from simia.synthesis.stages.states import list_environments
from simia.task import Task

MOST_SCENARIOS = 8  # other scenarios whose solutions are used as guesses, and must not solve a variant


class Variants:
    """Make and verify variants. Key: `scenario/kind`."""

    name = "variants"

    def __init__(self, kinds: Sequence[VariantKind]) -> None:
        self._kinds = list(dict.fromkeys(kinds))

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found, environments, tasks = [], list_environments(outputs), group_by_scenario(outputs, "gated")
        for key, own in tasks.items() if self._kinds else ():
            environment, state, _ = key.split("/")
            others = [each for each in tasks if each != key and each.split("/")[0] == environment]
            others.sort(key=lambda each: each.split("/")[1] != state)  # scenarios with the same start come first
            value = {
                "built": environments[environment],
                "tasks": own,
                "others": [tasks[each][0] for each in others[:MOST_SCENARIOS]],
            }
            found += [StageInput(f"{key}/{kind}", {**value, "kind": kind}) for kind in self._kinds]
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        search = VariantSearch(given, context)
        variant, by = await search.find_first(search.list_candidates()), "rule"
        if variant is None and (asked := await search.ask_for_words()):
            variant, by = await search.find_first(asked), "question"
        context.note(by=by, guessed=search.found.guessed, hasty=search.found.hasty)
        if variant is None:
            raise Refused(*search.explain())
        return dump(variant)


class VariantSearch:
    """The search for a variant of one kind of one scenario."""

    def __init__(self, given: StageInput, context: StageContext) -> None:
        self._context, self._kind = context, given.value["kind"]
        self._built = BuiltEnvironment.model_validate(given.value["built"])
        self._writing = [name for name, tool in self._built.tools.items() if tool.writes]
        self._tasks = [Task.model_validate(row) for row in given.value["tasks"]]
        self._others = [Task.model_validate(row) for row in given.value["others"]]
        self.found = VariedTask(given.key)
        self.refused: list[tuple[Reason, str]] = []

    def list_candidates(self) -> list[Candidate]:
        """The variants by rule, those of the conversation first."""
        tasks = make_conversations(self._tasks)
        if self._kind == MISSING_PARAMETER:
            return [candidate for task in tasks for candidate in list_withheld(task)]
        return [candidate for task in tasks for candidate in list_hidden(task, self._writing, user="llm")]

    async def ask_for_words(self) -> list[Candidate]:
        """Ask a model for the wording without the first value that no rule can remove, if there is one."""
        for task in make_conversations(self._tasks) if self._kind == MISSING_PARAMETER else ():
            for variant, needed in list_withheld(task):
                if needed and isinstance(variant, NoVariant) and variant.fault is VariantFault.VALUE_NOT_REMOVABLE:
                    wording = await ask_withheld_wording(self._context, task, needed)
                    return [(withhold_value(task, needed, wording), needed)]
        return []

    async def find_first(self, candidates: Sequence[Candidate]) -> Task | None:
        """Return the first candidate that passes its own checks and the gate."""
        left = iter(candidates)
        async with self._context.execution() as folder:
            write_environment(folder / "pack", self._built, tasks=[*self._tasks, *self._others], user="scripted")
            environment = await open_built(folder / "pack")
            try:
                while variant := await find_variant(environment, left, self._writing, self.found):
                    verdict = (await verify_tasks(environment, [variant], others=self._others)).verdicts[0]
                    if verdict.passed:
                        return variant
                    self.refused.append(explain_faults([each for each in verdict.findings if each.refuses]))
            finally:
                await environment.close()
        return None

    def explain(self) -> tuple[Reason, str]:
        """Why there is no variant: what was wrong with the last one that was tried."""
        last = self.found.refused[-1]
        return self.refused[-1] if self.refused else (name_variant_fault(last.fault), last.detail)


def make_conversations(tasks: Sequence[Task]) -> list[Task]:
    """The tasks of a scenario as conversations, those that are conversations already first."""
    talks = [task for task in tasks if task.conversation]
    profile = talks[0].profile if talks else None
    plain = [task for task in tasks if not task.conversation]
    changes = {"conversation": True, "profile": profile, "tags": ["conversation"]}
    return [*talks, *(task.model_copy(update={**changes, "opening": task.instruction}) for task in plain)]


def name_variant_fault(fault: VariantFault) -> Reason:
    """The reason with the name of a variant's fault."""
    return Reason.REFERENCE_FAILS if fault is VariantFault.SOLUTION_FAILS else Reason(str(fault))


def group_by_scenario(outputs: StageOutputs, *stages: str) -> dict[str, list[Any]]:
    """Scenario → its rows of these stages, whose keys are `scenario/part`, in the order of the scenarios."""
    found: dict[str, list[Any]] = {key: [] for key in outputs.of("scenarios")}
    for stage in stages:
        for key, row in outputs.of(stage).items():
            found[key.rpartition("/")[0]].append(row)
    return {key: rows for key, rows in found.items() if rows}
