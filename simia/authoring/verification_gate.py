"""The verification gate: a task passes if its solution earns 1, doing nothing earns 0, and acting without reading the task does not solve it.

None of the five papers has such a gate, and their released verifiers need one: an agent that does nothing scores 0.17 on one set, and an
unchanged database passes on another (facts in docs/packs.md). The gate compares effects, not calls: an agent whose final state equals the
solution's has solved the task. Episodes of agents that do not read the task are played once for each start and scored by every task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simia.authoring.code_lint import lint_code
from simia.authoring.findings import Fault, Finding
from simia.authoring.gate_agents import group_by_start, play_task, split_by_calls
from simia.authoring.gate_report import GateReport, TaskVerdict, describe_reward
from simia.authoring.name_checks import suggest_names
from simia.authoring.pack_coverage import check_coverage, find_unseen_state
from simia.authoring.reference_checks import (
    check_checklist,
    check_contracts,
    check_incomplete_solution,
    check_integrity,
    check_record,
    check_refused_calls,
    check_repeatable,
    list_changes,
    value_or_zero,
)
from simia.authoring.state_mutations import StateMutation, find_mutations
from simia.authoring.tool_tests import BROKEN
from simia.envs.environment import Environment
from simia.envs.play.baseline_agents import (
    CannedAgent,
    EchoAgent,
    NothingAgent,
    PolicyAgent,
    ReferenceAgent,
    make_text_message,
)
from simia.envs.rewards import score_trajectory
from simia.envs.rewards.environment_value import list_value_paths, pick_values
from simia.envs.rewards.state_match import judge_state
from simia.envs.rewards.trace import judge_trace
from simia.envs.users import EpisodeView, NoUser, ScriptedUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.pack import find_pack_file
from simia.reward import Reward
from simia.reward_spec import AnswerSpec, Match, StateSpec, TraceSpec, ValueSpec
from simia.state import Change, apply_changes
from simia.statistics import SUCCESS
from simia.task import Task
from simia.terminal import write_count
from simia.trajectory import Message, Trajectory

IDLE = {
    "nothing": (Fault.NOTHING_SCORES, NothingAgent),
    "canned": (Fault.CANNED_SCORES, CannedAgent),
    "echo": (Fault.ECHO_SCORES, EchoAgent),
    "policy": (Fault.POLICY_SCORES, PolicyAgent),
}
UNREAD = {"random": Fault.RANDOM_SCORES, "all_calls": Fault.ALL_CALLS_SCORE}
MOST_OTHERS = 200  # solutions of other tasks with the same start, which are scored but not played again
PLAYED_OTHERS = 2  # solutions of other tasks that start elsewhere
MOST_CHECKED = 3  # checks are run for twice as many mutations of a task's final state
EXPLAINED = {
    Fault.REFERENCE_FAILS, Fault.NOTHING_TO_VERIFY, Fault.NOTHING_SCORES, Fault.CANNED_SCORES, Fault.ECHO_SCORES,
    Fault.POLICY_SCORES, Fault.RANDOM_SCORES, Fault.ALL_CALLS_SCORE, Fault.OTHER_SCORES, Fault.INCOMPLETE_SCORES,
    Fault.MUTATED_SCORES, Fault.SIDE_EFFECT_SCORES, Fault.TRUE_AT_RESET,
}  # fmt: skip
"""Faults that result from a reward which cannot see the state."""


async def verify_tasks(
    environment: Environment,
    tasks: Sequence[Task],
    *,
    others: Sequence[Task] = (),
    concurrency: int = 16,
    on_task: Callable[[], None] = lambda: None,
) -> GateReport:
    """Verify tasks in a pack's executable world; the pack need not contain them. `on_task` is called after each task's own episodes.

    `others`: tasks that are not verified themselves. Their solutions must not solve the verified tasks.

    Raises `UserError` for a pack that cannot be opened.
    """
    if not isinstance(environment.backend, ExecutableBackend):
        raise UserError(
            f"pack {environment.pack.name}: the gate needs the executable world: open it with that back end"
        )
    await environment.backend.start()  # a problem of all tasks is reported once
    return await VerificationGate(environment, environment.backend, tasks, concurrency, others).run(on_task)


class VerificationGate:
    """One run of the gate over tasks of a pack."""

    def __init__(
        self,
        environment: Environment,
        backend: ExecutableBackend,
        tasks: Sequence[Task],
        concurrency: int,
        others: Sequence[Task] = (),
    ) -> None:
        self._environment, self._backend, self._tasks = environment, backend, tasks
        self._others = others
        self._room = asyncio.Semaphore(concurrency)
        self._starts = group_by_start(tasks)
        in_pack = {task.id for task in environment.pack.tasks}
        self._parts = split_by_calls([*environment.pack.tasks, *(task for task in tasks if task.id not in in_pack)])
        self._verdicts = {task.id: TaskVerdict(task.id) for task in tasks}

    async def run(self, on_task: Callable[[], None]) -> GateReport:
        async def own(task: Task) -> None:
            async with self._room:
                await self._guard(task, self._verify_solution)
            on_task()

        async def others(task: Task) -> None:
            async with self._room:
                await self._guard(task, self._verify_floors)

        await asyncio.gather(*map(own, self._tasks))
        await asyncio.gather(*map(others, self._tasks))
        report = GateReport(list(self._verdicts.values()))
        pack = self._environment.pack
        played = {task.id: verdict.reference for task in self._tasks if (verdict := self._verdicts[task.id]).reference}
        unseen = find_unseen_state(self._tasks, played, self._backend.writes)
        for task in unseen:
            verdict = self._verdicts[task.id]
            verdict.findings = [finding for finding in verdict.findings if finding.fault not in EXPLAINED]
            verdict.findings.append(Finding(Fault.STATE_UNSEEN, task.id, "see the pack's finding"))
        if unseen:
            words = (
                f"in {write_count(len(unseen), 'task')} tools that write were called and the state never changed, so these rewards cannot see what was "
                "done: give the world's state to `dump`, or judge by trace or answer parts"
            )
            report.findings.append(Finding(Fault.STATE_UNSEEN, pack.name, words))
        how = pack.executable
        if how is not None and pack.root is not None and how.python is None:
            code = lint_code(find_pack_file(pack.root / "pack.yaml", how.code), isolation=how.isolation)
            report.findings += [finding for finding in code if finding.fault in (Fault.NETWORK, Fault.CLOCK)]
        if len(self._tasks) == len(pack.tasks):
            initial = await self._starts[self._tasks[0].id].initial(self._backend) if played else {}
            report.findings += check_coverage(pack, initial, list(played.values()))
        return report

    async def _guard(self, task: Task, verify: Callable[[Task, TaskVerdict], Any]) -> None:
        verdict = self._verdicts[task.id]
        if any(finding.fault in (Fault.NO_START, Fault.UNKNOWN_TOOL) for finding in verdict.findings):
            return
        try:
            await verify(task, verdict)
        except UserError as error:  # this task cannot be set up; the others can still be verified
            verdict.findings.append(Finding(Fault.NO_START, task.id, str(error).split(": ", 1)[-1]))

    # -- the solution ---------------------------------------------------------------------------------------------

    async def _verify_solution(self, task: Task, verdict: TaskVerdict) -> None:
        """Play the solution twice, and again without its last write; score mutations of its final state."""
        found, environment, backend = verdict.findings, self._environment, self._backend
        pack, start = environment.pack, self._starts[task.id]
        known = {tool.name for tool in (*pack.tools, *pack.user_tools)}
        if unknown := sorted({action.name for action in task.actions} - known):
            found.append(Finding(Fault.UNKNOWN_TOOL, task.id, suggest_names(unknown, known)))
            return
        first = start.tasks[0]
        alike = await start.once("repeatable", lambda: check_repeatable(backend, first))
        found += [Finding(finding.fault, task.id, finding.detail) for finding in alike]
        if task.reward.unjudged:
            found.append(Finding(Fault.UNJUDGED, task.id, ", ".join(task.reward.unjudged)[:200]))
        initial = await start.initial(backend)
        if task is first:
            found += await check_integrity(backend, task, initial, [], "at the start")
        if not task.solved:
            found.append(Finding(Fault.NO_SOLUTION, task.id, "it has no reference, script or goals to verify it with"))
            return
        reference = verdict.reference = await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))
        again = await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))
        if reference.id != again.id or reference.evidence != again.evidence:
            found.append(Finding(Fault.NOT_REPEATABLE, task.id, "the reference played twice gives two episodes"))
        if failed := [m for m in reference.messages if m.error in BROKEN]:
            found.append(Finding(Fault.TOOL_FAILED, task.id, f"{failed[0].name}: {failed[0].text[:200]}"))
        if value_or_zero(reference.reward) < SUCCESS:
            if not failed and verifies_nothing(task, reference):
                words = "the solution changes nothing, and no answer or trace part says what else it must do"
                found.append(Finding(Fault.NOTHING_TO_VERIFY, task.id, words))
            else:
                cause = f"{failed[0].name} failed, see tool_failed; " if failed else ""
                found.append(
                    Finding(Fault.REFERENCE_FAILS, task.id, f"{cause}reward {describe_reward(reference.reward)}")
                )
        found += check_refused_calls(environment, task, reference)
        found += await check_incomplete_solution(environment, task, reference)
        found += check_checklist(task, reference, again)
        found += check_record(pack, task, reference)
        if changes := list_changes(reference):
            found += await check_integrity(backend, task, initial, changes, "after the solution")
        found += await check_contracts(backend, task)
        if value_or_zero(reference.reward) >= SUCCESS:
            found += await self._check_mutations(task, reference, initial)

    async def _check_mutations(self, task: Task, reference: Trajectory, initial: Any) -> list[Finding]:
        """Score mutated final states: they must not solve the task if the reward judges the state; other rewards get a remark."""
        kinds = {part.kind for part in task.goals[-1].parts} if task.goals else list_part_kinds(task)
        needed = {"state"} if task.goals else {"state", "checklist", "answer"}  # a goal's checks are not run again
        if not kinds & needed or not isinstance(initial, dict):
            return []
        judged = "state" in kinds
        scoring: list[StateMutation] = []
        checked = own = 0
        for mutation in find_mutations(
            initial, reference, list_policies(task, self._environment.pack.match), described=judged
        ):
            scored = await self._score(task, reference, mutation.changes, initial, checks=checked < 2 * MOST_CHECKED)
            own += mutation.own and scored is not None
            checked += "checklist" in kinds
            if scored is not None and value_or_zero(scored) >= threshold(task):
                scoring.append(mutation)
        missed = [mutation for mutation in scoring if mutation.own]
        words = f"{'; '.join(map(str, scoring[:3]))}: the reward is the same"
        if scoring and (judged or (own and len(missed) == own and "checklist" in kinds)):
            return [Finding(Fault.MUTATED_SCORES, task.id, words)]
        return [Finding(Fault.SIDE_EFFECT_SCORES, task.id, f"{words}; a state part would see it")] if scoring else []

    # -- agents that do not read the task ---------------------------------------------------------------------------

    async def _verify_floors(self, task: Task, verdict: TaskVerdict) -> None:
        """Score agents that do not read the task, and the solutions of other tasks."""
        environment, backend, start = self._environment, self._backend, self._starts[task.id]
        played = await start.play_unread(environment, task, self._parts if backend.repeatable else None)
        idle = played.pop("nothing")[0]
        for name, (fault, agent) in IDLE.items():
            if task.goals:
                reward = (await play_task(environment, task, agent(task), NoUser(task))).reward
            else:
                reward = await self._score(task, await say_instead(idle, task, agent(task)), list_changes(idle), None)
            verdict.floors[name] = value_or_zero(reward)
            if value_or_zero(reward) > 0:
                verdict.findings.append(Finding(fault, task.id, describe_reward(reward)))
        for name, trajectories in played.items():
            for trajectory in trajectories:
                reward = trajectory.reward if task.goals else await self._score_other(task, trajectory)
                value = value_or_zero(reward)
                verdict.floors[name] = max(verdict.floors.get(name, 0.0), value)
                if value >= threshold(task) and not self._reaches_goal(task, verdict, trajectory):
                    verdict.findings.append(Finding(UNREAD[name], task.id, describe_reward(reward)))
                    break
        if verdict.reference is not None:
            await self._verify_other_solutions(task, verdict)

    async def _verify_other_solutions(self, task: Task, verdict: TaskVerdict) -> None:
        start = self._starts[task.id]
        alike = [] if task.goals else [each for each in start.tasks if each.actions != task.actions][:MOST_OTHERS]
        found: list[str] = []
        for other in alike:
            trajectory = self._verdicts[other.id].reference
            if trajectory is None or self._reaches_goal(task, verdict, trajectory, other):
                continue
            reward = await self._score_other(task, trajectory)
            if value_or_zero(reward) >= threshold(task):
                found.append(f"{other.id} scores {value_or_zero(reward):g}")
        given = [each for each in self._others if each.actions != task.actions]
        for other in (*self._list_neighbours(task, max(0, PLAYED_OTHERS - len(alike))), *given):
            trajectory = await play_task(self._environment, task, ReferenceAgent(other), ScriptedUser(other))
            reward = trajectory.reward
            if value_or_zero(reward) >= threshold(task) and not self._reaches_goal(task, verdict, trajectory, other):
                found.append(f"{other.id} scores {value_or_zero(reward):g}")
        if found:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            verdict.findings.append(
                Finding(Fault.OTHER_SCORES, task.id, f"the solution of {', '.join(found[:3])}{more}")
            )

    def _list_neighbours(self, task: Task, most: int) -> list[Task]:
        """Return at most `most` tasks with another start, beginning with the tasks that precede this one."""
        at, start = list(self._verdicts).index(task.id), self._starts[task.id]
        before = [self._tasks[at - n] for n in range(1, len(self._tasks))]
        others = [each for each in before if each.solved and (self._starts[each.id] is not start or each.goals)]
        return [each for each in others if each.actions != task.actions][:most]

    def _reaches_goal(
        self, task: Task, verdict: TaskVerdict, trajectory: Trajectory, other: Task | None = None
    ) -> bool:
        """Whether an episode ends in the same state as the solution. If the solution changes nothing, the episode must also make all
        of the solution's calls, or be the solution of a task with the same answers."""
        if verdict.reference is None:
            return False
        evidence = {"changes": list_changes(trajectory), "expected": list_changes(verdict.reference)}
        compared = trajectory.model_copy(update={"evidence": evidence})
        judged = judge_state(compared, StateSpec(), list_policies(task, self._environment.pack.match))
        if judged.value != 1.0:
            return False
        if not judged.vacuous:
            return True
        if task.actions and judge_trace(compared, TraceSpec(), task.actions).value == 1.0:
            return True
        return other is not None and bool(list_answers(task)) and list_answers(task) <= list_answers(other)

    async def _score_other(self, task: Task, trajectory: Trajectory) -> Reward | None:
        return await self._score(task, trajectory, list_changes(trajectory), None)

    async def _score(
        self, task: Task, trajectory: Trajectory, changes: list[Change], initial: Any, *, checks: bool = True
    ) -> Reward | None:
        """Score this task with the episode of another task, or with mutated changes. Checks are run only if the reward depends on them;
        if it does and `checks` is false, the reward is None."""
        backend, pack = self._backend, self._environment.pack
        evidence = {**(trajectory.evidence or {}), "changes": changes}
        parts = list_part_kinds(task)
        if "state" in parts and backend.repeatable:
            evidence["expected"] = await backend.expected(task, 0)
        evidence["writes"] = sorted(name for name, writes in backend.writes.get("agent", {}).items() if writes)
        if any(isinstance(part, ValueSpec) for part in task.reward.parts):
            start = initial if initial is not None else await self._starts[task.id].initial(backend)
            evidence["values"] = pick_values(apply_changes(start, changes), list_value_paths(task.reward.parts))
        if task.goals:
            turns = [dict(turn) for turn in evidence.get("turns", [])]
            evidence["turns"] = [*turns[:-1], {**turns[-1], "changes": changes}] if turns else turns

        def score() -> Reward:
            whole = trajectory.model_copy(update={"evidence": evidence})
            return score_trajectory(whole, task.reward, reference=task.actions, policies=pack.match, goals=task.goals)

        if "checklist" not in {part.kind for part in task.reward.parts}:
            return score()
        evidence["at_reset"] = await backend.at_reset(task, 0)
        evidence["checks"] = dict.fromkeys(evidence["at_reset"], True)
        if not value_or_zero(score()):
            return score()
        if not checks:
            return None
        evidence["checks"] = await backend.checks(task, 0, changes)
        return score()


