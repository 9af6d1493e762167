"""Solutions of OfficeBench's training tasks, written for simia and shipped with it: `officebench_solutions.jsonl`.

A row is `{"task", "digest", "actions"}`. The digest covers the task's text and checks, so that a solution is never given to a changed
task with the same number. Tasks of two and three apps are for evaluation and have no solution here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from simia.trajectory import digest

SHIPPED = Path(__file__).with_suffix(".jsonl")


def add_shipped_solutions(rows: list[dict[str, Any]]) -> None:
    """Give each training task without a reference the solution that was written for it. `rows`: of tasks.jsonl, changed in place."""
    shipped = {each["task"]: each for each in map(orjson.loads, SHIPPED.read_bytes().splitlines())}
    for row in rows:
        found = shipped.get(row["id"])
        if found and row["split"] == "train" and "reference" not in row and found["digest"] == digest_task(row):
            row["reference"] = found["actions"]


def digest_task(row: dict[str, Any]) -> str:
    """A digest of what a task asks for and of how it is checked."""
    return digest([row["instruction"], row["reward"]])
