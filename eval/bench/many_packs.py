"""Play many small packs in one process tree: peak memory, and episodes per second.

    python eval/bench/many_packs.py                 # 1,000 packs, one episode each
    python eval/bench/many_packs.py --packs 200

Two baselines of the same run: one pack that plays as many episodes (the upper bound, which starts one sandbox), and the same
number of packs opened one after the other, each in an environment of its own. Prints a table; the last line is one JSON object; the
exit code is 1 where the peak of all processes together exceeds 1 GB or more than 64 packs had a sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from simia.authoring.scaffold import scaffold_pack
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.worlds.worker_parents import MOST_PARENTS, parents
from simia.task import Task

MOST_BYTES = 1_000_000_000
CONCURRENCY = 32


def measure_tree() -> int:
    """Proportional set size of this process and all below it, in bytes."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    total, queue = 0, [os.getpid()]
    while queue:
        process = queue.pop()
        queue += children.get(process, [])
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


class Watch:
    """Samples memory and the number of running sandboxes until it is stopped."""

    def __init__(self) -> None:
        self.peak = self.sandboxes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self.peak, self.sandboxes = max(self.peak, measure_tree()), max(self.sandboxes, len(parents))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


async def play_all(environment: Environment, tasks: list[Task]) -> float:
    """Episodes per second; every reference must score 1."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(task: Task) -> None:
        async with gate:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
            assert trajectory.reward is not None
            assert trajectory.reward.value == 1.0, trajectory.reward

    start = time.perf_counter()
    await asyncio.gather(*(one(task) for task in tasks))
    return len(tasks) / (time.perf_counter() - start)


async def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            scaffold_pack(Path(folder) / f"todo_{number}")
        packs = [{"pack": f"{folder}/todo_{number}", "limit": 1} for number in range(count)]
        watch = Watch()
        async with await open_environment({"packs": packs, "user": "scripted"}) as environment:
            rate = await play_all(environment, environment.tasks)
        watch.stop()
        async with await open_environment(f"{folder}/todo_0", user="scripted") as environment:
            bound = await play_all(environment, environment.tasks[:1] * count)
        some = min(count, 40)
        start = time.perf_counter()
        for number in range(some):
            async with await open_environment(f"{folder}/todo_{number}", user="scripted") as environment:
                await play_all(environment, environment.tasks[:1])
        apart = some / (time.perf_counter() - start)
    print(
        f"{count} packs           {rate:8.1f} episodes/s   peak {watch.peak / 1e6:.0f} MB   {watch.sandboxes} sandboxes"
    )
    print(f"one pack (bound)     {bound:8.1f} episodes/s")
    print(f"opened one by one    {apart:8.1f} episodes/s   ({some} packs)")
    figures = {"packs": count, "rate": rate, "bound": bound, "one_by_one": apart, "peak_bytes": watch.peak}
    print(json.dumps({**figures, "sandboxes": watch.sandboxes}))
    return 0 if watch.peak <= MOST_BYTES and watch.sandboxes <= MOST_PARENTS else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packs", type=int, default=1000)
    sys.exit(asyncio.run(main(parser.parse_args().packs)))
