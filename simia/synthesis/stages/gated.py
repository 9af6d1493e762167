"""Stages `verdicts` and `gated`: run the verification gate on all tasks of an environment together, then give each task its verdict.

The gate scores each task with the solutions of the others, so an environment is verified as a whole. If tasks are refused, the remaining
ones are verified again, until all remaining ones pass: then the written pack passes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from simia.authoring.findings import Finding
from simia.authoring.verification_gate import verify_tasks
from simia.quality.selection.near_duplicates import NearDuplicateIndex, compute_signature
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.measured_difficulty import TaskDifficultySettings, measure_task
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.scenario import Mode, Scenario, ScenarioState
from simia.synthesis.scenarios.scenario_tasks import make_tasks
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.states import list_environments
from simia.task import Task
from simia.trajectory import Message, Trajectory

Refusals = dict[str, tuple[Reason, str]]
EnvironmentFinder = Callable[[StageOutputs], dict[str, Any]]
LONGEST_DETAIL = 400


class TaskSource(Protocol):
    """Makes the tasks of a recipe from the outputs of its stages."""

    def list_tasks(self, outputs: StageOutputs) -> dict[str, dict[str, Task]]:
        """Environment → key of a task → task, in order."""

    def list_words(self, outputs: StageOutputs) -> dict[str, dict[str, str]]:
        """Return environment → key → the user's words, by which duplicates are found. The key is a task's key, or its part before `/MODE`."""


class ScenarioTasks:
    """Tasks of EnvScaler's scenarios, one for each mode."""

    def __init__(self, modes: Sequence[Mode]) -> None:
        self._modes = list(modes)

    def list_tasks(self, outputs: StageOutputs) -> dict[str, dict[str, Task]]:
        found: dict[str, dict[str, Task]] = {}
        for key, made in outputs.of("scenarios").items():
            scenario = Scenario.model_validate(made)
            start = ScenarioState.model_validate(outputs.of("states")[scenario.state])
            found.setdefault(scenario.environment, {}).update(make_tasks(key, scenario, start, self._modes))
        return found

    def list_words(self, outputs: StageOutputs) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, made in outputs.of("scenarios").items():
            found.setdefault(made["environment"], {})[name] = made["task"]
        return found


class Verdicts:
    """Verify all tasks of an environment. Nothing is asked."""

    name = "verdicts"

    def __init__(self, source: TaskSource, environments: EnvironmentFinder = list_environments) -> None:
        """`environments`: finds the environments that the tasks are played in."""
        self._source, self._environments = source, environments

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found = []
        tasks, all_words = self._source.list_tasks(outputs), self._source.list_words(outputs)
        for key, built in self._environments(outputs).items():
            if own := tasks.get(key):
                words = all_words[key]
                rows = {name: dump(task) for name, task in own.items()}
                found.append(StageInput(key, {"built": built, "tasks": rows, "words": words}))
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        built = BuiltEnvironment.model_validate(given.value["built"])
        tasks = {name: Task.model_validate(row) for name, row in given.value["tasks"].items()}
        doubles = find_duplicate_words(given.value["words"])
        refused: Refusals = {
            name: fault for name in tasks if (fault := doubles.get(name) or doubles.get(name.rpartition("/")[0]))
        }
        rounds, floors = 0, dict[str, float]()
        while left := {name: task for name, task in tasks.items() if name not in refused}:
            rounds += 1
            async with context.execution() as folder:
                found, floors = await run_gate(folder / "pack", built, left)
            if not found:
                break
            refused |= found
        context.note(tasks=len(tasks), passed=len(left), rounds=rounds, floors=floors)
        return {"refused": {name: [str(reason), detail] for name, (reason, detail) in refused.items()}}


class Gated:
    """Give each task its verdict, and measure its difficulty if the config names an agent."""

    name = "gated"

    def __init__(
        self,
        source: TaskSource,
        difficulty: TaskDifficultySettings,
        environments: EnvironmentFinder = list_environments,
    ) -> None:
        self._source, self._difficulty, self._environments = source, difficulty, environments

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found, environments = [], self._environments(outputs)
        for key, tasks in self._source.list_tasks(outputs).items():
            verdicts = outputs.of("verdicts").get(key, {"refused": {}})
            for name, task in tasks.items():
                value = {"task": dump(task), "refused": verdicts["refused"].get(name)}
                alone = not task.conversation or task.goals
                if self._difficulty.agent and alone and not value["refused"]:
                    value["built"] = environments[key]
                found.append(StageInput(name, value))
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        if given.value["refused"]:
            reason, detail = given.value["refused"]
            raise Refused(Reason(reason), detail)
        task = Task.model_validate(given.value["task"])
        if "built" in given.value:
            built = BuiltEnvironment.model_validate(given.value["built"])
            measured = await measure_task(context, built, task, self._difficulty)
            task = task.model_copy(update={"measured": measured})
        return dump(task)


def find_duplicate_words(words: Mapping[str, str]) -> Refusals:
    """Return the keys whose words are nearly equal to those of an earlier key."""
    refused: Refusals = {}
    index = NearDuplicateIndex()
    for name, text in words.items():
        signature = compute_signature(Trajectory(messages=[Message(role="user", content=text)]))
        if (near := index.find(signature)) is not None:
            refused[name] = Reason.DUPLICATE_TASK, f"its words are nearly those of {near}"
        else:
            index.add(name, signature)
    return refused


async def run_gate(folder: Path, built: BuiltEnvironment, tasks: dict[str, Task]) -> tuple[Refusals, dict[str, float]]:
    """Write the environment with these tasks, and run the gate. Returns the refused tasks, and agent → its mean reward."""
    write_environment(folder, built, tasks=list(tasks.values()), user="scripted")
    environment = await open_built(folder)
    try:
        report = await verify_tasks(environment, environment.pack.tasks, concurrency=4)
    finally:
        await environment.close()
    whole = [finding for finding in report.findings if finding.refuses]
    refused: Refusals = {}
    for (name, _), verdict in zip(tasks.items(), report.verdicts, strict=True):
        faults = [finding for finding in (*verdict.findings, *whole) if finding.refuses]
        if faults:
            refused[name] = explain_faults(faults)
    return refused, {name: round(value, 6) for name, value in report.floors.items()}


def explain_faults(faults: Sequence[Finding]) -> tuple[Reason, str]:
    """Return the reason that has the name of the gate's first fault, and one line with all faults."""
    try:
        reason = Reason(str(faults[0].fault))
    except ValueError:
        reason = Reason.GATE_REFUSES
    return reason, "; ".join(f"{each.fault}: {each.detail}" for each in faults)[:LONGEST_DETAIL]
