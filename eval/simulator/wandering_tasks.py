"""Copies of shipped packs with more training tasks, whose solutions wander through the pack's tools and rows.

A shipped pack has too few solutions to train a simulator. A wandering task makes calls with the arguments of a training solution, some of
them exchanged, and calls about a row of the tables: its key, its columns and those of the rows that it refers to become the arguments of
the same names. So the calls reach rows, states and refusals that no solution reaches. No wandering call uses a value that a test task names.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from simia.pack import Pack
from simia.state_schema import StateSchema, list_rows
from simia.task import Action, Task
from simia.tool import ToolSpec
from simia.trajectory import digest

CALLS = 8
FROM_SOLUTIONS = 0.4  # share of calls with the arguments of a solution; the others are about a row
SWAPPED = 0.25  # share of the former in which an argument comes from another call
OPTIONAL = 0.3  # share of the optional arguments that are given
DEPTH = 2  # number of references followed from a row


def copy_pack(name: str, out: Path, *, wandering: int, test_share: float, seed: int = 0) -> int:
    """Write a copy of a bundled pack to `out`. `test_share`: of tasks that become test tasks where the pack has none.

    Returns the number of the pack's own tasks, which stand first.
    """
    shutil.copytree(Path(Pack.load(name).root or name), out, ignore=shutil.ignore_patterns("__pycache__"))
    pack = Pack.load(out)
    rows = [json.loads(line) for line in (out / "tasks.jsonl").read_text().splitlines()]
    if not any(task.split == "test" for task in pack.tasks):
        ordered = sorted((task.id for task in pack.tasks), key=lambda each: digest([name, each]))
        chosen = set(ordered[: round(test_share * len(ordered))])
        rows = [{**row, "split": "test" if row["id"] in chosen else "train"} for row in rows]
    held = {row["id"] for row in rows if row.get("split", "train") != "train"}
    wanderer = Wanderer(pack, held, random.Random(f"{name}/{seed}"))
    more = [wanderer.make_task(number) for number in range(wandering)]
    (out / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *more]))
    Pack.load(out)
    return len(rows)


class Wanderer:
    """Makes the wandering tasks of one pack. `held`: ids of its test tasks."""

    def __init__(self, pack: Pack, held: set[str], rng: random.Random) -> None:
        self._rng, self._schema = rng, pack.state_schema or StateSchema()
        path = pack.path_of("state")
        self._state: dict[str, Any] = json.loads(path.read_text()) if path else {}
        self._tools = [tool for tool in pack.tools if tool.name not in pack.ends]
        self._training = [task for task in pack.tasks if task.id not in held and task.actions]
        tested = [action for task in pack.tasks if task.id in held for action in task.actions]
        self._avoided = {value for action in tested for name, value in action.arguments.items() if name.endswith("_id")}
        self._values: dict[str, list[Any]] = defaultdict(list)
        for task in self._training:
            for action in task.actions:
                for name, value in action.arguments.items():
                    self._values[name].append(value)

    def make_task(self, number: int) -> dict[str, Any]:
        rng, base = self._rng, self._rng.choice(self._training)
        calls: list[dict[str, Any]] = []
        while len(calls) < CALLS:
            found = self._repeat(base) if rng.random() < FROM_SOLUTIONS else self._ask_about_row()
            if found is not None and not self._avoided & {str(value) for value in found["arguments"].values()}:
                calls.append(found)
        script = [{"user": "Please go on."}, *({"calls": [call]} for call in calls), {"agent": "Done."}]
        row = {"id": f"wander-{number:03}", "split": "train", "instruction": "Go on.", "opening": "Please go on."}
        return {**row, "script": script, **({"initial": base.initial} if base.initial else {})}

    def _repeat(self, base: Task) -> dict[str, Any]:
        rng = self._rng
        action: Action = rng.choice((base if rng.random() < 0.5 else rng.choice(self._training)).actions)
        arguments = dict(action.arguments)
        if arguments and rng.random() < SWAPPED:
            name = rng.choice(sorted(arguments))
            arguments[name] = rng.choice(self._values[name])
        return {"name": action.name, "arguments": arguments}

    def _ask_about_row(self) -> dict[str, Any] | None:
        """Make a call about a row; None if the schema refuses the arguments."""
        tool: ToolSpec = self._rng.choice(self._tools)
        tables = sorted({*(tool.reads or []), *(tool.writes or [])} & self._schema.tables.keys())
        rows = [
            (table, key) for table in tables for key, _ in list_rows(self._state, table, self._schema.tables[table])
        ]
        known = self._read_context(*self._rng.choice(rows)) if rows else {}
        required, arguments = set(tool.parameters.get("required", [])), dict[str, Any]()
        for name in tool.parameters.get("properties", {}):
            if name not in required and self._rng.random() > OPTIONAL:
                continue
            if name in known:
                arguments[name] = known[name]
            elif self._values[name]:
                arguments[name] = self._rng.choice(self._values[name])
        return None if tool.argument_errors(arguments) else {"name": tool.name, "arguments": arguments}

    def _read_context(self, table: str, key: str, depth: int = DEPTH) -> dict[str, Any]:
        """Return a row's key and columns, and those of the rows that it refers to, by name. Of equal names, the nearest row's is used."""
        spec = self._schema.tables[table]
        row = dict(list_rows(self._state, table, spec)).get(key)
        found = {f"{table.removesuffix('s')}_id": key, **(row if isinstance(row, dict) else {})}
        for name, column in spec.columns.items():
            value = found.get(name)
            if column.references and depth and isinstance(value, str):
                found = {**self._read_context(column.references, value, depth - 1), **found}
        return found
