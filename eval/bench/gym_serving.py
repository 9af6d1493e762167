"""Serve many gyms at once: steps per second and memory, where a failed call must change nothing (CodeGym §4.1).

    python eval/bench/gym_serving.py                # about three minutes
    python eval/bench/gym_serving.py --seconds 1 --environments 1 64

1, 64 and 256 environments at once, of up to 16 packs, with states of 1 KB and 100 KB; every other call is a write. The ways:

- `process`, `shared`: simia's two isolations, in bubblewrap, with rollback, limits and a journal.
- `spawned`: trial-then-overwrite as the paper writes it. The state is pickled, a fresh interpreter runs the call on the copy, and the new
  state replaces the old one if it succeeds within the time limit. `forked`: the same in a fork of the server, which holds the code.
  Up to 16 calls run at once. Neither has a sandbox.
- `in process`: the method is called: no rollback, no limit (upper bound).

All in one run, so that the ratios hold on this machine. Memory is the proportional set size of the process tree, less what it is
before the environments are opened; of `spawned` and `forked` it includes the largest sample of their children. The last line is one
JSON object; the exit code is 1 where `process` is less than 10 times `forked`, or less than 50 times `spawned`, at any size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
from many_packs import measure_tree  # type: ignore[import-not-found, unused-ignore]

from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import ToolCall

SIZES = {"1 KB": 150, "100 KB": 18_000}
MOST_PACKS, AT_ONCE = 16, 16
LIMIT = 10.0  # seconds of a call
TIMES_FORKED, TIMES_SPAWNED = 10, 50
CODE = """
from pydantic import BaseModel
from simia.kit import ToolError, Tools, read, write

class State(BaseModel):
    numbers: list[int]
    total: int = 0
    answer: int | None = None

class Gym(Tools[State]):
    State = State

    @read
    def look_up(self, index: int) -> int:
        if not 0 <= index < len(self.state.numbers):
            raise ToolError("no such index")
        return self.state.numbers[index]

    @write
    def add(self, index: int) -> int:
        self.state.total += self.state.numbers[index]
        return self.state.total
"""
SPAWNED = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
import gym_tools
state, name, arguments = pickle.loads(sys.stdin.buffer.read())
world = gym_tools.Gym(state)
sys.stdout.buffer.write(pickle.dumps((getattr(world, name)(**arguments), world.state)))
"""


def make_call(step: int, rows: int) -> tuple[str, dict[str, Any]]:
    return ("add" if step % 2 else "look_up"), {"index": step * 7919 % rows}


def make_pack(folder: Path, rows: int, number: int) -> Pack:
    folder.mkdir()
    folder.chmod(0o755)
    schema = {"type": "object", "properties": {"index": {"type": "integer"}}, "required": ["index"]}
    (folder / "gym_tools.py").write_text(CODE)
    (folder / "state.json").write_bytes(orjson.dumps({"numbers": [i * 37 % 10_000 for i in range(rows)]}))
    (folder / "tools.json").write_bytes(orjson.dumps([{"name": n, "parameters": schema} for n in ("look_up", "add")]))
    (folder / "pack.yaml").write_text(
        f"format: 2\nname: gym{number}\ntools: tools.json\nstate: state.json\nexecutable: {{code: gym_tools.py, object: Gym}}\n"
    )
    return Pack.load(folder)


class Memory:
    """The largest memory of the process tree since the start, in bytes more than at the start."""

    def __init__(self) -> None:
        self._start = self.peak = measure_tree()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self.peak = max(self.peak, measure_tree())

    def stop(self) -> float:
        """Stop and return megabytes."""
        self._stop.set()
        self._thread.join()
        return max(0, max(self.peak, measure_tree()) - self._start) / 1e6


async def serve(packs: list[Pack], rows: int, count: int, seconds: float, isolation: str) -> tuple[float, float]:
    """Steps per second and megabytes of simia's own way."""
    memory = Memory()
    backends = [ExecutableBackend(pack, isolation=isolation) for pack in packs]
    try:
        worlds = [await backends[i % len(backends)].open(Task(id="bench")) for i in range(count)]
        counts = [0] * count

        async def play(i: int, until: float) -> None:
            while True:
                name, arguments = make_call(counts[i], rows)
                result = (await worlds[i].call([ToolCall(id="", name=name, arguments=arguments)]))[0]
                assert result.error is None, result
                counts[i] += 1
                if time.perf_counter() >= until:
                    return

        await asyncio.gather(*(play(i, 0.0) for i in range(count)))
        before, start = sum(counts), time.perf_counter()
        await asyncio.gather(*(play(i, start + seconds) for i in range(count)))
        rate = (sum(counts) - before) / (time.perf_counter() - start)
        held = memory.stop()
        await asyncio.gather(*(world.close() for world in worlds))
        return rate, held
    finally:
        await asyncio.gather(*(backend.close() for backend in backends))