async def say_instead(idle: Trajectory, task: Task, agent: Any) -> Trajectory:
    """Make an episode without calls: this task's first message, and what this agent answers."""
    asked = await NoUser(task).reply(EpisodeView(None, (), []))
    opening = asked if isinstance(asked, Message) else make_text_message("")
    said, _ = await agent.act(EpisodeView(idle.system, (opening,), []))
    return idle.model_copy(update={"messages": [opening, said]})


def verifies_nothing(task: Task, reference: Trajectory) -> bool:
    """Whether the solution changes nothing and no part judges anything but the state."""
    return not list_changes(reference) and list_part_kinds(task) <= {"state", "goals"}


def list_part_kinds(task: Task) -> set[str]:
    """The kinds of a reward's parts, those of goals among them."""
    return {part.kind for part in task.reward.parts} | {part.kind for goal in task.goals for part in goal.parts}


def list_policies(task: Task, policies: Mapping[str, Match]) -> dict[str, Match]:
    """The pack's match policies with those of the task's state parts."""
    parts = [*task.reward.parts, *(part for goal in task.goals for part in goal.parts)]
    own = {path: policy for part in parts if isinstance(part, StateSpec) for path, policy in part.policies.items()}
    return {**policies, **own}


def list_answers(task: Task) -> set[tuple[str, str]]:
    """What a task's answer parts ask for."""
    parts = [*task.reward.parts, *(part for goal in task.goals for part in goal.parts)]
    return {(part.match, text) for part in parts if isinstance(part, AnswerSpec) for text in part.expect}


def threshold(task: Task) -> float:
    """The least reward that means "solved": 1 if the task also rewards a part of the work, else any reward above 0."""
    parts = [*task.reward.parts, *(part for goal in task.goals for part in goal.parts)]
    graded = (
        any(isinstance(part, ValueSpec) or getattr(part, "partial", False) for part in parts)
        or task.reward.combine == "mean"
    )
    return SUCCESS if graded else 1e-9
