"""Tasks of a benchmark, from whatever shape its files have: what the user is told to want, and the calls that solve it.

A row of a trajectory dialect is read as a trajectory; any other object is searched for the keys under which benchmarks keep the
instruction and the reference actions (tau-bench, tau2, OfficeBench and many that follow them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simia import formats
from simia.errors import UserError
from simia.trajectory import ToolCall, Trajectory

SAID = frozenset(
    [
        "instruction",
        "instructions",
        "task",
        "task_instructions",
        "task_description",
        "reason_for_call",
        "known_info",
        "user_scenario",
        "question",
        "query",
        "prompt",
        "goal",
        "intent",
        "problem",
        "problem_statement",
        "ticket",
        "user_request",
        "confirmed_task",
    ]
)
DONE = frozenset(
    [
        "actions",
        "reference_actions",
        "expected_actions",
        "gold_actions",
        "ground_truth",
        "evaluation_criteria",
        "tool_calls",
        "calls",
        "reference",
    ]
)
ARGUMENTS = ("arguments", "kwargs", "args", "parameters")
IDS = ("id", "task_id", "annotation_id", "instance_id", "name")


@dataclass(slots=True)
class BenchmarkTask:
    """What one task of a benchmark gives away."""

    name: str
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)


def iterate_tasks(path: Path) -> Iterator[BenchmarkTask | None]:
    """Yield the tasks of a file; None for a row that holds none."""
    first = next((row for row in iterate_rows(path) if isinstance(row, dict)), None)
    if first is not None and any(dialect.sniff(first) for dialect in formats.DIALECTS.values()):
        for number, read in enumerate(formats.read(path), start=1):
            yield task_from_trajectory(f"{name_file(path)}#{number}", read) if isinstance(read, Trajectory) else None
        return
    for number, row in enumerate(iterate_rows(path), start=1):
        yield task_from_row(path, number, row) if isinstance(row, dict) else None


def iterate_rows(path: Path) -> Iterator[Any]:
    """Yield the values of a file: JSON lines, a list, an object of objects (by id), or one object. None for a line that is not JSON."""
    try:
        if path.suffix.lower() == ".jsonl":
            with path.open("rb") as file:
                yield from (parse_json(line) for line in file if line.strip())
            return
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if isinstance(value, list):
        yield from value
    elif (
        isinstance(value, dict)
        and value.keys().isdisjoint(SAID | DONE)
        and all(isinstance(row, dict) for row in value.values())
    ):
        yield from ({"id": name, **row} for name, row in value.items())
    else:
        yield value


def parse_json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None


def task_from_trajectory(name: str, t: Trajectory) -> BenchmarkTask | None:
    texts = [message.text for message in t.messages if message.role == "user"]
    calls = [call for _, _, call in t.calls()]
    return BenchmarkTask(t.task_id or name, texts, calls) if texts or calls else None


def task_from_row(path: Path, number: int, row: Mapping[str, Any]) -> BenchmarkTask | None:
    texts, calls = list(iterate_texts(row)), list(iterate_calls(row))
    own = next((str(row[key]) for key in IDS if isinstance(row.get(key), str | int)), None)
    if path.parent.name == "subtasks":
        name = f"{path.parent.parent.name}/{path.stem}"
    else:
        name = f"{name_file(path)}#{own or number}"
    return BenchmarkTask(name, texts, calls) if texts or calls else None


def name_file(path: Path) -> str:
    """Return folder and file name: many benchmarks call each domain's file `tasks.json`."""
    return f"{path.parent.name}/{path.stem}" if path.parent.name else path.stem


def iterate_texts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts under the known keys, and under known keys within those."""
    for key, value in row.items():
        if key in SAID:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str):
                    yield each
                elif isinstance(each, dict):
                    yield from iterate_texts(each)


def iterate_calls(row: Mapping[str, Any]) -> Iterator[ToolCall]:
    for key, value in row.items():
        if key not in DONE:
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
    given = next((value[key] for key in ARGUMENTS if key in value), None)
    arguments = parse_json(given.encode()) if isinstance(given, str) else given
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(id="", name=name, arguments=arguments)
