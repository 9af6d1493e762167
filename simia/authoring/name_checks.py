"""Find names that a pack uses but does not define (tools, arguments, tables, check functions), and tasks that contradict its settings."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from simia.authoring.code_lint import MOST_CODE
from simia.authoring.findings import Fault, Finding
from simia.envs.rewards.answer import find_answer_fault
from simia.envs.users.scripted import matches_question
from simia.pack import Pack
from simia.pack_files import read_bytes, read_state
from simia.reward_spec import AnswerSpec, ChecklistSpec, TraceSpec
from simia.state import merge_patch
from simia.state_schema import read_path
from simia.task import Task
from simia.terminal import write_count


def suggest_names(unknown: Collection[str], known: Collection[str]) -> str:
    """List unknown names, each with the known one that was probably meant."""
    near = {name: difflib.get_close_matches(name, known, n=1, cutoff=0.7) for name in unknown}
    return ", ".join(f"{name} (did you mean {found[0]}?)" if found else name for name, found in near.items())


def check_pack_names(pack: Pack) -> list[Finding]:
    """Findings on the pack's own names, then on those of its tasks."""
    own = {tool.name for tool in pack.tools}
    every = own | {tool.name for tool in pack.user_tools}
    functions = list_check_functions(pack)
    found = [*check_graph(pack, every), *check_tables(pack, functions)]
    for task in pack.tasks:
        for key, names, known in list_task_names(task, own, every, functions):
            if strange := sorted(set(names) - known):
                found.append(Finding(Fault.UNKNOWN_NAME, f"task {task.id}", f"{key}: {suggest_names(strange, known)}"))
        calls = len(task.agent_actions)
        most = min((n for n in (task.limits.calls, pack.limits.calls) if n is not None), default=calls)
        if calls > most:
            detail = f"the solution makes {calls} calls, and the limit is {most}"
            found.append(Finding(Fault.TOO_FEW_CALLS, f"task {task.id}", detail))
        found += check_solution_calls(pack, task)
        found += check_answers(task)
        if task.withheld and task.script:
            found += check_withheld(task)
    return [*found, *check_starts(pack), *check_user(pack)]


def check_solution_calls(pack: Pack, task: Task) -> list[Finding]:
    """Check the arguments of a solution's calls by the tools' schemas, unless the pack's code checks arguments itself."""
    if pack.executable is not None and not pack.executable.checks_arguments:
        return []
    specs = {"agent": {tool.name: tool for tool in pack.tools}, "user": {tool.name: tool for tool in pack.user_tools}}
    found = []
    for number, action in enumerate(task.actions, start=1):
        spec = specs[action.by].get(action.name)
        for where, what in spec.argument_errors(action.arguments)[:1] if spec else ():
            detail = f"call {number} of the solution, {action.name}: {where or 'arguments'}: {what}"[:300]
            found.append(Finding(Fault.BAD_CALL, f"task {task.id}", detail))
    return found


def check_answers(task: Task) -> list[Finding]:
    """Check that the expected answers can be compared with an answer: expressions that can be used, numbers, words."""
    parts = [*task.reward.parts, *(part for goal in task.goals for part in goal.parts)]
    faults = [find_answer_fault(each, part) for part in parts if isinstance(part, AnswerSpec) for each in part.expect]
    return [Finding(Fault.BAD_ANSWER, f"task {task.id}", f"expect: {why}"[:300]) for why in faults if why]


def check_withheld(task: Task) -> list[Finding]:
    """Check that the script's agent asks for each withheld fact before the user says it."""
    found, words = [], ""
    facts = {each.fact: each for each in task.withheld}
    for turn in task.script:
        words = turn.agent if turn.agent is not None else words
        fact = facts.get(turn.user or "")
        if fact is not None and not matches_question(fact.asked, words):
            detail = (
                f"the user says {fact.fact[:60]!r} after {words[:60]!r}, which does not match asked: {fact.asked!r}"
            )
            found.append(Finding(Fault.NEVER_ASKED, f"task {task.id}", detail))
    return found


