"""Check a variant: its solution executes, it differs from its task as requested, and the verification gate passes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from simia.authoring.task_variants import NoVariant
from simia.authoring.variant_checks import VariedTask, check_withheld, is_mentioned
from simia.authoring.verification_gate import verify_tasks
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.users import NoUser, ScriptedUser, UserMaker
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.synthesis.reasons import Reason
from simia.synthesis.scenarios.scenario_prompts import list_values
from simia.synthesis.scenarios.solution_runs import PlayedSolution, play_calls
from simia.synthesis.stages.gated import explain_faults
from simia.synthesis.varying.task_drafts import (
    EASIER,
    TaskChange,
    VariantDraft,
    is_single_message,
    make_varied_task,
    patch_start,
)
from simia.task import Task

Fault = tuple[Reason, str]


@asynccontextmanager
async def open_source(pack: Pack, grants: Mapping[str, Any], **settings: Any) -> AsyncIterator[Environment]:
    """Open a pack with its executable world and a user without a model. `grants`: what a pack may read, or its network."""

    def make_user(task: Task) -> NoUser | ScriptedUser:
        return ScriptedUser(task) if task.conversation and pack.user != "none" else NoUser(task)

    user: UserMaker = make_user
    async with await open_environment(pack, backend="executable", user=user, **grants, **settings) as environment:
        yield environment


def get_backend(environment: Environment) -> ExecutableBackend:
    """The executable back end of an environment that `open_source` opened."""
    backend = environment.backend
    assert isinstance(backend, ExecutableBackend)
    return backend


async def read_start(backend: ExecutableBackend, task: Task) -> Any:
    """The state in which a task starts."""
    async with await backend.open(task, seed=0) as world:
        return await world.initial()


async def check_draft(environment: Environment, task: Task, change: TaskChange, draft: VariantDraft) -> Task | Fault:
    """Execute a draft of a variant of `task`. Returns the variant, or what is wrong."""
    pack, backend = environment.pack, get_backend(environment)
    if (
        is_single_message(pack, task)
        and draft.withheld is None
        and sum(turn.user is not None for turn in draft.script) > 1
    ):
        return (
            Reason.CHANGE_NOT_MADE,
            "the task is one message without a conversation: the script has one turn of the user",
        )
    start = Task(id=task.id, initial=patch_start(pack, task, draft.patch), tools=task.tools)
    played = await play_calls(backend, start, draft.calls)
    if len(played.calls) < len(draft.calls):
        return Reason.REFERENCE_FAILS, played.fault or "a call fails"
    if not played.changes and not draft.expect:
        words = "the calls change nothing, and `expect` names nothing that the answer must contain"
        return Reason.NOTHING_TO_VERIFY, words
    variant = make_varied_task(pack, task, change, draft, played.calls)
    alike = await read_start(backend, start) == await read_start(backend, task)
    if words := find_change_fault(task, variant, change, played, alike=alike):
        return Reason.CHANGE_NOT_MADE, words
    if draft.needed is not None and (fault := await check_withholding(environment, variant, draft)):
        return fault
    verdict = (await verify_tasks(environment, [variant], others=[task])).verdicts[0]
    if not verdict.passed:
        return explain_faults([finding for finding in verdict.findings if finding.refuses])
    return variant


async def check_withholding(environment: Environment, variant: Task, draft: VariantDraft) -> Fault | None:
    """Check that an agent must ask for the withheld value."""
    backend, needed = get_backend(environment), draft.needed
    assert needed is not None
    declared = (await backend.declared()).get("agent", {})
    writing = {name for name, tool in declared.items() if tool.get("writes", True)}
    fault: NoVariant | None = await check_withheld(environment, variant, needed, writing, VariedTask(variant.id))
    if fault is None:
        return None
    return (Reason.REFERENCE_FAILS if fault.fault == "solution_fails" else Reason(str(fault.fault))), fault.detail


def find_change_fault(task: Task, variant: Task, change: TaskChange, played: PlayedSolution, *, alike: bool) -> str:
    """Return why a variant does not differ from its task as requested; empty if it does. `alike`: both start in the same state."""
    before, after = task.agent_actions, variant.agent_actions
    if change == "dependent_call" and not (len(after) > len(before) and has_dependent_call(variant, played)):
        return (
            f"the solution has {len(after)} calls, {len(before)} before; there must be more, and one must have an argument that only an "
            "earlier result gives"
        )
    if change == "distractor" and alike:
        return "the start is that of the task: `patch` must add rows"
    same = alike and [each.model_dump() for each in after] == [each.model_dump() for each in before]
    if change == "policy_condition" and same:
        return "start and solution are those of the task: the rule must decide something"
    if change == EASIER and len(after) > len(before):
        return f"the solution has {len(after)} calls, {len(before)} before: an easier variant has no more"
    if change == EASIER and same and variant.make_script()[0] == task.make_script()[0]:
        return "first message, start and solution are those of the task"
    return ""


def has_dependent_call(variant: Task, played: PlayedSolution) -> bool:
    """Whether a call has a value that an earlier result gives and that the user does not name."""
    words = "\n".join([variant.instruction, *(turn.user or "" for turn in variant.make_script())]).casefold()
    for place, call in enumerate(played.calls):
        earlier = "\n".join(played.results[:place]).casefold()
        for value in list_values(call.arguments):
            if is_mentioned(value, earlier) and not is_mentioned(value, words):
                return True
    return False


def describe_script(task: Task, results: Sequence[str]) -> list[str]:
    """The turns of a task's script as JSON, a line each, with the results of the calls."""
    left, lines = iter(results), []
    for turn in task.make_script():
        lines.append(turn.model_dump_json(exclude_none=True))
        lines += [f"  result: {next(left, '')}" for _ in turn.calls or ()]
    return lines
