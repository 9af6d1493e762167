"""Check functions of a checklist: read them from replies, run them in the sandbox, and test whether they discriminate.

A check is kept if it is pure, false on the untouched state and true after the solution (EnvScaler §3.3; its released checks hold on
the untouched state in 15.5 % of the cases).
"""

from __future__ import annotations

import ast
import json
from typing import Any

from simia.authoring.code_lint import ADVICE, find_faults
from simia.authoring.findings import Fault
from simia.envs.worlds.executable import ExecutableBackend
from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.state import JSON, Change
from simia.synthesis.reasons import Reason, Unreadable
from simia.synthesis.reply_reading import read_python
from simia.task import Task

MOST_CODE = 4_000  # characters of a check
MACHINE = ("id", "globals", "locals", "vars", "setattr", "delattr")
MODULES = {
    "__future__",
    "collections",
    "datetime",
    "decimal",
    "functools",
    "itertools",
    "json",
    "math",
    "re",
    "statistics",
    "typing",
}
PARAMETERS = ["final", "initial"]
UNRELATED: Change = {"path": ["a table that no environment has"], "new": {}}
GUARD = "Nothing else changes"
PROBE = """
import json as _json

_check, _seen = check, lambda *states: _json.dumps(states, sort_keys=True)


def check(final, initial):
    before = _seen(final, initial)
    found = _check(final, initial)
    if _seen(final, initial) != before:
        raise ValueError("it changes the state that it is given")
    if not isinstance(found, bool):
        raise TypeError(f"it returns {type(found).__name__}, not bool")
    return found
"""
GUARD_CODE = '''\
MOST = {most}


def check(final, initial):
    """No more rows are added, changed or removed than in the solution, and no other table changes."""
    for table in set(final) | set(initial):
        old, new = initial.get(table), final.get(table)
        if isinstance(old, dict) and isinstance(new, dict):
            count = sum(old.get(key) != new.get(key) for key in set(old) | set(new))
        elif isinstance(old, list) and isinstance(new, list):
            count = sum(row not in old for row in new) + sum(row not in new for row in old)
        else:
            count = int(old != new)
        if count > MOST.get(table, 0):
            return False
    return True
'''


def read_check(text: str) -> str:
    """Return the source of a check. Raises `Unreadable` unless it defines `check(final, initial)` without side effects."""
    code = read_python(text)
    if len(code) > MOST_CODE:
        raise Unreadable(f"the code is longer than {MOST_CODE:,} characters")
    tree = ast.parse(code)
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(found) != 1 or [argument.arg for argument in found[0].args.args] != PARAMETERS:
        raise Unreadable("it must define one function check(final, initial)")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MACHINE:
            raise Unreadable(f"line {node.lineno}: {node.func.id}(…) is not allowed in a check: use the states alone")
    for line, fault, what in find_faults(tree):
        advice = "compare with times in the state" if fault is Fault.CLOCK else ADVICE[fault]
        raise Unreadable(f"line {line}: {what} is not allowed in a check ({fault}): {advice}")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if strange := [name for name in names if name.split(".")[0] not in MODULES]:
            raise Unreadable(
                f"line {node.lineno}: import {strange[0]} is not allowed in a check: compute with the states alone"
            )
    return code


def write_guard(initial: dict[str, JSON], final: dict[str, JSON]) -> str:
    """Write a check that in each table no more rows change than the solution changes."""
    most = {}
    for table in sorted({*initial, *final}):
        if count := count_changed_rows(initial.get(table), final.get(table)):
            most[table] = count
    return GUARD_CODE.format(most=json.dumps(most, ensure_ascii=False))


def count_changed_rows(old: JSON, new: JSON) -> int:
    """Number of rows of a table that were added, changed or removed; a changed row of a list counts twice."""
    if isinstance(old, dict) and isinstance(new, dict):
        return sum(old.get(key) != new.get(key) for key in {*old, *new})
    if isinstance(old, list) and isinstance(new, list):
        return sum(row not in old for row in new) + sum(row not in new for row in old)
    return int(old != new)


async def judge_check(
    backend: ExecutableBackend, state: dict[str, Any], changes: list[Change], code: str
) -> tuple[Reason, str] | None:
    """Run a check on the untouched state, twice after the solution, and after an unrelated change, each in a fresh process.

    Returns:
        None for a check that discriminates, else the reason to drop it and a line of detail.
    """
    at_reset = await run_probe(backend, state, [], code)
    if isinstance(at_reset, str):
        return Reason.CHECK_FAILS, f"on the untouched state: {at_reset}"
    after = [await run_probe(backend, state, changes, code) for _ in range(2)]
    if failed := [each for each in after if isinstance(each, str)]:
        return Reason.CHECK_FAILS, f"after the solution: {failed[0]}"
    if after[0] is not after[1]:
        return Reason.CHECK_IMPURE, "two runs on the same state differ"
    if at_reset:
        reason = Reason.CHECK_ALWAYS_TRUE if after[0] else Reason.CHECK_BECOMES_FALSE
        return reason, "it is true on the untouched state"
    if not after[0]:
        return Reason.CHECK_ALWAYS_FALSE, "it is false after the solution"
    if await run_probe(backend, state, [UNRELATED], code) is True:
        return Reason.CHECK_ANY_CHANGE, "it is true after a change that has nothing to do with the task"
    return None


async def run_probe(backend: ExecutableBackend, state: dict[str, Any], changes: list[Change], code: str) -> bool | str:
    """Run a check on a state: its result, or what is wrong with it."""
    reward = RewardSpec(parts=[ChecklistSpec(code={"check": code + PROBE})])
    task = Task(id="check", initial={"state": state}, reward=reward)
    found = (await backend.checks(task, 0, changes))["check"]
    return found if isinstance(found, bool) else str(found).removeprefix("error: ")[:200]
