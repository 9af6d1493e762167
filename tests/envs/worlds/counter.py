"""A small world for tests of the worker: it counts, fails half-way, waits, and can be told to do wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from simia.pack import Pack

CODE = """
import os
import time

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write

SEEN: list[str] = []


class State(BaseModel):
    total: int = 0
    log: list[str] = []
    padding: str = ""


class Counter(Tools[State]):
    State = State

    @write
    def add(self, n: int) -> dict:
        self.state.total += n
        self.state.log.append(f"{n}")
        if n < 0:
            raise ToolError("no negative numbers")
        if n == 13:
            return {"x": 1 / 0}
        return {"total": self.state.total}

    @read
    def total(self) -> dict:
        return {"total": self.state.total, "steps": len(self.state.log)}

    @write
    def draw(self) -> dict:
        made = self.new_id("D-", 6, taken=self.state.log)
        self.state.log.append(made)
        return {"id": made, "now": self.now.isoformat(), "dice": [self.random.randint(1, 6) for _ in range(3)], "set": list({"a", "b", "c"})}

    @write
    def clock(self) -> dict:
        self.state.total += 1
        return {"at": time.time_ns()}

    @read
    def remember(self, word: str) -> dict:
        SEEN.append(word)
        return {"seen": SEEN}

    @read
    def wait(self, seconds: float) -> dict:
        time.sleep(seconds)
        return {}

    @read
    def crash(self) -> dict:
        os._exit(1)

    @read
    def echo(self, value: str) -> dict:
        return {"value": value}
"""
ARGUMENTS = {
    "add": {"n": {"type": "integer"}}, "remember": {"word": {"type": "string"}}, "wait": {"seconds": {"type": "number"}},
    "echo": {"value": {"type": "string"}},
}  # fmt: skip
NAMES = ("add", "total", "draw", "clock", "remember", "wait", "crash", "echo")


def counter(folder: Path, state: dict[str, Any] | None = None, tasks: list[dict[str, Any]] | None = None) -> Pack:
    tools = []
    for name in NAMES:
        properties = ARGUMENTS.get(name, {})
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        tools.append({"name": name, "description": name, "parameters": schema})
    (folder / "tools.py").write_text(CODE)
    (folder / "tools.json").write_bytes(orjson.dumps(tools))
    (folder / "state.json").write_bytes(orjson.dumps(state or {}))
    (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks or [{"id": "t"}]))
    (folder / "pack.yaml").write_text(
        "format: 1\nname: counter\ntools: tools.json\nstate: state.json\ntasks: tasks.jsonl\n"
        "executable: {code: tools.py, object: Counter, isolation: shared, clock: 2025-01-01T00:00:00}\n"
    )
    return Pack.load(folder)
