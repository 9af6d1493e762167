"""The verification gate's checks of one task's start and solution: repeatable, complete, within the tools' contracts, state valid."""

from __future__ import annotations

from collections.abc import Sequence

from simia.authoring.findings import Fault, Finding
from simia.authoring.gate_agents import play_task
from simia.authoring.tool_tests import BROKEN
from simia.envs.environment import Environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.following_agent import ID
from simia.envs.users import ScriptedUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Code
from simia.json_values import iterate_strings
from simia.pack import Pack
from simia.reward import Reward
from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.state import Change, apply_changes
from simia.statistics import SUCCESS
from simia.task import Action, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall, Trajectory, digest

SHOWN = 3


def value_or_zero(reward: Reward | None) -> float:
    return reward.value or 0.0 if reward else 0.0


def list_changes(trajectory: Trajectory) -> list[Change]:
    """The changes of the state at the end of an episode."""
    return (trajectory.evidence or {}).get("changes") or []


async def check_repeatable(backend: ExecutableBackend, task: Task) -> list[Finding]:
    """Check that two resets give the same state, and that a state stays the same when it is written out and read again."""
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
    """Check that the solution without its last write does not score in full, if that write changes anything. If the last call only
    ends the episode, the check may be passed by leaving out the write before it."""
    changes = list_changes(reference)
    written = find_writes(environment, task, reference)
    if not written or not changes:
        return []
    for last in written[: 2 if reference.end.code is Code.FINISHED else 1]:
        short = remove_action(task, last)
        almost = await play_task(environment, task, ReferenceAgent(short), ScriptedUser(short))
        same = list_changes(almost) == changes  # the write that was left out had changed nothing
        if value_or_zero(almost.reward) < SUCCESS or same:
            return []
    return [
        Finding(Fault.INCOMPLETE_SCORES, task.id, f"without {last.name} it scores {value_or_zero(almost.reward):g}")
    ]


def check_refused_calls(environment: Environment, task: Task, reference: Trajectory) -> list[Finding]:
    """Report calls of the solution that may change the state and that the tool refuses. That is right only in a task about the refusal;
    in any other task an agent whose call succeeds ends in another state than the solution."""
    found = []
    results = [at for at, message in enumerate(reference.messages) if message.role == "tool"]
    for number, (action, at) in enumerate(zip(task.actions, results, strict=False), start=1):
        result = reference.messages[at]
        if result.error is None or result.error in BROKEN or not may_write(environment, action):
            continue
        texts = [reference.system or "", *(message.text for message in reference.messages[:at])]
        seen = {each for text in texts for each in ID.findall(text)}
        named = [each for text in iterate_strings(action.arguments) for each in ID.findall(text) if each not in seen]
        unseen = f"; no message before it has {', '.join(named[:SHOWN])}" if named else ""
        words = f"call {number} of the solution, {action.name}, is refused: {result.text[:200]}{unseen}"
        found.append(Finding(Fault.REFUSED_CALL, task.id, words))
    return found


def find_writes(environment: Environment, task: Task, reference: Trajectory) -> list[Action]:
    """The actions of the solution that may change the state and were not refused when they were played, the last first."""
    results = [message for message in reference.messages if message.role == "tool"]
    return [
        action
        for action, result in reversed(list(zip(task.actions, results, strict=False)))
        if result.error is None and may_write(environment, action)
    ]


def may_write(environment: Environment, action: Action) -> bool:
    """Whether an action may change the state."""
    backend = environment.backend
    writes = backend.writes if isinstance(backend, ExecutableBackend) else {}
    return writes.get(action.by, {}).get(action.name, True)


