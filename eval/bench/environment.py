"""Measure a step of an executable world: our worker against a process per step, spawned or forked, and against no isolation.

    python eval/bench/environment.py             # a minute
    python eval/bench/environment.py --seconds 1

A step is one tool call, every other one a write, on states of about 1 KB, 100 KB and 5 MB. `spawned` is trial-then-overwrite
as in the paper (CodeGym §4): a fresh interpreter reads the state, runs the call and writes the state back. `forked` does the same in
a fork of a process that holds code and state; the new state is returned pickled. `in process` calls the method: no sandbox, limit or
rollback. Ours runs in bubblewrap, with transactions and a journal: one episode step by step, and 32 at once; in both isolations.

Prints a table; the last line is one JSON object; the exit code is 1 if ours (one episode, isolated) is less than 50 times the
spawned process at any size, or less than 5,000 steps/s at 100 KB with 32 episodes at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import ToolCall

SIZES = {"1 KB": 10, "100 KB": 1000, "5 MB": 50_000}
TIMES, STEPS_A_SECOND, AT_ONCE = 50, 5000, 32
CODE = """
from pydantic import BaseModel
from simia.kit import ToolError, Tools, read, write

class Row(BaseModel):
    name: str
    count: int = 0
    tags: list[str] = []

class State(BaseModel):
    rows: dict[str, Row]

class Table(Tools[State]):
    State = State

    @read
    def get(self, key: str) -> dict:
        if key not in self.state.rows:
            raise ToolError("no such row")
        return self.state.rows[key].model_dump()

    @write
    def add(self, key: str, count: int) -> dict:
        row = self.state.rows[key]
        row.count += count
        return {"key": key, "count": row.count}
"""
SPAWNED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tools
name, arguments = sys.argv[3], json.loads(sys.argv[4])
with open(sys.argv[2]) as file:
    world = tools.Table(tools.State.model_validate_json(file.read()))
print(json.dumps(getattr(world, name)(**arguments)))
with open(sys.argv[2] + ".new", "w") as file:
    file.write(world.state.model_dump_json())
import os
os.replace(sys.argv[2] + ".new", sys.argv[2])
"""


def call(step: int, rows: int) -> tuple[str, dict[str, Any]]:
    key = f"row-{step * 7919 % rows:06d}"
    return ("add", {"key": key, "count": 1}) if step % 2 else ("get", {"key": key})


def rate(step: Callable[[int], object], seconds: float) -> float:
    """Measure steps per second: run at least one step, for the given time."""
    step(0)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or count < 2:
        count += 1
        step(count)
    return count / (time.perf_counter() - start)


def spawned(folder: Path, rows: int, seconds: float) -> float:
    state, script = folder / "spawned.json", folder / "spawned.py"
    state.write_bytes((folder / "state.json").read_bytes())
    script.write_text(SPAWNED)

    def step(i: int) -> None:
        name, arguments = call(i, rows)
        words = [sys.executable, str(script), str(folder), str(state), name, json.dumps(arguments)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    return rate(step, seconds)


def loaded(folder: Path) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("tools", folder / "tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tools"] = module
    spec.loader.exec_module(module)
    return module.Table(module.State.model_validate_json((folder / "state.json").read_bytes()))


def forked(folder: Path, rows: int, seconds: float) -> float:
    world = loaded(folder)

    def step(i: int) -> None:
        name, arguments = call(i, rows)
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(out)
            result = getattr(world, name)(**arguments)
            with os.fdopen(into, "wb") as file:
                pickle.dump((result, world.state), file)
            os._exit(0)
        os.close(into)
        with os.fdopen(out, "rb") as file:
            _, world.state = pickle.load(file)
        os.waitpid(pid, 0)

    return rate(step, seconds)


def in_process(folder: Path, rows: int, seconds: float) -> float:
    world = loaded(folder)

    def step(i: int) -> None:
        name, arguments = call(i, rows)
        getattr(world, name)(**arguments)

    return rate(step, min(seconds, 1.0))


async def ours(pack: Pack, rows: int, seconds: float, isolation: str, at_once: int) -> float:
    backend = ExecutableBackend(pack, isolation=isolation)
    task = Task(id="bench")
    try:
        worlds = [await backend.open(task) for _ in range(at_once)]
        counts = [0] * at_once

        async def play(i: int, until: float) -> None:
            while time.perf_counter() < until:
                name, arguments = call(counts[i], rows)
                result = (await worlds[i].call([ToolCall(id="", name=name, arguments=arguments)]))[0]
                assert result.error is None, result
                counts[i] += 1

        await asyncio.gather(*(play(i, 0.0) for i in range(at_once)))
        start = time.perf_counter()
        await asyncio.gather(*(play(i, start + seconds) for i in range(at_once)))
        spent = time.perf_counter() - start
        for world in worlds:
            await world.close()
        return sum(counts) / spent
    finally:
        await backend.close()


def make(folder: Path, rows: int) -> Pack:
    state = {
        "rows": {f"row-{i:06d}": {"name": f"name {i}", "count": i, "tags": ["a", "bc", "def"]} for i in range(rows)}
    }
    text = {"type": "string"}
    tools = [
        {"name": "get", "parameters": {"type": "object", "properties": {"key": text}, "required": ["key"]}},
        {"name": "add", "parameters": {"type": "object", "properties": {"key": text, "count": {"type": "integer"}}}},
    ]
    (folder / "tools.py").write_text(CODE)
    (folder / "state.json").write_bytes(orjson.dumps(state))
    (folder / "tools.json").write_bytes(orjson.dumps(tools))
    (folder / "pack.yaml").write_text(
        "format: 1\nname: bench\ntools: tools.json\nstate: state.json\nexecutable: {code: tools.py, object: Table}\n"
    )
    return Pack.load(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    seconds = parser.parse_args().seconds
    ways = ["spawned", "forked", "in process", "ours, 1", f"ours, {AT_ONCE}", f"shared, {AT_ONCE}"]
    print(f"{'steps/s':<10}" + "".join(f"{way:>14}" for way in ways) + f"{'ours : spawned':>18}")
    figures: dict[str, dict[str, float]] = {}
    for size, rows in SIZES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            pack = make(folder, rows)
            at_once = AT_ONCE if rows < 10_000 else 8
            found = [
                spawned(folder, rows, seconds),
                forked(folder, rows, seconds),
                in_process(folder, rows, seconds),
                asyncio.run(ours(pack, rows, seconds, "process", 1)),
                asyncio.run(ours(pack, rows, seconds, "process", at_once)),
                asyncio.run(ours(pack, rows, seconds, "shared", at_once)),
            ]
        figures[size] = dict(zip(ways, found, strict=True))
        ratio = found[3] / found[0]
        print(f"{size:<10}" + "".join(f"{value:>14,.1f}" for value in found) + f"{ratio:>17,.0f}x")
    ratios = {size: each["ours, 1"] / each["spawned"] for size, each in figures.items()}
    steps = figures["100 KB"][f"ours, {AT_ONCE}"]
    short = [size for size, ratio in ratios.items() if ratio < TIMES]
    ok = not short and steps >= STEPS_A_SECOND
    print(
        f"bound: {TIMES}x the spawned process at every size, {STEPS_A_SECOND:,} steps/s at 100 KB: {'kept' if ok else 'MISSED'}"
    )
    rounded = {size: {way: round(value, 1) for way, value in each.items()} for size, each in figures.items()}
    print(
        json.dumps(
            {
                "bench": "environment",
                "ok": ok,
                "steps_per_s": rounded,
                "times_spawned": {k: round(v) for k, v in ratios.items()},
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
