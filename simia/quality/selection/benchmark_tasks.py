"""Read the tasks of a benchmark: the texts that instruct the user, and the reference calls.

A row of a trajectory dialect is read as a trajectory. In any other object, the instruction and the reference actions are
looked up under the keys that benchmarks use for them (tau-bench, tau2, OfficeBench and those that follow them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simia import formats
from simia.errors import UserError
from simia.trajectory import ToolCall, Trajectory

TEXT_KEY = re.compile(
    "instructions?|(?:confirmed_)?task|task_instructions|task_description|reason_for_call|known_info|user_scenario|"
    "question|query|prompt|goal|intent|problem|problem_statement|ticket|user_request"
)
CALL_KEY = re.compile(
    "(?:reference_|expected_|gold_)?actions|ground_truth|evaluation_criteria|(?:tool_)?calls|reference"
)
ARGUMENT_KEYS = ("arguments", "kwargs", "args", "parameters")
ID_KEYS = ("id", "task_id", "annotation_id", "instance_id", "name")


@dataclass(slots=True)
class BenchmarkTask:
    """Texts and reference calls of one task."""

    name: str
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)


def iterate_tasks(path: Path) -> Iterator[BenchmarkTask]:
    """Yield the tasks of a file. Rows without texts and calls are skipped."""
    first = next((row for row in iterate_rows(path) if isinstance(row, dict)), None)
    if first is not None and any(dialect.sniff(first) for dialect in formats.DIALECTS.values()):
        tasks = (
            task_from_trajectory(f"{name_file(path)}#{number}", read)
            for number, read in enumerate(formats.read(path), start=1)
            if isinstance(read, Trajectory)
        )
    else:
        rows = enumerate(iterate_rows(path), start=1)
        tasks = (task_from_row(path, number, row) for number, row in rows if isinstance(row, dict))
    yield from (task for task in tasks if task.texts or task.calls)


def iterate_rows(path: Path) -> Iterator[Any]:
    """Yield the values of a file: JSON lines, a list, an object of objects (by id), or one object; None for invalid JSON."""
    try:
        if path.suffix.lower() == ".jsonl":
            with path.open("rb") as file:
                yield from (parse_json_bytes(line) for line in file if line.strip())
            return
        value = parse_json_bytes(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if isinstance(value, list):
        yield from value
    elif (
        isinstance(value, dict)
        and not any(TEXT_KEY.fullmatch(key) or CALL_KEY.fullmatch(key) for key in value)
        and all(isinstance(row, dict) for row in value.values())
    ):
        yield from ({"id": name, **row} for name, row in value.items())
    else:
        yield value


def parse_json_bytes(raw: bytes) -> Any:
    try:
        return orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None


def task_from_trajectory(name: str, t: Trajectory) -> BenchmarkTask:
    texts = [message.text for message in t.messages if message.role == "user"]
    return BenchmarkTask(t.task_id or name, texts, [call for _, _, call in t.calls()])


def task_from_row(path: Path, number: int, row: Mapping[str, Any]) -> BenchmarkTask:
    own = next((str(row[key]) for key in ID_KEYS if isinstance(row.get(key), str | int)), None)
    subtask = path.parent.name == "subtasks"
    name = f"{path.parent.parent.name}/{path.stem}" if subtask else f"{name_file(path)}#{own or number}"
    return BenchmarkTask(name, list(iterate_texts(row)), list(iterate_calls(row)))


def name_file(path: Path) -> str:
    """Return folder and file name: many benchmarks call each domain's file `tasks.json`."""
    return f"{path.parent.name}/{path.stem}" if path.parent.name else path.stem


def iterate_texts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts under the known keys, and under known keys within those."""
    for key, value in row.items():
        if TEXT_KEY.fullmatch(key):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str):
                    yield each
                elif isinstance(each, dict):
                    yield from iterate_texts(each)


def iterate_calls(row: Mapping[str, Any]) -> Iterator[ToolCall]:
    for key, value in row.items():
        if not CALL_KEY.fullmatch(key):
            continue
        if isinstance(value, dict):
            yield from iterate_calls(value)
        for each in value if isinstance(value, list) else []:
            if isinstance(each, dict) and (call := read_action(each)):
                yield call


def read_action(value: Mapping[str, Any]) -> ToolCall | None:
    """Read a call as name and arguments, plain or as OpenAI nests it."""
    inner = value.get("function")
    value = inner if isinstance(inner, dict) else value
    name = value.get("name") or value.get("tool") or inner
    given = next((value[key] for key in ARGUMENT_KEYS if key in value), None)
    arguments = parse_json_bytes(given.encode()) if isinstance(given, str) else given
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(id="", name=name, arguments=arguments)
