"""Compare a unified solution with an original that is a program: it reads standard input and prints its answer.

The tests of the row show the form of the input. If each input of the unified solution is one line of it, the tests can be given to the
unified solution, and its examples to the original.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import Ending, FunctionRunner
from simia.synthesis.gyms.problem_code import SOLVE, UnifiedSolution
from simia.synthesis.gyms.problem_files import SourceProblem

MOST_LINES = 5
"""Inputs whose order is searched for."""
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
Inputs = dict[str, Any]


class NotComparable(ValueError):  # noqa: N818 - a finding
    """An input or an answer has no known form as text."""


def reads_stdin(source: str) -> bool:
    """Whether a program reads standard input: it calls `input` or names `sys.stdin`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "input":
            return True
        if isinstance(node, ast.Attribute) and node.attr == "stdin":
            return True
    return False


async def compare_printed(
    given: SourceProblem, unified: UnifiedSolution, runner: FunctionRunner, recorder: str
) -> tuple[int, str, str]:
    """Compare on the row's tests, and on the unified solution's examples, which the original reads as text.

    The order of the lines may differ from that of the inputs: the solutions differ if they do so in every order that fits the tests.

    Returns:
        How many answers were compared; the first difference, in one line; and why there was no comparison, or not of everything.
    """
    if not given.stdin_tests:
        return 0, "", "the original reads standard input, and the row has no tests that show its form"
    names, tests = list(unified.inputs["properties"]), given.stdin_tests
    orders = list(list_readings([test.input for test in tests], names, unified.inputs["properties"]))
    if not orders:
        return 0, "", f"the tests' input does not have one line for each input of solve ({', '.join(names)})"
    printer = ProgramPrinter(given.solution, runner, recorder)
    printed, fault = await printer.print_all([test.input for test in tests])
    for text, test in zip(printed, tests, strict=False):
        if text is not None and text.split() != test.output.split():
            fault = fault or f"for its test {test.input[:80]!r} the original prints {text.strip()[:80]!r}"
    first: tuple[int, str, str] | None = None
    for order, rows in orders:
        answers = list(zip(rows, printed, strict=False))
        try:
            texts = [write_lines([row[name] for name in order]) for row in unified.examples]
            more, missing = await printer.print_all(texts)
            answers += zip(unified.examples, more, strict=False)
        except NotComparable as error:
            missing = str(error)
        compared, difference, other = await compare_answers(unified, answers, runner)
        found = compared, difference, "" if difference else fault or missing or other
        if compared and not difference:
            return found
        first = first or found
    assert first is not None
    return first


class ProgramPrinter:
    """Runs an original as a program."""

    def __init__(self, solution: str, runner: FunctionRunner, recorder: str) -> None:
        """`recorder`: the source of `simia.drivers.original_solution`."""
        self._solution, self._runner, self._recorder = solution, runner, recorder

    async def print_all(self, texts: Sequence[str]) -> tuple[list[str | None], str]:
        """Return what the original prints for each text of standard input, None where it fails; and the first fault."""
        arguments = {"solution": self._solution, "inputs": list(texts)}
        run = await self._runner.run(self._recorder, "record_printed", arguments)
        if run.ended is not Ending.RETURNED:
            return [], f"the original cannot be run: {run}"
        faults = [
            f"the original fails for the input {text[:80]!r}: {fault}"
            for text, (_, fault) in zip(texts, run.value, strict=True)
            if fault
        ]
        return [None if fault else text for text, fault in run.value], faults[0] if faults else ""


