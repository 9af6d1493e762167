"""Lint the method of one tool before it is executed: the names it uses, its form, and whether its signature fits the design.

The sandbox isolates the code in any case. The lint finds code that makes an episode unrepeatable or a schema wrong, and describes it so
that the model can repair it.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from simia.authoring.code_lint import ADVICE, MODULES, find_faults
from simia.authoring.findings import Fault
from simia.synthesis.building.code_assembly import AVAILABLE
from simia.synthesis.building.signatures import add_formats, compare_parameters, derive_tool
from simia.synthesis.design import ToolDesign
from simia.synthesis.reasons import Reason, Unreadable
from simia.synthesis.reply_reading import read_python
from simia.synthesis.state_access import is_state
from simia.tool import ToolSpec

MOST_SOURCE = 20_000  # characters
SHOWN = 3
REASONS = {
    Fault.NETWORK: Reason.USES_NETWORK,
    Fault.CLOCK: Reason.USES_CLOCK,
    Fault.RANDOMNESS: Reason.USES_RANDOMNESS,
    Fault.FILES: Reason.USES_FILES,
    Fault.PROCESSES: Reason.USES_PROCESSES,
    Fault.DYNAMIC_CODE: Reason.USES_DYNAMIC_CODE,
    Fault.GLOBAL_STATE: Reason.USES_GLOBALS,
}
BUILTINS = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "bytes",
        "chr",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "int",
        "isinstance",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "ord",
        "pow",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
        "Exception",
        "ArithmeticError",
        "IndexError",
        "KeyError",
        "LookupError",
        "OverflowError",
        "StopIteration",
        "TypeError",
        "ValueError",
        "ZeroDivisionError",
        "NotImplementedError",
    ]
)
FORBIDDEN = {
    **{name: fault for name, fault in MODULES.items() if name != "time"},
    **dict.fromkeys(("os", "sys", "platform", "importlib"), Fault.PROCESSES),
    **dict.fromkeys(("print", "pathlib", "Path", "io", "json", "pickle", "logging"), Fault.FILES),
    **dict.fromkeys(("getattr", "setattr", "delattr", "vars", "globals", "locals", "dir", "type"), Fault.DYNAMIC_CODE),
    **dict.fromkeys(("eval", "exec", "compile", "builtins"), Fault.DYNAMIC_CODE),
    **dict.fromkeys(("open", "input"), Fault.FILES),
    **dict.fromkeys(("hash", "id"), Fault.RANDOMNESS),
}
OWN = ("state", "now", "random", "new_id")
MUTATORS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "clear",
        "update",
        "setdefault",
        "sort",
        "reverse",
        "add",
        "discard",
    ]
)


@dataclass(frozen=True, slots=True)
class CodeFault:
    """What is wrong with a method."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class CheckedMethod:
    """A method that the lint accepts."""

    source: str
    """The method with its decorator, without indentation."""
    spec: ToolSpec
    """The tool that its signature and docstring describe."""


class MethodReader:
    """Reads the method of one tool from replies, and remembers why the last one was refused."""

    def __init__(self, design: ToolDesign, rows: Collection[str], *, formats: bool = True) -> None:
        """`rows`: names of the row classes. `formats`: add the formats of the design's arguments to the tool's schema."""
        self._design, self._rows, self._formats = design, rows, formats
        self.reason = Reason.UNREADABLE_REPLY

    def read(self, text: str) -> CheckedMethod:
        """Read a reply. Raises `Unreadable` with the first faults."""
        self.reason = Reason.UNREADABLE_REPLY
        source, function = find_method(read_python(text), self._design.name)
        faults = [CodeFault(Reason.WRONG_METHOD, f"there is no method {self._design.name}")]
        if function is not None:
            faults = find_method_faults(function, self._design, self._rows)
        if function is None or faults:
            self.reason = faults[0].reason
            raise Unreadable("; ".join(dict.fromkeys(fault.text for fault in faults[:SHOWN])))
        if len(source) > MOST_SOURCE:
            self.reason = Reason.WRONG_METHOD
            raise Unreadable(f"the method is longer than {MOST_SOURCE:,} characters")
        spec = derive_tool(function)
        if self._design.given:
            given = {"description": self._design.description, "parameters": self._design.parameters}
            spec = spec.model_copy(update=given)
        elif self._formats:
            spec = spec.model_copy(update={"parameters": add_formats(spec.parameters, self._design.parameters)})
        return CheckedMethod(source, spec)


