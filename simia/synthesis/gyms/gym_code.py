"""Read the code of a gym from a reply, and check it without running it (CodeGym §3.3.1, appendix B.2).

A reply is one Python block: `TASK` (the task in words), a pydantic `State`, a class `Gym` of tools, and `EXAMPLE_CALLS`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from simia.authoring.code_lint import ADVICE, find_faults
from simia.synthesis.building.signatures import derive_tool
from simia.synthesis.design import CodingProblem
from simia.synthesis.gyms.gym_writing import ANSWER, STATE, list_state_fields
from simia.synthesis.gyms.problem_code import take_literals
from simia.synthesis.reasons import Reason, Unreadable
from simia.synthesis.reply_reading import read_python
from simia.synthesis.state_access import is_state
from simia.tool import ToolSpec

GYM, OBSERVE, DONE = "Gym", "observe", "done"
TASK, EXAMPLE_CALLS = "TASK", "EXAMPLE_CALLS"
LEAST_TOOLS = 2
"""Fewest tools of a gym in addition to `observe` and `done`."""
READ, WRITE = "read", "write"
KIT = ("simia.kit", "collections.abc")
IMPORTS = {
    "__future__", "pydantic", "typing", "math", "collections", "itertools", "functools", "heapq", "bisect", "re", "string", "fractions",
}  # fmt: skip
MUTATORS = {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault", "add", "discard", "sort", "reverse"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GymFault:
    """What is wrong with a gym, in words for the model that repairs it."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class GymDraft:
    """A gym as it was written, not yet executed."""

    reply: str
    """The whole block, for a repair."""
    task: str
    code: str
    """Without `TASK` and `EXAMPLE_CALLS`."""
    calls: list[tuple[str, dict[str, Any]]]
    """Example calls in order, all in one episode of the problem's first example."""


def read_gym(text: str) -> GymDraft:
    """Read a reply. Raises `Unreadable` if it is not in the form of a gym."""
    reply = read_python(text)
    code, found = take_literals(reply, {TASK, EXAMPLE_CALLS})
    task, rows = found.get(TASK), found.get(EXAMPLE_CALLS)
    if not isinstance(task, str) or not task.strip():
        raise Unreadable(f"there is no `{TASK}`, a text with the task in words")
    if find_class(code, GYM) is None or find_class(code, STATE) is None:
        raise Unreadable(f"the block must define the classes `{STATE}(BaseModel)` and `{GYM}(Tools[State])`")
    calls = (
        [tuple(row) for row in rows] if isinstance(rows, list) and all(isinstance(row, list) for row in rows) else []
    )
    well = all(len(call) == 2 and isinstance(call[0], str) and isinstance(call[1], dict) for call in calls)
    if not calls or not well:
        raise Unreadable(
            f'`{EXAMPLE_CALLS}` must be a list of ("tool", {{"argument": value}}), at least one for each tool'
        )
    return GymDraft(reply, task.strip(), code, calls)


def find_class(code: str, name: str) -> ast.ClassDef | None:
    found = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef) and node.name == name]
    return found[-1] if found else None