def remove_action(task: Task, action: Action) -> Task:
    """The task with one action taken out of its solution (that very one, not one that equals it)."""
    script = []
    for turn in task.script:
        left = None if turn.calls is None else [a for a in turn.calls if a is not action]
        if left != []:
            script.append(turn if left is None else turn.model_copy(update={"calls": left}))
    goals = [goal.model_copy(update={"calls": [a for a in goal.calls if a is not action]}) for goal in task.goals]
    reference = [a for a in task.reference if a is not action]
    return task.model_copy(update={"script": script, "reference": reference, "goals": goals})


def check_checklist(task: Task, first: Trajectory, second: Trajectory) -> list[Finding]:
    """Check that the checklist gives equal results on equal states, and report its items that hold already at reset."""
    evidence = first.evidence or {}
    found = []
    if evidence.get("checks") != (second.evidence or {}).get("checks"):
        found.append(Finding(Fault.IMPURE_CHECK, task.id, "two runs on the same state differ"))
    held = [item for item, result in (evidence.get("at_reset") or {}).items() if result is True]
    if held:
        found.append(Finding(Fault.TRUE_AT_RESET, task.id, f"{len(held)}: {', '.join(held)[:200]}"))
    return found


def check_record(pack: Pack, task: Task, reference: Trajectory) -> list[Finding]:
    """Check that the recorded reference trajectory, if any, has the calls and results of the solution played now."""
    recorded = pack.references.get(task.id)
    if recorded is None:
        return []
    old, new = ([(m.role, m.text, [c.name for c in m.calls]) for m in each.messages] for each in (recorded, reference))
    return (
        [] if old == new else [Finding(Fault.STALE_REFERENCE, task.id, "played now it differs: run simia pack record")]
    )


async def check_integrity(
    backend: ExecutableBackend, task: Task, initial: object, changes: list[Change], when: str
) -> list[Finding]:
    """Check the state by the pack's schema: keys, references, values and constraints."""
    schema = backend.pack.state_schema
    if schema is None:
        return []
    broken = schema.find_violations(apply_changes(initial, changes))
    if schema.constraints:
        spec = RewardSpec(parts=[ChecklistSpec(functions=schema.constraints)])
        checked = await backend.checks(task.model_copy(update={"reward": spec}), 0, changes)
        broken += [f"constraint {name}: {result}" for name, result in checked.items() if result is not True]
    more = f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
    return [Finding(Fault.INTEGRITY, task.id, f"{when}: {'; '.join(broken[:SHOWN])}{more}")] if broken else []


async def check_contracts(backend: ExecutableBackend, task: Task) -> list[Finding]:
    """Check that no call of the solution changes a table that its tool does not declare to write."""
    pack = backend.pack
    specs = {("agent", tool.name): tool for tool in pack.tools} | {
        ("user", tool.name): tool for tool in pack.user_tools
    }
    if all(specs[action.by, action.name].writes is None for action in task.actions):
        return []
    found: list[Finding] = []
    world = await backend.open(task, seed=0)
    try:
        before: list[Change] = []
        for action in task.actions:
            await world.call([ToolCall(id="", name=action.name, arguments=action.arguments)], by=action.by)
            after = await world.changes()
            tool = specs[action.by, action.name]
            if strange := find_undeclared_writes(pack, tool, before, after):
                detail = f"{tool.name} changes {', '.join(strange)}, which its `writes` does not name"
                found.append(Finding(Fault.CONTRACT, task.id, detail))
            before = after
    finally:
        await world.close()
    return list(dict.fromkeys(found))


def find_undeclared_writes(pack: Pack, tool: ToolSpec, before: Sequence[Change], after: Sequence[Change]) -> list[str]:
    """Tables that changed between two lists of changes since the start, and that the tool does not declare to write."""
    if tool.writes is None:
        return []
    old, new = ({tuple(each["path"]): each for each in changes} for changes in (before, after))
    paths = [list(path) for path in old | new if old.get(path) != new.get(path)]
    schema = pack.state_schema
    tables = {(schema.find_table(path) if schema else None) or path[0] for path in paths if path}
    return sorted(tables - set(tool.writes))
