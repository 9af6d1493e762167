"""Read coding problems with their solutions from files of any format (CodeGym §3.2): rows, data sets of the hub, Markdown, Python."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from simia.errors import UserError
from simia.formats.data_sets import is_data_set, open_data_set
from simia.formats.dialect import RowLimits
from simia.formats.row_conversion import FileRow
from simia.formats.row_files import open_rows
from simia.reward_spec import StrictModel
from simia.search_path import find_named_resource
from simia.synthesis.reasons import Reason

STATEMENTS = (
    "question",
    "statement",
    "problem",
    "prompt",
    "description",
    "problem_description",
    "content",
    "instruction",
)
SOLUTIONS = ("solution", "code", "answer", "canonical_solution", "reference_solution", "solutions")
TESTS = ("test", "tests", "unit_tests", "assert", "test_code", "test_list")
STDIN_TESTS = (*TESTS, "input_output")
NAMES = ("id", "name", "question_id", "task_id", "problem_id", "slug", "title")
LICENCES = ("licence", "license")
FENCE = re.compile(r"^```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL | re.IGNORECASE)
MOST_TEXT = 40_000
"""Characters of a statement, of a solution and of tests; a longer one fits into no prompt."""
MOST_NAME = 40
MOST_STDIN_TESTS = 12


class StdinTest(StrictModel):
    """A test of a program that reads standard input and prints its answer."""

    input: str
    """Text of standard input."""
    output: str
    """The expected output."""


class SourceProblem(StrictModel):
    """A problem as a file has it, or the reason why it cannot be used."""

    id: str
    """Made of the row's name, unique."""
    source: str
    """File and row."""
    statement: str = ""
    """The problem in words."""
    solution: str = ""
    """Python source of a solution."""
    tests: str = ""
    """Python source of tests, with asserts; empty: it has none."""
    stdin_tests: list[StdinTest] = Field(default_factory=list)
    """Tests with input and output, if the row has some."""
    entry: str | None = None
    """The solution's function, if the row names it."""
    inputs: dict[str, Any] | None = None
    """JSON Schema of the inputs, if the row has it."""
    examples: list[dict[str, Any]] = Field(default_factory=list)
    """Inputs by name, if the row has some."""
    licence: str = "unknown"
    """Licence, as an SPDX expression."""
    reason: str = ""
    """A `Reason` why it cannot be used; empty: it can."""
    detail: str = ""
    """One line of detail."""


def read_problems(source: str, *, limit: int | None = None) -> list[SourceProblem]:
    """Read the problems of a file, a folder or a data set. A row that cannot be used does not affect the others.

    Args:
        source: a JSON, JSON lines, Parquet, Markdown or Python file, a folder of such files, a data set (`hf:OWNER/NAME`), or
            a name below `seeds/`, such as `problems/problems.jsonl`.
        limit: how many rows are read.

    Returns:
        The problems in their order, with unique ids.

    Raises:
        UserError: there is no such file, or it holds no row.
    """
    found: list[SourceProblem] = []
    taken: set[str] = set()
    for number, (place, row, licence) in enumerate(iterate_rows(source), start=1):
        if limit is not None and number > limit:
            break
        problem = read_problem(row, place, number, licence)
        problem.id = make_unique_id(problem.id, taken)
        taken.add(problem.id)
        found.append(problem)
    if not found:
        raise UserError(f"{source}: it holds no problem; give rows with a statement and a solution")
    return found


def iterate_rows(source: str) -> Iterator[tuple[str, Any, str | None]]:
    """Yield (place, row, licence). The row is an object; if it cannot be read, a line of text with the reason."""
    if is_data_set(source):
        data = open_data_set(source)
        yield from name_rows(data.rows(RowLimits()), data.title, data.licence)
        return
    given = Path(source).expanduser()
    path = find_named_resource("seeds", source) or (given if given.exists() else None)
    if path is None:
        raise UserError(f"{source}: there is no such file; give a file of problems, or a data set as hf:OWNER/NAME")
    files = list_problem_files(path) if path.is_dir() else [path]
    for file in files:
        suffix = file.suffix.lower()
        if suffix in (".md", ".markdown", ".py"):
            yield file.name, read_text_problem(file), None
        elif len(files) == 1 or suffix in (".jsonl", ".json", ".parquet"):
            yield from name_rows(open_rows(file, RowLimits()), file.name, None)


def list_problem_files(folder: Path) -> list[Path]:
    """The files of a folder that are read, in order."""
    return sorted(each for each in folder.rglob("*") if each.is_file() and each.stem.lower() != "readme")