def list_methods(code: str) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Tool → (its method, `read` or `write`), in the order of the class."""
    gym = find_class(code, GYM)
    found: dict[str, tuple[ast.FunctionDef, str]] = {}
    for node in gym.body if gym else []:
        marks = [each.id for each in getattr(node, "decorator_list", []) if isinstance(each, ast.Name)]
        if isinstance(node, ast.FunctionDef) and (
            kind := next((mark for mark in marks if mark in (READ, WRITE)), None)
        ):
            found[node.name] = (node, kind)
    return found


def derive_gym_tools(code: str) -> list[ToolSpec]:
    """The tools of a gym as agents see them. Raises `Unreadable` for an argument without a type."""
    return [derive_tool(node) for node, _ in list_methods(code).values()]


def find_gym_faults(draft: GymDraft, problem: CodingProblem, *, least_tools: int = LEAST_TOOLS) -> list[GymFault]:
    """Find faults by static checks: the form of the code, lints, docstrings, and the content of `done`."""
    methods = list_methods(draft.code)
    form = [*check_state(draft.code, problem), *check_tools(methods, least_tools)]
    called = {name for name, _ in draft.calls}
    if missing := [name for name in methods if name not in called and name != DONE]:
        form.append(f"`{EXAMPLE_CALLS}` has no call of {', '.join(missing)}")
    if unknown := sorted(called - set(methods)):
        form.append(f"`{EXAMPLE_CALLS}` calls {', '.join(unknown)}, which is no tool of `{GYM}`")
    faults = [GymFault(Reason.GYM_UNSAFE, words) for words in lint_gym(draft.code)]
    faults += [GymFault(Reason.GYM_MALFORMED, words) for words in form]
    if DONE in methods:
        faults += [GymFault(Reason.ANSWER_REVEALED, words) for words in check_done(methods[DONE][0])]
    return faults + [
        GymFault(Reason.GYM_FAILS, f"`{name}` is marked @read and changes the state: mark it @write")
        for name, (node, kind) in methods.items()
        if kind == READ and changes_state(node)
    ]


def check_state(code: str, problem: CodingProblem) -> list[str]:
    """Check that the state has a field for each input, and `answer`."""
    fields = list_state_fields(code)
    wanted = [*problem.inputs["properties"], ANSWER]
    missing = [name for name in wanted if name not in fields]
    return [f"`{STATE}` has no field {', '.join(missing)}"] if missing else []


def check_tools(methods: dict[str, tuple[ast.FunctionDef, str]], least: int) -> list[str]:
    """Check that the gym has `observe()`, `done(answer)` and enough other tools, all with types and complete docstrings."""
    found = []
    for name, wanted, kind in ((OBSERVE, [], READ), (DONE, [ANSWER], WRITE)):
        if name not in methods:
            found.append(f"`{GYM}` has no tool `{name}`, marked @{kind}")
        elif [each.arg for each in methods[name][0].args.args] != ["self", *wanted] or methods[name][1] != kind:
            found.append(f"`{name}` must be marked @{kind} and take {', '.join(['self', *wanted])} only")
    own = [name for name in methods if name not in (OBSERVE, DONE)]
    if len(own) < least:
        found.append(
            f"`{GYM}` has {len(own)} tools beside `{OBSERVE}` and `{DONE}`; it needs at least {least}, better 4"
        )
    for name, (node, _) in methods.items():
        try:
            derive_tool(node)
        except Unreadable as error:
            found.append(str(error))
        if name != DONE and any(is_state(each.value) and each.attr == ANSWER for each in list_attributes(node)):
            found.append(f"`{name}` uses self.state.{ANSWER}, which only `{DONE}` may")
    return found


def lint_gym(code: str) -> list[str]:
    """Check that the code uses no network, clock, randomness, files, processes, dynamic code, globals or private names."""
    tree = ast.parse(code)
    found = [(line, f"{what}: {ADVICE[fault]}") for line, fault, what in find_faults(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            strange = [module for module in named if module not in KIT and module.split(".")[0] not in IMPORTS]
            known = f"use simia.kit, {', '.join(sorted(IMPORTS))}"
            found += [(node.lineno, f"import of {module}: {known}") for module in strange]
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and node.attr != "__init__":
            found.append((node.lineno, f".{node.attr}: private names of Python are not needed"))
        if isinstance(node, ast.Attribute) and node.attr == "random":
            found.append((node.lineno, "a gym is the same in every episode: no randomness"))
    for each in tree.body:
        target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
        value = getattr(each, "value", None)
        if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(value, ast.List | ast.Dict | ast.Set):
            found.append(
                (each.lineno, f"{ast.unparse(target) if target else 'a global'} can be changed: keep it in the state")
            )
    return [f"line {line}: {words}" for line, words in sorted(set(found))]


def check_done(node: ast.FunctionDef) -> list[str]:
    """Check that `done` sets `self.state.answer`, calls `self.finish()` and uses nothing else of the environment, so it reveals nothing."""
    places = list_attributes(node)
    used = {each.attr for each in places if is_named(each.value, "self")}
    used |= {f"state.{each.attr}" for each in places if is_state(each.value)}
    stray = sorted(used - {"state", "finish", f"state.{ANSWER}"})
    uses = sum(is_named(each, "self") for each in ast.walk(node))
    stray += ["self"] if uses > sum(is_named(each.value, "self") for each in places) else []
    found = (
        [f"`done` uses {', '.join(stray)}: it may only set self.state.answer and call self.finish()"] if stray else []
    )
    if f"state.{ANSWER}" not in used or "finish" not in used:
        found.append("`done` must set self.state.answer = answer and call self.finish()")
    return found


def list_attributes(node: ast.AST) -> list[ast.Attribute]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]


def changes_state(node: ast.FunctionDef) -> bool:
    """Whether a method assigns to a part of the state, deletes one, or calls a method that changes one."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = each.targets if isinstance(each, ast.Assign | ast.Delete) else [each.target]
            if any(reaches_state(target) for target in targets):
                return True
        method = each.func if isinstance(each, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in MUTATORS and reaches_state(method.value):
            return True
    return False


def reaches_state(node: ast.AST) -> bool:
    """Whether an expression is a place in `self.state`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if is_state(node):
            return True
        node = node.value
    return False


def is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
