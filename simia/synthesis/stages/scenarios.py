"""Stage `scenarios`: write a task in an initial state, with a solution, a checklist of executable checks and a user (EnvScaler §3.3).

The order is task and checklist, solution, checks, user, look-ups. The model is asked for checks after the solution was executed and repaired;
a check is kept if it is false on the untouched state and true after the solution.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted
from simia.pack import Pack
from simia.sandbox.limits import WorkerLimits
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.check_functions import judge_check, read_check, write_guard
from simia.synthesis.scenarios.look_ups import add_look_ups
from simia.synthesis.scenarios.scenario import ChecklistItem, DroppedItem, Mode, Scenario, ScenarioState
from simia.synthesis.scenarios.scenario_prompts import (
    MOST_ITEMS,
    TaskDraft,
    list_prompt_values,
    read_draft,
    read_user,
    write_demand,
)
from simia.synthesis.scenarios.solution_runs import PlayedSolution, play_solution, read_solution
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stage_errors import is_infrastructure
from simia.synthesis.stages.states import list_environments
from simia.task import Action

LIMITS = WorkerLimits(cpu=4)  # CPU seconds: an endless check ends soon, even on a busy machine
TASK_PROMPT, SOLUTION_PROMPT = "synthesis/scenario_task.j2", "synthesis/scenario_solution.j2"
CHECK_PROMPT, USER_PROMPT = "synthesis/scenario_check.j2", "synthesis/scenario_user.j2"


class ScenarioSettings(Config):
    """Scenarios of each initial state."""

    number: int = Field(default=3, ge=1)
    """Number of scenarios of each initial state."""
    checks: int = Field(default=2, ge=1)
    """Minimum number of checks of a scenario. A scenario is also refused if more than half of its checklist was dropped."""
    repairs: int = Field(default=2, ge=0)
    """Maximum number of further requests for the solution. Each states what was wrong with the last one."""
    modes: list[Mode] = Field(default=["conversation", "non_conversation"], min_length=1)
    """Modes of tasks. Each scenario gives one task in each mode. conversation: the user tells the task step by step. non_conversation: the
    first message contains the whole task."""
    execution: bool = True
    """Whether solutions and checks are executed. false: accept what the model writes (for experiments)."""


class Scenarios:
    """Ask for the scenarios of every initial state, and validate them by execution."""

    name = "scenarios"

    def __init__(self, settings: ScenarioSettings, seed: int) -> None:
        self._settings, self._seed = settings, seed

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        environments, found = list_environments(outputs), []
        for key, made in outputs.of("states").items():
            first = int(key.rpartition("/")[2]) * self._settings.number
            for number in range(self._settings.number):
                value = {
                    "state_key": key,
                    "number": first + number,
                    "state": made,
                    "built": environments[made["environment"]],
                }
                found.append(StageInput(f"{key}/{number}", value))
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        writer = ScenarioWriter(given, context, self._settings, self._seed)
        return dump(await writer.write())


class ScenarioWriter:
    """The work on one scenario."""

    def __init__(self, given: StageInput, context: StageContext, settings: ScenarioSettings, seed: int) -> None:
        value = given.value
        self._context, self._settings = context, settings
        self._built = BuiltEnvironment.model_validate(value["built"])
        self._start = ScenarioState.model_validate(value["state"])
        self._state_key = value["state_key"]
        self._values = list_prompt_values(self._built, self._start.state)
        self._demand = write_demand(self._built, seed, given.key, value["number"])
        self._questions = 0
        self._played: PlayedSolution | None = None

    async def write(self) -> Scenario:
        """Ask for the parts in order. Raises `Refused` with the reason."""
        asked = {**self._values, "demand": self._demand, "least": self._settings.checks, "most": MOST_ITEMS}
        draft: TaskDraft = await self._context.ask(TASK_PROMPT, asked, read_draft, label="task")
        write = self._write_executed if self._settings.execution else self._write_unexecuted
        scenario = await write(draft)
        if "conversation" in self._settings.modes:
            parse = partial(read_user, task=draft.task, solution=scenario.solution)
            values = {**self._values, "task": draft.task}
            scenario.user = await self._context.ask(USER_PROMPT, values, parse, label="user")
        if self._played is not None:
            await self._add_look_ups(scenario, self._played)
        return scenario

    async def _write_unexecuted(self, draft: TaskDraft) -> Scenario:
        solution = await self._ask_solution(draft)
        checks, dropped = await self._ask_checks(draft)
        return self._make_scenario(draft, solution, checks, dropped, None)

    async def _write_executed(self, draft: TaskDraft) -> Scenario:
        played = await self._solve(draft, PlayedSolution())
        if played.fault:
            self._context.note(items=len(draft.checklist), solution_repairs=self._questions - 1)
            reason = Reason.SOLUTION_FAILS if played.final is None else Reason.SOLUTION_CHANGES_NOTHING
            raise Refused(reason, played.fault)
        checks, unreadable = await self._ask_checks(draft)
        kept, dropped = await self._judge(checks, played)
        unmet = [each.item for each in dropped if each.reason == Reason.CHECK_ALWAYS_FALSE]
        if unmet and self._questions <= self._settings.repairs:
            other = await self._solve(draft, played, unmet)
            if not other.fault and other.changes != played.changes:
                again, still_dropped = await self._judge(checks, other)
                if len(again) > len(kept):
                    played, kept, dropped = other, again, still_dropped
        dropped = [*unreadable, *dropped]
        self._context.note(
            items=len(draft.checklist),
            kept=len(kept),
            dropped={
                reason: sum(each.reason == reason for each in dropped) for reason in sorted({d.reason for d in dropped})
            },
            solution_repairs=self._questions - 1,
            solution_calls=len(played.calls),
        )
        if len(kept) < self._settings.checks or 2 * len(kept) < len(draft.checklist):
            words = "; ".join(f"{each.item[:60]}: {each.reason}" for each in dropped)
            raise Refused(Reason.TOO_FEW_CHECKS, f"{len(kept)} of {len(draft.checklist)} checks are left: {words}")
        guard = write_guard(self._start.state, played.final)
        self._played = played
        return self._make_scenario(draft, played.calls, kept, dropped, guard)

    # -- the solution ---------------------------------------------------------------------------------------------

    async def _solve(self, draft: TaskDraft, last: PlayedSolution, unmet: Sequence[str] = ()) -> PlayedSolution:
        """Ask for a solution until it executes and changes something, as often as the config allows."""
        while True:
            calls = await self._ask_solution(draft, last, unmet)
            async with self._open_sandbox() as backend:
                last = await play_solution(backend, self._start.state, calls)
            if not last.fault or self._questions > self._settings.repairs:
                return last
            unmet = ()

    async def _ask_solution(
        self, draft: TaskDraft, last: PlayedSolution | None = None, unmet: Sequence[str] = ()
    ) -> list[Action]:
        last = last or PlayedSolution()
        self._questions += 1
        values = {
            **self._values,
            "task": draft.task,
            "calls": format_calls(last.written),
            "results": last.results,
            "fault": last.fault,
            "unmet": list(unmet),
        }
        label = "solution" if self._questions == 1 else f"solution{self._questions}"
        return await self._context.ask(SOLUTION_PROMPT, values, read_solution, label=label)

    async def _add_look_ups(self, scenario: Scenario, played: PlayedSolution) -> None:
        """Add look-ups of keys that the user does not mention to the solution, unless a check fails then."""
        said, user = [scenario.task], scenario.user
        if user is not None:
            said.append(
                "\n".join([user.opening, user.instruction, *user.knows, *(each.fact for each in user.withheld)])
            )
        tools = [tool.spec for tool in self._built.tools.values() if not tool.writes]
        async with self._open_sandbox() as backend:
            try:
                calls = await add_look_ups(backend, self._start.state, played, said, tools)
                again = await play_solution(backend, self._start.state, calls)
            except Aborted as error:  # a reading tool did not end, with arguments that no test covers
                if is_infrastructure(error):
                    raise
                return
        added = len(calls) - len(played.calls)
        if not added or again.fault or len((await self._judge(scenario.checklist, again))[0]) < len(scenario.checklist):
            return
        scenario.solution, scenario.guard = again.calls, write_guard(self._start.state, again.final)
        self._context.note(look_ups=added, solution_calls=len(again.calls))

    # -- the checks -----------------------------------------------------------------------------------------------

    async def _ask_checks(self, draft: TaskDraft) -> tuple[list[ChecklistItem], list[DroppedItem]]:
        """Ask for one function per item. An item whose function cannot be used is dropped."""

        async def ask_check(number: int, item: str) -> ChecklistItem | DroppedItem:
            values = {**self._values, "task": draft.task, "item": item}
            try:
                code = await self._context.ask(CHECK_PROMPT, values, read_check, label=f"check{number}")
            except Refused as refused:
                return DroppedItem(item=item, reason=refused.reason, detail=refused.detail)
            return ChecklistItem(item=item, code=code)

        asked = await ask_together(*(ask_check(number, item) for number, item in enumerate(draft.checklist, start=1)))
        found = [each for each in asked if isinstance(each, ChecklistItem)]
        return found, [each for each in asked if isinstance(each, DroppedItem)]

    async def _judge(
        self, checks: Sequence[ChecklistItem], played: PlayedSolution
    ) -> tuple[list[ChecklistItem], list[DroppedItem]]:
        kept, dropped = [], []
        async with self._open_sandbox() as backend:
            for check in checks:
                fault = await judge_check(backend, self._start.state, played.changes, check.code)
                if fault is None:
                    kept.append(check)
                else:
                    dropped.append(DroppedItem(item=check.item, reason=fault[0], detail=fault[1]))
        return kept, dropped

    def _make_scenario(
        self,
        draft: TaskDraft,
        solution: list[Action],
        checks: list[ChecklistItem],
        dropped: list[DroppedItem],
        guard: str | None,
    ) -> Scenario:
        return Scenario(
            environment=self._start.environment,
            state=self._state_key,
            task=draft.task,
            checklist=checks,
            guard=guard,
            dropped=dropped,
            solution=solution,
        )

    @contextlib.asynccontextmanager
    async def _open_sandbox(self) -> AsyncIterator[ExecutableBackend]:
        """The environment's code in a sandbox."""
        async with self._context.execution() as folder:
            write_environment(folder / "pack", self._built)
            backend = ExecutableBackend(Pack.load(folder / "pack"), limits=LIMITS)
            try:
                yield backend
            finally:
                await backend.close()


def format_calls(calls: Sequence[Action]) -> str:
    """Calls as JSON, one a line; empty for none."""
    lines = ",\n".join(f"  {call.model_dump_json(exclude={'by'})}" for call in calls)
    return f"[\n{lines}\n]" if lines else ""
