"""Measure the memory of a thousand live episodes: the parent and every process of the sandbox.

    python eval/bench/sessions.py                # customer_service, 1,000 episodes, both isolations (a minute)
    python eval/bench/sessions.py --episodes 100

Each episode makes a look-up and, if the pack has a reference, its task's reference calls; then all are held open. The measure is
the proportional set size (Pss: a page that n processes share counts 1/n in each), read from /proc. For isolated episodes the
resident size is printed too, which counts a shared page once for each process.

Prints a table; the last line is one JSON object; the exit code is 1 where the shared episodes take 500 MB or more.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.users import ScriptedUser
from simia.pack import Pack

BOUND_MB = 500


def family(root: int) -> list[int]:
    """List a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def megabytes(pids: list[int], field: str) -> float:
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total / 1024


async def measure(pack: Pack, isolation: str, episodes: int) -> dict[str, float]:
    gc.collect()
    before = megabytes(family(os.getpid()), "Pss")
    start = time.perf_counter()
    async with await open_environment(pack, isolation=isolation, user=ScriptedUser) as environment:
        held = []
        for i in range(episodes):
            task = pack.tasks[i % len(pack.tasks)]
            episode = await environment.reset(task, seed=i)
            agent = ReferenceAgent(task)
            for _ in range(4):
                message, _ = await agent.act(episode.view)
                if not message.calls:
                    break
                await episode.step(message)
            held.append(episode)
        spent = time.perf_counter() - start
        pids = family(os.getpid())
        figures = {
            "mb": megabytes(pids, "Pss") - before,
            "resident_mb": megabytes(pids, "Rss") - before,
            "processes": len(pids),
            "ms_an_episode": spent / episodes * 1e3,
        }
        alive = sum(episode.end is None for episode in held)
        for episode in held:
            await episode.close()
    print(
        f"{isolation:<10}{episodes:>9,}{alive:>9,}{figures['mb']:>10,.0f}{figures['resident_mb']:>14,.0f}"
        f"{len(pids):>11,}{figures['ms_an_episode']:>16.1f}"
    )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--pack", default="customer_service")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    pack = Pack.load(given.pack)
    print(
        f"{'isolation':<10}{'episodes':>9}{'alive':>9}{'MB':>10}{'resident MB':>14}{'processes':>11}{'ms an episode':>16}"
    )
    figures = {kind: asyncio.run(measure(pack, kind, given.episodes)) for kind in ("shared", "process")}
    ok = figures["shared"]["mb"] < BOUND_MB
    print(f"bound: {BOUND_MB} MB for the shared ones: {'kept' if ok else 'MISSED'}")
    rounded = {kind: {name: round(value, 1) for name, value in each.items()} for kind, each in figures.items()}
    print(json.dumps({"bench": "sessions", "ok": ok, "episodes": given.episodes, **rounded}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
