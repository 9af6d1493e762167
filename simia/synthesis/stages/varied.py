"""Stages of `vary`: `baseline` (how often the agent solves a task), `variations`, `verdicts` and `measured` (how often it solves a variant)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from simia.authoring.difficulty import measure_rewards
from simia.authoring.verification_gate import verify_tasks
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.llm_agent import LLMAgent, LLMAgentSettings
from simia.pack import Pack
from simia.pack_files import is_leftover
from simia.search_path import file_hash
from simia.synthesis.agent_model import ModelOfStage
from simia.synthesis.building.example_states import describe_tables
from simia.synthesis.measured_difficulty import play_agents
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.solution_runs import play_calls
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.gated import explain_faults
from simia.synthesis.stages.gym_difficulty import AGENT_ROLE
from simia.synthesis.varying.draft_checks import check_draft, describe_script, get_backend, open_source, read_start
from simia.synthesis.varying.start_excerpt import excerpt_start
from simia.synthesis.varying.task_drafts import (
    DEMANDS,
    EASIER,
    TaskChange,
    VariantDraft,
    has_state_patches,
    is_single_message,
    read_variant_draft,
)
from simia.task import Measurement, Task
from simia.terminal import write_count
from simia.trajectory import digest

PROMPT = "synthesis/vary_task.j2"
OWN_FORM = "The start has a form of this environment's own. `patch` is merged into this value: {initial}\nThe state that it leads to:"
STATE_FORM = "`patch` is merged into this state, of which a part is shown:"


@dataclass
class VariedPack:
    """The pack whose tasks are varied."""

    pack: Pack
    agent: str
    """Name under which the agent's figures are stored."""
    tasks: Sequence[Task]
    """The tasks that may be varied."""
    grants: Mapping[str, Any] = field(default_factory=dict)
    """Grants for the pack."""
    limit: int | None = None
    """Most tasks that are measured, and most that are varied; None: all."""

    @cached_property
    def content(self) -> str:
        """A hash of the pack's files, so that results of another version of the pack are not used."""
        root = self.pack.root
        files = sorted(path for path in root.rglob("*") if path.is_file()) if root else []
        kept = [path for path in files if root and not any(map(is_leftover, path.relative_to(root).parts))]
        return digest([[str(path.relative_to(root or path)), file_hash(path)] for path in kept])


@dataclass(frozen=True, slots=True)
class AgentEpisodes:
    """How the agent plays a task."""

    kind: str
    """`llm`, or a baseline."""
    tries: int
    turns: int
    sampling: LLMAgentSettings

    async def measure(self, source: VariedPack, task: Task, context: StageContext) -> Measurement:
        """Play a task. Raises `Refused` if no episode has a reward."""
        model = ModelOfStage(context, source.agent, AGENT_ROLE)
        make: Callable[[int], Any] = lambda n: AGENTS[self.kind](task, n)  # noqa: E731
        if self.kind == "llm":
            make = lambda n: LLMAgent(model, self.sampling, item=f"try{n + 1}")  # noqa: E731
        async with (
            context.execution(),
            open_source(source.pack, source.grants, episode={"turns": self.turns}) as environment,
        ):
            rewards = await play_agents(environment, task, [make(n) for n in range(self.tries)])
        if model.fault is not None:
            raise model.fault
        found = measure_rewards({task.id: rewards}).get(task.id)
        if found is None:
            raise Refused(Reason.NOT_MEASURED, f"{write_count(self.tries, 'episode')} of {source.agent}")
        return found