async def compare_answers(
    unified: UnifiedSolution, expected: Sequence[tuple[Inputs, str | None]], runner: FunctionRunner
) -> tuple[int, str, str]:
    """Run the unified solution on inputs whose printed answers are known, and compare; None: not known."""
    compared, missing = 0, ""
    for inputs, printed in expected:
        if printed is None:
            continue
        answer = await runner.run(unified.code, SOLVE, inputs)
        try:
            same = answer.ended is Ending.RETURNED and answers_match(
                flatten(answer.value), parse_printed(printed, answer.value)
            )
        except NotComparable as error:
            missing = missing or str(error)
            continue
        compared += 1
        if not same:
            got = repr(answer.value) if answer.ended is Ending.RETURNED else str(answer)
            return (
                compared,
                f"for {str(inputs)[:300]} the original prints {printed.strip()[:200]!r}, solve returns {got[:200]}",
                "",
            )
    return compared, "", missing


def list_readings(
    texts: Sequence[str], names: Sequence[str], schemas: Mapping[str, Any]
) -> Iterator[tuple[Sequence[str], list[Inputs]]]:
    """Yield each order of the inputs in which every text can be read, one line for each input, with the inputs."""
    rows = [[line for line in text.splitlines() if line.strip()] for text in texts]
    if len(names) > MOST_LINES or any(len(row) != len(names) for row in rows):
        return
    for order in permutations(names):
        try:
            yield (
                order,
                [{name: read_line(line, schemas[name]) for name, line in zip(order, row, strict=True)} for row in rows],
            )
        except (NotComparable, ValueError):
            continue


def read_line(line: str, schema: Mapping[str, Any]) -> Any:
    """Read a line as a value of a type: a number, a text, or a list of these. Raises `NotComparable` or `ValueError`."""
    kind = schema.get("type")
    if kind == "array":
        return [read_line(word, schema.get("items") or {}) for word in line.split()]
    if kind == "integer":
        return int(line)
    if kind == "number":
        return float(line)
    if kind == "string":
        return line.strip()
    raise NotComparable(f"an input of type {kind} has no known form as a line")


def write_lines(values: Sequence[Any]) -> str:
    """Write inputs as standard input, one line for each. Raises `NotComparable`."""
    return "".join(f"{write_value(value)}\n" for value in values)


def write_value(value: Any) -> str:
    if isinstance(value, list) and all(is_word(each) for each in value):
        return " ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "\n" in str(value):
        raise NotComparable("an example has a value without a known form as a line")
    return str(value)


def is_word(value: Any) -> bool:
    """Whether a value is a number, or a text without spaces."""
    return isinstance(value, int | float | str) and not isinstance(value, bool) and len(str(value).split()) == 1


def flatten(value: Any) -> Any:
    """Return an answer as a value or as one list of values, as printed words are."""
    if isinstance(value, str):
        return " ".join(value.split())
    if not isinstance(value, list):
        return value
    flat: list[Any] = []
    for each in value:
        inner = flatten(each)
        flat += inner if isinstance(inner, list) else [inner]
    return flat


def parse_printed(printed: str, answer: Any) -> Any:
    """Read printed words as a value of the answer's form, to compare it with `flatten(answer)`. Raises `NotComparable`."""
    words = re.split(r"[\s,\[\]()]+", printed.strip().strip("[]()")) if isinstance(answer, list) else printed.split()
    try:
        if isinstance(answer, bool):
            return WORDS[printed.strip().lower()]
        if isinstance(answer, int | float):
            found, digits = float(printed), len(printed.strip().partition(".")[2])
            rounded = isinstance(answer, float) and digits and abs(found - answer) <= 0.51 * 10.0**-digits
            return answer if rounded else found  # a program may print fewer digits
        if isinstance(answer, str):
            return " ".join(words)
        if isinstance(answer, list):
            flat, found_words = flatten(answer), [word for word in words if word]
            if any(isinstance(each, str) and len(each.split()) != 1 for each in flat):
                raise ValueError
            return [
                parse_printed(word, flat[min(n, len(flat) - 1)]) if flat else word for n, word in enumerate(found_words)
            ]
    except (ValueError, KeyError):
        raise NotComparable(
            f"the printed {printed.strip()[:60]!r} cannot be compared with an answer of another form"
        ) from None
    raise NotComparable("an answer that is an object cannot be compared with printed text")
