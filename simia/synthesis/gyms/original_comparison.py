"""Compare a unified solution with the original one by executing both on the examples and on the calls in the original's tests."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import Ending, FunctionRunner, find_forbidden
from simia.synthesis.gyms.problem_code import SOLVE, UnifiedSolution
from simia.synthesis.gyms.problem_files import SourceProblem
from simia.synthesis.gyms.stdin_comparison import compare_printed, reads_stdin

MOST_COMPARED = 24
"""Calls of the original that are compared."""


@dataclass(frozen=True, slots=True)
class OriginalComparison:
    """What a comparison found."""

    compared: int = 0
    """Calls of the original whose answers were compared."""
    difference: str = ""
    """The first one with another answer, in one line; empty: there is none."""
    missing: str = ""
    """Why the original, or its tests, could not be run."""


@cache
def read_recorder() -> str:
    return files("simia.drivers").joinpath("original_solution.py").read_text(encoding="utf-8")


async def compare_with_original(
    given: SourceProblem, unified: UnifiedSolution, runner: FunctionRunner
) -> OriginalComparison:
    """Run the original on the unified solution's examples and by its tests, and the unified solution on the same inputs."""
    names = list(unified.inputs["properties"])
    words = find_forbidden(given.solution, input_allowed=True)
    if not words and reads_stdin(given.solution):
        return OriginalComparison(*await compare_printed(given, unified, runner, read_recorder()))
    if words:
        return OriginalComparison(missing=f"the original is not run: {words}")
    arguments = {
        "solution": given.solution,
        "tests": given.tests,
        "entry": given.entry,
        "count": len(names),
        "examples": [[row[name] for name in names] for row in unified.examples if len(row) == len(names)],
    }
    run = await runner.run(read_recorder(), "record_original", arguments)
    if run.ended is not Ending.RETURNED and given.tests:  # the tests may hang or end the process: try without them
        run = await runner.run(read_recorder(), "record_original", {**arguments, "tests": ""})
    if run.ended is not Ending.RETURNED:
        return OriginalComparison(missing=f"the original cannot be run: {run}")
    found = run.value if isinstance(run.value, dict) else {}
    compared, seen = 0, list[dict[str, Any]]()
    for positional, named, expected in found.get("calls", []):
        inputs = {**dict(zip(names, positional, strict=False)), **named}
        if set(inputs) != set(names) or inputs in seen or compared >= MOST_COMPARED:
            continue
        seen.append(inputs)
        answer = await runner.run(unified.code, SOLVE, inputs)
        compared += 1
        if answer.ended is not Ending.RETURNED or not answers_match(answer.value, expected):
            got = repr(answer.value) if answer.ended is Ending.RETURNED else str(answer)
            words = f"for {str(inputs)[:300]} the original returns {str(expected)[:200]}, solve {got[:200]}"
            return OriginalComparison(compared, words)
    missing = "; ".join(filter(None, [str(found.get("missing") or ""), *map(str, found.get("failed", [])[:2])]))
    return OriginalComparison(compared, missing=missing[:300])


def has_own_asserts(solution: str) -> bool:
    """Whether an original checks itself by asserts outside of its functions, and may be executed to see whether they hold."""
    if find_forbidden(solution):
        return False
    return any(isinstance(node, ast.Assert) for node in ast.parse(solution).body)


async def find_failed_assert(solution: str, runner: FunctionRunner) -> str:
    """Execute an original; return the line of its own assert that fails, with its number; empty if none does."""
    run = await runner.run(read_recorder(), "find_failed_assert", {"solution": solution})
    lines = solution.splitlines()
    if run.ended is not Ending.RETURNED or not isinstance(run.value, int) or not 0 < run.value <= len(lines):
        return ""
    return f"line {run.value} of the solution: {lines[run.value - 1].strip()[:200]}"


def describe_missing(key: str, note: Mapping[str, Any]) -> str:
    """Say of a problem that was made, by its note, what was not compared with the original; empty if everything was."""
    missing, compared = note.get("not_compared"), note.get("compared")
    if not missing:
        return ""
    begin = (
        "not compared with its original" if not compared else f"compared with its original on {compared} inputs only"
    )
    return f"problems/{key}: {begin}: {missing}"