class Baseline:
    """How often the agent solves each task: the pack's own figures, or, if it has none for any task, played. Key: task."""

    name = "baseline"

    def __init__(self, source: VariedPack, episodes: AgentEpisodes) -> None:
        self._source, self._episodes = source, episodes

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        source = self._source
        known = {task.id: task.measured[source.agent] for task in source.tasks if source.agent in task.measured}
        return [
            StageInput(
                task.id, {"pack": source.content, "task": dump(task), "known": dump(known[task.id]) if known else None}
            )
            for task in (source.tasks if known else source.tasks[: source.limit])
            if not known or task.id in known
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        if given.value["known"] is not None:
            return given.value["known"]
        return dump(await self._episodes.measure(self._source, Task.model_validate(given.value["task"]), context))


@dataclass(frozen=True, slots=True)
class VariationPlan:
    """Which tasks are varied, and how."""

    changes: Sequence[TaskChange]
    number: int
    """Variants of a task."""
    low: float
    high: float
    repairs: int
    seed: int

    def list_changes(self, task: str, rate: float) -> list[TaskChange]:
        """Return the changes for one task; none if its pass rate is within the range."""
        if self.low <= rate <= self.high:
            return []
        wanted = [each for each in self.changes if (each == EASIER) is (rate < self.low)]
        chosen = random.Random(f"{self.seed}/{task}").sample(wanted, len(wanted))
        return chosen[: self.number]


class Variations:
    """Write a variant of a task, and verify it without the other variants. Key: `task/change`."""

    name = "variations"

    def __init__(self, source: VariedPack, plan: VariationPlan) -> None:
        self._source, self._plan = source, plan

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        tasks = {task.id: task for task in self._source.tasks}
        found: list[list[StageInput]] = []
        for name, row in outputs.of("baseline").items():
            changes = self._plan.list_changes(name, Measurement.model_validate(row).rate)
            if changes and tasks[name].solved:
                value = {"pack": self._source.content, "task": dump(tasks[name]), "before": row}
                found.append([StageInput(f"{name}/{change}", {**value, "change": change}) for change in changes])
        return [given for group in found[: self._source.limit] for given in group]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        source, change = self._source, given.value["change"]
        task = Task.model_validate(given.value["task"])
        values = await self._describe(task, given.value, context)
        fault: tuple[Reason, str] = (Reason.CHANGE_NOT_MADE, "")
        for number in range(self._plan.repairs + 1):
            draft: VariantDraft = await context.ask(
                PROMPT, values, lambda text: read_variant_draft(text, change, source.pack), label=f"draft{number + 1}"
            )
            async with context.execution(), open_source(source.pack, source.grants) as environment:
                checked = await check_draft(environment, task, change, draft)
            context.note(drafts=number + 1)
            if isinstance(checked, Task):
                return dump(checked)
            fault = checked
            values = {**values, "last": draft.model_dump_json(), "fault": f"{fault[0]}: {fault[1]}"}
        raise Refused(*fault)

    async def _describe(self, task: Task, given: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
        """The values of the prompt: the environment, and the task with its start and the results of its solution."""
        source, pack = self._source, self._source.pack
        async with context.execution(), open_source(pack, source.grants) as environment:
            start = await read_start(get_backend(environment), task)
            played = await play_calls(get_backend(environment), task, task.actions, refused=True)
        before, lines = Measurement.model_validate(given["before"]), describe_script(task, played.results)
        form = (
            STATE_FORM
            if has_state_patches(pack, task)
            else OWN_FORM.format(initial=orjson.dumps(task.initial).decode()[:4000])
        )
        return {
            "description": pack.description or pack.name,
            "policy": pack.policy,
            "tools": [tool.write_json() for tool in pack.tools],
            "user_tools": [tool.write_json() for tool in pack.user_tools],
            "tables": describe_tables(pack.state_schema) if pack.state_schema else "",
            "start_form": form,
            "start": excerpt_start(start, "\n".join([task.instruction, *lines])),
            "instruction": task.instruction,
            "script": lines,
            "single": is_single_message(pack, task),
            "solved": before.solved,
            "tries": before.n,
            "demand": DEMANDS[given["change"]],
            "last": "",
            "fault": "",
        }


class VariantVerdicts:
    """Verify all variants together, since the solution of one must not solve another. One item; no questions."""

    name = "verdicts"

    def __init__(self, source: VariedPack) -> None:
        self._source = source

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        tasks = outputs.of("variations")
        value = {"pack": self._source.content, "tasks": tasks}
        return [StageInput(self._source.pack.name, value)] if tasks else []

    async def make(self, given: StageInput, context: StageContext) -> Any:
        tasks = {key: Task.model_validate(row) for key, row in given.value["tasks"].items()}
        refused: dict[str, list[str]] = {}
        rounds = 0
        async with context.execution(), open_source(self._source.pack, self._source.grants) as environment:
            while left := {key: task for key, task in tasks.items() if key not in refused}:
                rounds += 1
                report = await verify_tasks(environment, list(left.values()), concurrency=4)
                faults = {
                    key: explain_faults([finding for finding in verdict.findings if finding.refuses])
                    for key, verdict in zip(left, report.verdicts, strict=True)
                    if not verdict.passed
                }
                if not faults:
                    break
                refused.update({key: [str(reason), detail] for key, (reason, detail) in faults.items()})
        context.note(tasks=len(tasks), passed=len(left), rounds=rounds)
        return {"refused": refused}


class Remeasured:
    """How often the agent solves each variant that the gate passes. Key: `task/change`."""

    name = "measured"

    def __init__(self, source: VariedPack, episodes: AgentEpisodes) -> None:
        self._source, self._episodes = source, episodes

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        refused = {key: fault for each in outputs.of("verdicts").values() for key, fault in each["refused"].items()}
        before = outputs.of("baseline")
        return [
            StageInput(
                key,
                {
                    "pack": self._source.content,
                    "task": row,
                    "refused": refused.get(key),
                    "before": before[row["extra"]["variant_of"]],
                },
            )
            for key, row in outputs.of("variations").items()
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        if given.value["refused"]:
            reason, detail = given.value["refused"]
            raise Refused(Reason(reason), detail)
        task = Task.model_validate(given.value["task"])
        found = await self._episodes.measure(self._source, task, context)
        context.note(before=Measurement.model_validate(given.value["before"]).rate, after=found.rate)
        return dump(task.model_copy(update={"measured": {self._source.agent: found}}))