def check_starts(pack: Pack) -> list[Finding]:
    """Check that the tasks' start states satisfy the schema of the state."""
    state = read_initial_state(pack)
    if pack.state_schema is None or not isinstance(state, dict):
        return []
    found = []
    for task in pack.tasks:
        if task.initial:
            start = task.initial.get("state") or merge_patch(state, task.initial.get("patch", {}))
            lines = pack.state_schema.find_violations(start)
            found += [Finding(Fault.INTEGRITY, f"task {task.id}", f"initial: {line}") for line in lines[:3]]
    return found


def list_task_names(
    task: Task, own: set[str], every: set[str], functions: set[str] | None
) -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield (key, names used, names that exist) for each key of a task that holds names."""
    yield "tools", task.tools or [], own
    yield "reveals", [name for reveal in task.reveals for name in reveal.tools], own
    for penalty in task.reward.penalties:
        yield "penalties", penalty.tools or [], own
    for part in [*task.reward.parts, *(part for goal in task.goals for part in goal.parts)]:
        if isinstance(part, TraceSpec):
            yield "trace", [*part.mask, *(part.only or [])], every
        if isinstance(part, ChecklistSpec) and functions is not None:
            yield "checklist", part.functions, functions


def check_user(pack: Pack) -> list[Finding]:
    """Check that a pack without `user` has no task with several user turns in its script: they would not be played."""
    if pack.user != "none":
        return []
    ignored = [
        task.id for task in pack.tasks if sum(turn.user is not None for turn in task.script) > 1 and not task.goals
    ]
    if not ignored:
        return []
    detail = f"pack.yaml names no user, so the user's turns in the scripts of {write_count(len(ignored), 'task')} ({ignored[0]}, …) are not played: "
    return [Finding(Fault.NO_USER, "pack.yaml", f"{detail}write user: scripted, or user: llm")]


def check_graph(pack: Pack, tools: set[str]) -> list[Finding]:
    """Check that each edge of the tool graph joins two tools of the pack and names an argument of its target."""
    found = []
    arguments = {tool.name: set(tool.parameters.get("properties", {})) for tool in (*pack.tools, *pack.user_tools)}
    for edge in pack.graph:
        strange = [name for name in (edge.source, edge.target) if name not in tools]
        if not strange and edge.argument is not None and edge.argument not in arguments[edge.target]:
            strange = [f"{edge.target}.{edge.argument}"]
        if strange:
            found.append(Finding(Fault.UNKNOWN_NAME, f"graph {edge.source} → {edge.target}", ", ".join(strange)))
    return found


def check_tables(pack: Pack, functions: set[str] | None) -> list[Finding]:
    """Check that tools read and write tables of the schema (without a schema, of the state), that the schema's tables and constraints
    exist, and that the state satisfies the schema."""
    found, schema, state = [], pack.state_schema, read_initial_state(pack)
    tables = set(schema.tables) if schema else set(state) if isinstance(state, dict) else None
    for tool in (*pack.tools, *pack.user_tools):
        named = {*(tool.reads or ()), *(tool.writes or ())}
        if tables is not None and (strange := sorted(named - tables)):
            found.append(Finding(Fault.UNKNOWN_NAME, f"tool {tool.name}", f"tables: {', '.join(strange)}"))
    if schema is not None:
        if strange := sorted(set(schema.constraints) - (functions or set())):
            found.append(Finding(Fault.UNKNOWN_NAME, "schema", f"constraints: {', '.join(strange)}"))
        if state is not None:
            missing = [name for name, spec in schema.tables.items() if read_path(state, spec.path or name) is None]
            if missing:
                found.append(Finding(Fault.UNKNOWN_NAME, "schema", f"tables: {', '.join(missing)}"))
            else:
                found += [Finding(Fault.INTEGRITY, "state", line) for line in schema.find_violations(state)]
    return found


def read_initial_state(pack: Pack) -> Any:
    """The tables of the pack's JSON state; None if it has none. Raises `UserError` for a malformed file."""
    path = pack.path_of("state")
    return read_state(path) if path is not None and path.suffix == ".json" and path.is_file() else None


def list_check_functions(pack: Pack) -> set[str] | None:
    """Functions that the checks file defines or imports; empty without one, None if it cannot be read."""
    path: Path | None = pack.path_of("checks")
    if path is None:
        return set()
    try:
        tree = ast.parse(read_bytes(path, MOST_CODE).decode("utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found
