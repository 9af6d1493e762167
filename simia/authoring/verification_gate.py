"""The verification gate: a task passes if its reward is 1 for the reference and 0 for doing nothing.

Of the five papers none has it, and their released verifiers show why: a do-nothing agent scores 0.17 on one set, an
untouched database passes on another (facts in docs/packs.md). Each task is played by the reference, by agents that do
nothing in four ways, by the reference without its last write, and (sampled) by another task's solution; resets and replays
must give the same bytes; checks must be pure, and those that hold at reset are named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simia.authoring.findings import Fault, Finding
from simia.authoring.tool_tests import BROKEN
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import CannedAgent, EchoAgent, NothingAgent, PolicyAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import NoUser, ScriptedUser, User
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Code, UserError
from simia.task import Action, Task
from simia.trajectory import Trajectory, digest

IDLE = {
    Fault.NOTHING_SCORES: NothingAgent,
    Fault.CANNED_SCORES: CannedAgent,
    Fault.ECHO_SCORES: EchoAgent,
    Fault.POLICY_SCORES: PolicyAgent,
}
FULL = 1.0 - 1e-9
LIMITS = EpisodeLimits(turns=200, errors=200)


@dataclass(slots=True)
class TaskVerdict:
    """One task at the gate. `reference`: its trajectory; `floor`: the best reward of doing nothing."""

    task: str
    findings: list[Finding] = field(default_factory=list)
    reference: Trajectory | None = None
    floor: float = 0.0

    @property
    def passed(self) -> bool:
        return not any(finding.refuses for finding in self.findings)


async def verify_tasks(
    environment: Environment,
    tasks: Sequence[Task],
    *,
    concurrency: int = 16,
    on_verdict: Callable[[TaskVerdict], None] | None = None,
) -> list[TaskVerdict]:
    """A verdict for each task, in their order."""
    await environment.backend.start()  # a problem of all tasks is reported once
    room = asyncio.Semaphore(concurrency)

    async def one(index: int, task: Task) -> TaskVerdict:
        async with room:
            try:
                verdict = await verify_task(environment, task, tasks[index - 1] if len(tasks) > 1 else None)
            except UserError as error:  # it cannot be set up: the others can be judged all the same
                verdict = TaskVerdict(task.id)
                verdict.findings.append(Finding(Fault.NO_START, task.id, str(error).split(": ", 1)[-1]))
        if on_verdict:
            on_verdict(verdict)
        return verdict

    return list(await asyncio.gather(*(one(i, task) for i, task in enumerate(tasks))))


async def verify_task(environment: Environment, task: Task, other: Task | None) -> TaskVerdict:
    verdict = TaskVerdict(task.id)
    found = verdict.findings
    backend = environment.backend
    unknown = sorted({a.name for a in task.actions} - list_tool_names(environment))
    if unknown:
        found.append(Finding(Fault.UNKNOWN_TOOL, task.id, ", ".join(unknown)))
        return verdict
    if isinstance(backend, ExecutableBackend):
        found += await check_repeatable(backend, task)
    reference = verdict.reference = await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))
    again = await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))
    if reference.id != again.id or reference.evidence != again.evidence:
        found.append(Finding(Fault.NOT_REPEATABLE, task.id, "the reference played twice gives two episodes"))
    failed = [m for m in reference.messages if m.error in BROKEN]
    if failed:
        found.append(Finding(Fault.TOOL_FAILED, task.id, f"{failed[0].name}: {failed[0].text[:200]}"))
    if reward_or_zero(reference) < FULL:
        found.append(Finding(Fault.REFERENCE_FAILS, task.id, describe_reward(reference)))
    for fault, agent in IDLE.items():
        idle = await play_task(environment, task, agent(task), NoUser(task))
        verdict.floor = max(verdict.floor, reward_or_zero(idle))
        if reward_or_zero(idle) > 0:
            found.append(Finding(fault, task.id, describe_reward(idle)))
    found += await check_incomplete_solution(environment, task, reference)
    if other is not None and other.actions != task.actions:
        mixed = task.model_copy(update={"script": other.script, "reference": other.reference})
        strange = await play_task(environment, task, ReferenceAgent(mixed), ScriptedUser(mixed))
        if reward_or_zero(strange) >= FULL:
            found.append(
                Finding(Fault.OTHER_SCORES, task.id, f"the solution of {other.id} scores {reward_or_zero(strange):g}")
            )
    found += check_checklist(task, reference, again)
    if task.reward.unjudged:
        found.append(Finding(Fault.UNJUDGED, task.id, ", ".join(task.reward.unjudged)[:200]))
    return verdict


async def check_repeatable(backend: ExecutableBackend, task: Task) -> list[Finding]:
    """Two resets give the same state, and a state written out and read again is the same state."""
    worlds = [await backend.open(task, seed=0) for _ in range(2)]
    try:
        states = [await world.state() for world in worlds]
    finally:
        for world in worlds:
            await world.close()
    found = []
    if digest(states[0]) != digest(states[1]):
        found.append(Finding(Fault.NOT_REPEATABLE, task.id, "two resets give two states"))
    if backend.by_convention:
        copy = await backend.open(task.model_copy(update={"initial": {"state": states[0]}}), seed=0)
        try:
            if digest(await copy.state()) != digest(states[0]):
                found.append(Finding(Fault.STATE_NOT_ROUND, task.id, "dumped and validated again it is another state"))
        finally:
            await copy.close()
    return found


async def check_incomplete_solution(environment: Environment, task: Task, reference: Trajectory) -> list[Finding]:
    """The reference without its last write must not score in full, where it changes anything. A last call that only says that
    the work is done is no loss either; then it is the write before it."""
    changes = (reference.evidence or {}).get("changes")
    written = find_writes(environment, task, reference)
    if not written or not changes:
        return []
    for last in written[: 2 if reference.end.code is Code.FINISHED else 1]:
        short = remove_action(task, last)
        almost = await play_task(environment, task, ReferenceAgent(short), ScriptedUser(short))
        same = (almost.evidence or {}).get("changes") == changes  # that write changed nothing: it is no loss
        if reward_or_zero(almost) < FULL or same:
            return []
    return [Finding(Fault.INCOMPLETE_SCORES, task.id, f"without {last.name} it scores {reward_or_zero(almost):g}")]


def find_writes(environment: Environment, task: Task, reference: Trajectory) -> list[Action]:
    """The actions of the solution that may change the state and were not refused when they were played, the last first."""
    backend = environment.backend
    writes = backend.writes if isinstance(backend, ExecutableBackend) else {}
    results = [message for message in reference.messages if message.role == "tool"]
    return [
        action
        for action, result in reversed(list(zip(task.actions, results, strict=False)))
        if result.error is None and writes.get(action.by, {}).get(action.name, True)
    ]


def remove_action(task: Task, action: Action) -> Task:
    """The task with one action taken out of its solution (that very one, not one that equals it)."""
    script = []
    for turn in task.script:
        left = None if turn.calls is None else [a for a in turn.calls if a is not action]
        if left != []:
            script.append(turn if left is None else turn.model_copy(update={"calls": left}))
    reference = [a for a in task.reference if a is not action]
    return task.model_copy(update={"script": script, "reference": reference})


def check_checklist(task: Task, first: Trajectory, second: Trajectory) -> list[Finding]:
    evidence = first.evidence or {}
    found = []
    if evidence.get("checks") != (second.evidence or {}).get("checks"):
        found.append(Finding(Fault.IMPURE_CHECK, task.id, "two runs on the same state differ"))
    held = [item for item, result in (evidence.get("at_reset") or {}).items() if result is True]
    if held:
        found.append(Finding(Fault.TRUE_AT_RESET, task.id, f"{len(held)}: {', '.join(held)[:200]}"))
    return found


async def play_task(environment: Environment, task: Task, agent: Agent, user: User) -> Trajectory:
    """One episode of this task with this user."""
    arena = Environment(
        environment.pack, environment.backend, backend_name=environment.backend_name, user=lambda _: user, limits=LIMITS
    )
    return await play(await arena.reset(task), agent)


def list_tool_names(environment: Environment) -> set[str]:
    return {tool.name for tool in (*environment.pack.tools, *environment.pack.user_tools)}


def reward_or_zero(trajectory: Trajectory) -> float:
    return trajectory.reward.value or 0.0 if trajectory.reward else 0.0


def describe_reward(trajectory: Trajectory) -> str:
    reward = trajectory.reward
    if reward is None:
        return "no reward"
    if reward.error and reward.error is not Code.UNSCORED:
        return f"{reward.error}: {reward.rationale[:200]}"
    return f"{reward.value}: {' '.join(reward.rationale.split())[:300]}"
