"""Measure the cost of one sandbox per episode: opening and closing it, a command in it, episodes per second.

    python eval/bench/rooms.py              # 40 episodes of examples/shell, half a minute

The lower bound is the bare isolation around `python3 -c pass`: with one sandbox per episode, no design can cost less. Prints a table;
the last line is one JSON object; the exit code is 1 if opening and closing costs more than 4 times the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.importers.agentbench import import_problems
from simia.sandbox.bubblewrap import BubblewrapSandbox, PrivateFolder, list_system_binds
from simia.sandbox.capabilities import require_isolation
from simia.trajectory import ToolCall

EXAMPLE = Path(__file__).parents[2] / "examples" / "shell"
BOUND = 4.0


def bare() -> float:
    """Measure the seconds of the bare isolation, with an interpreter that does nothing."""
    walls = require_isolation()
    jail = BubblewrapSandbox(walls, list_system_binds(walls.bwrap or ""), room=PrivateFolder("/", 64 << 20))
    start = time.perf_counter()
    subprocess.run(jail.command(["/usr/bin/python3", "-s", "-P", "-c", "pass"]), check=True)
    return time.perf_counter() - start


async def one(environment: Environment, number: int, steps: int) -> tuple[float, float]:
    """Measure the seconds to open and close, and the seconds per command."""
    task = environment.tasks[number % len(environment.tasks)]
    start = time.perf_counter()
    world = await environment.backend.open(task, seed=number, group=None)
    opened = time.perf_counter()
    for n in range(steps):
        await world.call([ToolCall(id=str(n), name="bash_action", arguments={"script": "ls /etc > /dev/null; pwd"})])
    called = time.perf_counter()
    await world.close()
    return opened - start + time.perf_counter() - called, (called - opened) / max(1, steps)


async def main(episodes: int, steps: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        pack = import_problems([EXAMPLE / "problems.json"], Path(folder) / "shell", scripts=EXAMPLE, train=True)
        async with await open_environment(str(pack), user="none") as environment:
            await one(environment, 0, 1)
            pairs, bounds = [], []
            for number in range(episodes):  # alternating, so that a busy machine affects both
                bounds.append(await asyncio.to_thread(bare))
                pairs.append(await one(environment, number, steps))
            start = time.perf_counter()
            await asyncio.gather(*(one(environment, number, steps) for number in range(episodes)))
            together = episodes / (time.perf_counter() - start)
    alone, command, bound = (statistics.median(each) for each in (*zip(*pairs, strict=True), bounds))
    print(f"open and close          {alone * 1e3:8.1f} ms   bound {bound * 1e3:.1f} ms   {alone / bound:.1f} times")
    print(f"a command               {command * 1e3:8.1f} ms")
    print(f"episodes of {steps} commands {together:8.1f} a second, {episodes} at once")
    figures = {"open_ms": alone * 1e3, "bound_ms": bound * 1e3, "times": alone / bound, "command_ms": command * 1e3}
    print(json.dumps({**figures, "episodes_per_second": together}))
    return 0 if alone / bound <= BOUND else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.episodes, given.steps)))