def find_method(code: str, name: str) -> tuple[str, ast.FunctionDef | None]:
    """Return the source of the method of that name, at the top of the code or in a class, and its tree."""
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        return "", None
    first = min([found[0].lineno, *(each.lineno for each in found[0].decorator_list)])
    lines = code.splitlines()[first - 1 : found[0].end_lineno]
    source = textwrap.dedent("\n".join(lines)) + "\n"
    tree = ast.parse(source).body[0]
    return source, tree if isinstance(tree, ast.FunctionDef) else None


def find_method_faults(function: ast.FunctionDef, design: ToolDesign, rows: Collection[str]) -> list[CodeFault]:
    """List what is wrong with a method: first the names that it uses, then its form and its signature."""
    module = ast.Module(body=[function], type_ignores=[])
    found = [CodeFault(REASONS[fault], f"{what}: {ADVICE[fault]}") for _, fault, what in find_faults(module)]
    found += [*find_name_faults(function, rows), *find_self_faults(function)]
    if not design.writes:
        found += find_mutations(function)
    found += find_form_faults(function, design)
    try:
        spec = derive_tool(function)
    except Unreadable as fault:
        return [*found, CodeFault(Reason.WRONG_METHOD, str(fault))]
    differ = compare_parameters(design.parameters, spec.parameters)
    return [*found, *(CodeFault(Reason.SIGNATURE_DIFFERS, text) for text in differ)]


def find_name_faults(function: ast.FunctionDef, rows: Collection[str]) -> Iterator[CodeFault]:
    """Find names in the method that are forbidden or that do not exist."""
    bound = {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    bound |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    bound |= {node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name}
    bound |= {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function}
    for node in ast.walk(function):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("_") and name != "_":
            yield CodeFault(Reason.USES_PRIVATE_NAMES, f"{name}: names that begin with an underscore are not used")
        if not isinstance(node, ast.Name) or name in bound or name.startswith("_"):
            continue
        if name in FORBIDDEN and name not in AVAILABLE:
            yield CodeFault(REASONS[FORBIDDEN[name]], f"{name}: {ADVICE[FORBIDDEN[name]]}")
        elif name not in BUILTINS and name not in AVAILABLE and name not in rows:
            yield CodeFault(
                Reason.USES_GLOBALS,
                f"{name} is not defined: a method has its arguments, self, and {', '.join(sorted(AVAILABLE))}",
            )


def find_self_faults(function: ast.FunctionDef) -> Iterator[CodeFault]:
    """Find uses of `self` for anything but the state, the time, randomness and new ids, and values kept outside of the state."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != "self":
            continue
        if not isinstance(node.ctx, ast.Load):
            yield CodeFault(Reason.USES_GLOBALS, f"self.{node.attr} is assigned: change rows of self.state instead")
        elif node.attr not in OWN:
            yield CodeFault(Reason.USES_GLOBALS, f"self.{node.attr}: self has state, now, random and new_id only")


def find_mutations(function: ast.FunctionDef) -> Iterator[CodeFault]:
    """Find statements that change `self.state` in a reading tool. Changes through other names are found when the tool is executed."""
    for node in ast.walk(function):
        target: ast.expr | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            target = node.func.value
        if target is not None and is_of_state(target):
            yield CodeFault(Reason.READ_TOOL_WRITES, f"line {target.lineno} changes the state, and the tool reads only")


def is_of_state(node: ast.expr) -> bool:
    """Whether an expression is a part of `self.state`."""
    while True:
        if is_state(node):
            return True
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
                node = inner
            case _:
                return False


def find_form_faults(function: ast.FunctionDef, design: ToolDesign) -> Iterator[CodeFault]:
    """The decorator, the annotations, and statements that a method must not have."""
    wanted = "write" if design.writes else "read"
    if [ast.unparse(each) for each in function.decorator_list] != [wanted]:
        yield CodeFault(Reason.WRONG_METHOD, f"the method has the decorator @{wanted} and no other")
    if function.returns is None:
        yield CodeFault(Reason.WRONG_METHOD, "the method has no annotation of what it returns")
    kinds = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    for node in ast.walk(function):
        if isinstance(node, kinds):
            where = f"line {getattr(node, 'lineno', 0)}"
            yield CodeFault(Reason.WRONG_METHOD, f"{where}: no imports, classes, generators and coroutines in a method")