def load_gym(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("gym_tools", folder / "gym_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gym_tools"] = module
    spec.loader.exec_module(module)
    return module


def try_spawned(folder: Path) -> Callable[[Any, str, dict[str, Any]], Any]:
    """Return a step of trial-then-overwrite in a fresh interpreter: the new state, or the old one."""
    script = folder / "trial.py"
    script.write_text(SPAWNED)

    def step(state: Any, name: str, arguments: dict[str, Any]) -> Any:
        words = [sys.executable, str(script), str(folder)]
        with contextlib.suppress(subprocess.SubprocessError):
            done = subprocess.run(
                words, input=pickle.dumps((state, name, arguments)), check=True, timeout=LIMIT, stdout=subprocess.PIPE
            )
            return pickle.loads(done.stdout)[1]
        raise AssertionError("no call of the benchmark fails")

    return step


def try_forked(module: Any) -> Callable[[Any, str, dict[str, Any]], Any]:
    """Return a step of trial-then-overwrite in a fork of this process."""

    def step(state: Any, name: str, arguments: dict[str, Any]) -> Any:
        frozen = pickle.dumps(state)
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(out)
            world = module.Gym(pickle.loads(frozen))
            result = getattr(world, name)(**arguments)
            with os.fdopen(into, "wb") as file:
                pickle.dump((result, world.state), file)
            os._exit(0)
        os.close(into)
        with os.fdopen(out, "rb") as file:
            body = file.read()
        os.waitpid(pid, 0)
        return pickle.loads(body)[1]

    return step


def call_directly(module: Any) -> Callable[[Any, str, dict[str, Any]], Any]:
    """Return a step without rollback."""

    def step(state: Any, name: str, arguments: dict[str, Any]) -> Any:
        getattr(module.Gym(state), name)(**arguments)
        return state

    return step


def measure(
    step: Callable[..., Any], module: Any, folder: Path, rows: int, count: int, seconds: float, threads: int
) -> tuple[float, float]:
    """Measure steps per second and megabytes of a way that steps plain states, with `threads` environments at a time."""
    memory = Memory()
    body = (folder / "state.json").read_bytes()
    states = [module.State.model_validate_json(body) for _ in range(count)]
    counts = [0] * count
    until = [0.0]

    def play(first: int) -> None:
        for i in range(first, count, threads):  # at least one step of each
            states[i] = step(states[i], *make_call(counts[i], rows))
            counts[i] += 1
            if time.perf_counter() >= until[0] and sum(counts) > threads:
                return
        while time.perf_counter() < until[0]:
            for i in range(first, count, threads):
                states[i] = step(states[i], *make_call(counts[i], rows))
                counts[i] += 1

    start = time.perf_counter()
    until[0] = start + seconds
    if threads == 1:
        play(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(play, range(threads)))
    rate = sum(counts) / (time.perf_counter() - start)
    return rate, memory.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--environments", type=int, nargs="+", default=[1, 64, 256])
    given = parser.parse_args()
    ways = ["process", "shared", "spawned", "forked", "in process"]
    print(
        f"{'state':<8}{'at once':>8}" + "".join(f"{way:>20}" for way in ways) + f"{'process: spawned':>18}{'forked':>8}"
    )
    figures: dict[str, dict[str, Any]] = {}
    short = []
    for size, rows in SIZES.items():
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o755)
            packs = [make_pack(Path(name) / str(n), rows, n) for n in range(MOST_PACKS)]
            folder = Path(name) / "0"
            module = load_gym(folder)
            for count in given.environments:
                some, at_once = packs[:count], min(count, AT_ONCE)
                found = {
                    "forked": measure(try_forked(module), module, folder, rows, count, given.seconds, at_once),
                    "in process": measure(call_directly(module), module, folder, rows, count, given.seconds, 1),
                    "spawned": measure(try_spawned(folder), module, folder, rows, count, given.seconds, at_once),
                    "process": asyncio.run(serve(some, rows, count, given.seconds, "process")),
                    "shared": asyncio.run(serve(some, rows, count, given.seconds, "shared")),
                }
                times = {way: found["process"][0] / found[way][0] for way in ("spawned", "forked")}
                cells = "".join(f"{found[way][0]:>11,.0f}/s {found[way][1]:>4,.0f} MB" for way in ways)
                print(f"{size:<8}{count:>8}{cells}{times['spawned']:>17,.0f}x{times['forked']:>7,.0f}x", flush=True)
                if times["spawned"] < TIMES_SPAWNED or times["forked"] < TIMES_FORKED:
                    short.append(f"{size}, {count}")
                figures[f"{size}, {count}"] = {
                    "steps_per_s": {way: round(found[way][0], 1) for way in ways},
                    "mb": {way: round(found[way][1]) for way in ways},
                    "times": {way: round(value, 1) for way, value in times.items()},
                }
    print(
        f"bound: {TIMES_SPAWNED}x spawned, {TIMES_FORKED}x forked: {'MISSED at ' + '; '.join(short) if short else 'kept'}"
    )
    print(json.dumps({"bench": "gym_serving", "ok": not short, "figures": figures}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
