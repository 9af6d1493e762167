"""The unified form of a coding problem's solution (CodeGym §3.2): one Python block with `solve`, typed inputs, and example inputs."""

from __future__ import annotations

import ast
import json
from typing import Any

from simia.reward_spec import StrictModel
from simia.synthesis.building.signatures import derive_schema, read_docstring
from simia.synthesis.design import CodingProblem
from simia.synthesis.gyms.problem_files import SourceProblem
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_python
from simia.tool import SchemaError, compile_schema

SOLVE, EXAMPLES = "solve", "EXAMPLES"
RESERVED = {"answer", "self", "state"}
"""Names that the state of a gym already uses."""
LEAST_EXAMPLES, MOST_EXAMPLES = 2, 8


class UnifiedSolution(StrictModel):
    """A solution in the unified form, not yet executed."""

    code: str
    """Python source that defines `solve`."""
    inputs: dict[str, Any]
    """JSON Schema of the inputs."""
    examples: list[dict[str, Any]]
    """Inputs by name."""


def read_unified(text: str) -> UnifiedSolution:
    """Read a reply: a block of Python with `solve` and `EXAMPLES`. Raises `Unreadable`."""
    code, literals = take_literals(read_python(text), {EXAMPLES})
    return check_unified(code, None, literals.get(EXAMPLES))


def adopt_unified(given: SourceProblem) -> UnifiedSolution | None:
    """Return the solution of a row that already has the unified form: it defines `solve` with typed inputs and has examples."""
    if not given.examples:
        return None
    try:
        return check_unified(read_python(given.solution), given.inputs, given.examples)
    except Unreadable:
        return None


def check_unified(code: str, inputs: dict[str, Any] | None, examples: Any) -> UnifiedSolution:
    """Check the form of a solution and of its examples; `inputs` None: derived from the signature. Raises `Unreadable`."""
    functions = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef) and node.name == SOLVE]
    if not functions:
        raise Unreadable("there is no function `solve` at the top of the block")
    arguments = functions[-1].args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs or not (arguments.args or arguments.kwonlyargs):
        raise Unreadable("`solve` takes its inputs as named arguments: one or more, no * and no **")
    names = [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]
    if wrong := [name for name in names if name in RESERVED or name.startswith(("_", "model_"))]:
        raise Unreadable(f"an input must not be named {wrong[0]!r}: rename it")
    schema = inputs or derive_inputs(functions[-1])
    if set(schema.get("properties", {})) != set(names):
        raise Unreadable(
            f"the schema of the inputs names {sorted(schema.get('properties', {}))}, `solve` {sorted(names)}"
        )
    try:
        compiled = compile_schema(schema)
    except SchemaError as error:
        raise Unreadable(f"the schema of the inputs cannot be used: {error}") from None
    rows = examples if isinstance(examples, list) else []
    if len(rows) < LEAST_EXAMPLES or not all(isinstance(row, dict) for row in rows):
        raise Unreadable(
            f"`EXAMPLES` must be a list of at least {LEAST_EXAMPLES} objects, each with all inputs by name"
        )
    for number, row in enumerate(rows[:MOST_EXAMPLES], start=1):
        if faults := compiled.errors(row):
            place, words = faults[0]
            raise Unreadable(f"example {number} does not fit the types of `solve`: {place}: {words}"[:300])
    return UnifiedSolution(code=code, inputs=schema, examples=rows[:MOST_EXAMPLES])


def derive_inputs(solve: ast.FunctionDef) -> dict[str, Any]:
    """JSON Schema of the arguments of `solve`, of its signature and docstring. Raises `Unreadable` for an argument without a type."""
    arguments = [*solve.args.args, *solve.args.kwonlyargs]
    if untyped := [each.arg for each in arguments if each.annotation is None]:
        raise Unreadable(
            f"the input {untyped[0]} of `solve` has no type: write {untyped[0]}: int, list[int], str or so"
        )
    _, words = read_docstring(ast.get_docstring(solve) or "")
    properties = {}
    for each in arguments:
        schema = derive_schema(each.annotation) if each.annotation else {}
        properties[each.arg] = {**schema, **({"description": words[each.arg]} if words.get(each.arg) else {})}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def take_literals(code: str, names: set[str]) -> tuple[str, dict[str, Any]]:
    """Remove the assignments of `names` from a module; return (remaining source, name → value). Raises `Unreadable` for a value that is no
    literal."""
    lines, found = code.splitlines(keepends=True), dict[str, Any]()
    for node in ast.parse(code).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Name) or node.value is None:
            continue
        if target.id in names:
            try:
                found[target.id] = json.loads(json.dumps(ast.literal_eval(node.value), allow_nan=False))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                raise Unreadable(f"`{target.id}` must be written out as a literal, without computation") from None
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "".join(lines).strip() + "\n", found


def make_problem(given: SourceProblem, unified: UnifiedSolution, examples: list[Any]) -> CodingProblem:
    """The problem, with its executed examples."""
    return CodingProblem(
        id=given.id,
        statement=given.statement,
        solution=unified.code,
        inputs=unified.inputs,
        examples=examples,
        licence=given.licence,
    )