def name_rows(rows: Iterable[FileRow], name: str, licence: str | None) -> Iterator[tuple[str, Any, str | None]]:
    for row in rows:
        value = row.value if row.error is None else f"it cannot be read: {row.error.detail}"
        yield f"{name}:{row.line}", value, licence


def read_text_problem(path: Path) -> Any:
    """The row of a Markdown file (text, and the last block of Python) or a Python file (its docstring is the statement)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"it cannot be read: {error}"
    if path.suffix.lower() != ".py":
        blocks = FENCE.findall(text)
        statement = re.sub(r"\n{3,}", "\n\n", FENCE.sub("", text)).strip()
        return {"name": path.stem, "statement": statement, "solution": blocks[-1] if blocks else ""}
    try:
        statement = ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is not Python: {error}"
    return {"name": path.stem, "statement": statement, "solution": text}


def read_problem(row: Any, place: str, number: int, licence: str | None) -> SourceProblem:
    """Return the problem of a row; its `reason` is set if the row cannot be used."""
    fallback = f"row-{number}"
    if not isinstance(row, Mapping):
        words = row if isinstance(row, str) else "the row is not a JSON object"
        return SourceProblem(id=fallback, source=place, reason=Reason.BAD_PROBLEM, detail=f"{place}: {words}")
    named, stdin_tests = find_text(row, NAMES), find_stdin_tests(row)
    given = SourceProblem(
        id=make_id(named) or fallback,
        source=place,
        statement=find_text(row, STATEMENTS),
        solution=unwrap_code(find_text(row, SOLUTIONS)),
        tests="" if stdin_tests else unwrap_code(find_text(row, TESTS)),
        stdin_tests=stdin_tests,
        entry=find_entry(row),
        inputs=row["inputs"] if isinstance(row.get("inputs"), dict) else None,
        examples=find_examples(row),
        licence=find_text(row, LICENCES) or licence or "unknown",
    )
    missing = "statement" if not given.statement else "solution" if not given.solution else ""
    if missing:
        given.reason, given.detail = Reason.BAD_PROBLEM, f"{place}: it has no {missing}; keys: {', '.join(row)[:200]}"
    elif any(len(text) > MOST_TEXT for text in (given.statement, given.solution, given.tests)):
        given.reason, given.detail = Reason.BAD_PROBLEM, f"{place}: a text has more than {MOST_TEXT:,} characters"
    return given


def find_text(row: Mapping[str, Any], names: Iterable[str]) -> str:
    """The first text under one of these names; of a list, its first text, or the lines of tests."""
    for name in names:
        value = row.get(name)
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            value = "\n".join(value) if names is TESTS else value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def find_entry(row: Mapping[str, Any]) -> str | None:
    """The name of the solution's function: of `entry_point`, or of KodCode's `test_info`."""
    info = row.get("test_info")
    first = info[0] if isinstance(info, list) and info and isinstance(info[0], Mapping) else {}
    for value in (row.get("entry_point"), row.get("function_name"), first.get("function_name")):
        if isinstance(value, str) and value.isidentifier():
            return value
    return None


def find_stdin_tests(row: Mapping[str, Any]) -> list[StdinTest]:
    """The tests with input and output: a list of `{"input", "output"}`, or `{"inputs": […], "outputs": […]}`, as JSON or as its text.
    At most `MOST_STDIN_TESTS` are kept, and none with more than `MOST_TEXT` characters."""
    for name in STDIN_TESTS:
        value = row.get(name)
        if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if (
            isinstance(value, Mapping)
            and isinstance(value.get("inputs"), list)
            and isinstance(value.get("outputs"), list)
        ):
            value = [{"input": a, "output": b} for a, b in zip(value["inputs"], value["outputs"], strict=False)]
        pairs = [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
        texts = [(each.get("input"), each.get("output")) for each in pairs]
        found = [
            StdinTest(input=given, output=printed)
            for given, printed in texts
            if isinstance(given, str) and isinstance(printed, str) and len(given) + len(printed) <= MOST_TEXT
        ]
        if found:
            return found[:MOST_STDIN_TESTS]
    return []


def find_examples(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = row.get("examples")
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def unwrap_code(text: str) -> str:
    """Return the content of a text's last fenced block; if it has none, the text."""
    blocks = FENCE.findall(text + "\n")
    return (blocks[-1] if blocks else text).strip()


def make_id(name: str) -> str:
    """An id of a name: lower-case words, at most 40 characters, cut between words."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if len(words) > MOST_NAME and "-" in words[: MOST_NAME + 1]:
        return words[: MOST_NAME + 1].rpartition("-")[0].strip("-")
    return words[:MOST_NAME]


def make_unique_id(name: str, taken: set[str]) -> str:
    """Return the id, with a number appended if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
