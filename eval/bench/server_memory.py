"""Measure the memory of a server of environments over many steps: it must not grow with the number of answered steps.

    python eval/bench/server_memory.py                  # 100,000 steps: some minutes on two cores
    python eval/bench/server_memory.py --steps 5000

64 sessions of simia's client play the reference solutions of customer service (5 steps on average) on `simia serve customer_service
--openenv` in a process of its own, so that thousands of episodes begin, are scored, and end. After a tenth, a half and all of the steps a
row shows the memory: the resident set of the server's process, and the proportional set of it and its sandbox (shared pages count once).
The last line is one JSON object; the exit code is 1 where either has grown by more than a tenth after the first tenth of the steps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from server import SESSIONS, await_port, find_port, list_family, play_environment, serve_words

GROWTH = 1.1  # most that the memory may grow by from a tenth of the steps to all
MARKS = (0.1, 0.5, 1.0)  # of the steps


def measure_memory(pid: int) -> dict[str, float]:
    """Megabytes: the resident set of a process, and the proportional sets of it and all below it."""

    def read(path: str, name: str) -> float:
        try:
            lines = Path(path).read_text().splitlines()
        except OSError:  # it has ended
            return 0.0
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)

    family = sum(read(f"/proc/{each}/smaps_rollup", "Pss:") for each in list_family(pid))
    return {"server_mb": read(f"/proc/{pid}/status", "VmRSS:"), "family_mb": family}


async def play_steps(url: str, steps: int, server: int) -> list[dict[str, float]]:
    """Play solutions until the given number of steps is answered. Returns the memory of the server and its children at the marks."""
    times, rows = list[float](), list[dict[str, float]]()

    async def watch() -> None:
        for mark in (int(share * steps) for share in MARKS):
            while len(times) < mark:  # noqa: ASYNC110 - an event for each step would be work of the load generator
                await asyncio.sleep(0.05)
            rows.append({"steps": mark, **measure_memory(server)})
            print(f"{mark:>10,}{rows[-1]['server_mb']:>12.1f}{rows[-1]['family_mb']:>16.1f}", flush=True)

    watching = asyncio.ensure_future(watch())
    await play_environment(url, "solutions", lambda: not watching.done(), times)
    await watching
    return rows


def main() -> int:
    from simia import event_loop

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        port = find_port()
        process = subprocess.Popen(serve_words(port, folder), stderr=subprocess.DEVNULL)
        try:
            await_port(port, process)
            print(f"{'steps':>10}{'server MB':>12}{'and sandbox MB':>16}")
            rows = event_loop.run_command(play_steps(f"http://127.0.0.1:{port}", steps, process.pid))
        finally:
            process.terminate()
            process.wait()
    growth = max(rows[-1][name] / rows[0][name] for name in ("server_mb", "family_mb"))
    ok = growth <= GROWTH
    print(f"goal: at most {GROWTH:g} times the memory of the first tenth: {growth:.3f}, {'kept' if ok else 'MISSED'}")
    rounded = [{name: round(value, 1) for name, value in row.items()} for row in rows]
    print(
        json.dumps(
            {"bench": "server_memory", "ok": ok, "sessions": SESSIONS, "load": os.getloadavg()[0], "rows": rounded}
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
