"""Two hundred episodes while their workers, and sometimes the whole sandbox, are killed from outside: nobody notices.

The schedule of kills is seeded and counts calls, so a failure can be run again. The same episodes are played undisturbed
first; every result, every final state must be the same, and afterwards no process and no descriptor may be left.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.sandbox.limits import WorkerLimits
from tests.sandbox.making import TASK, ask, gone, notes_pack, processes

EPISODES, ABREAST, CALLS = 200, 32, 8


class Chaos:
    """Kills by the number of calls made: a worker every few, the sandbox every `whole`."""

    def __init__(self, marker: str, seed: int, every: int, whole: int) -> None:
        self._marker, self._random, self._every, self._whole = marker, random.Random(seed), every, whole
        self._calls = 0
        self.workers = self.sandboxes = 0

    def strike(self) -> None:
        self._calls += 1
        if self._calls % self._whole == 0:
            self.sandboxes += self._kill(whole=True)
        elif self._calls % self._every == 0:
            self.workers += self._kill(whole=False)

    def _kill(self, *, whole: bool) -> bool:
        inside = [pid for pid in processes(self._marker) if b"main.py" in command(pid)]
        parents = {parent(pid) for pid in inside}
        workers = [pid for pid in inside if pid not in parents and parent(pid) in inside]
        zygotes = [pid for pid in inside if pid in {parent(worker) for worker in workers}]
        chosen = zygotes if whole else workers
        if not chosen:
            return False
        try:
            os.kill(self._random.choice(sorted(chosen)), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


async def play(world: ExecutableWorld, seed: int, chaos: Chaos | None) -> list[Any]:
    """A fixed mix of reads, writes, refusals, faults and nonsense; what each gave, then the final state and changes."""
    chooser = random.Random(seed)
    told: list[Any] = []
    for number in range(CALLS):
        kind = chooser.choice(["add", "add", "add", "look", "refused", "fault", "exit", "unknown"])
        if chaos is not None:
            chaos.strike()
        if kind == "add":
            result = await ask(world, "add", text=f"{seed}/{number}")
        elif kind == "look":
            result = await ask(world, "look")
        elif kind == "refused":
            result = await ask(world, "spoil", how="refuse")
        elif kind == "fault":
            result = await ask(world, "spoil", how="raise")
        elif kind == "exit":
            result = await ask(world, "spoil", how="exit")
        else:
            result = await ask(world, "fly")
        told.append((kind, result.content, result.error))
    evidence = await world.evidence()
    return [told, await world.state(), evidence]


async def run(folder: Path, isolation: str, chaos: bool) -> tuple[list[Any], Chaos | None]:
    pack = notes_pack(folder, isolation=isolation)
    marker = str(pack.root)
    striker = Chaos(marker, seed=7, every=11, whole=397) if chaos else None
    backend = ExecutableBackend(pack, limits=WorkerLimits(wall=20.0), workers=2)
    places = asyncio.Semaphore(ABREAST)

    async def one(seed: int) -> list[Any]:
        async with places:
            world = await backend.open(TASK, seed=seed)
            try:
                return await play(world, seed, striker)
            finally:
                await world.close()

    try:
        return list(await asyncio.gather(*(one(seed) for seed in range(EPISODES)))), striker
    finally:
        await backend.close()
        assert await gone(marker) == []


@pytest.mark.parametrize("isolation", [pytest.param("shared", marks=pytest.mark.all), "process"])
async def test_killed_workers_change_nothing(tmp_path: Path, isolation: str) -> None:
    quiet, _ = await run(tmp_path / "p", isolation, chaos=False)
    before = sorted(os.listdir("/proc/self/fd"))
    loud, chaos = await run(tmp_path / "p", isolation, chaos=True)
    assert chaos is not None
    assert chaos.workers > 50
    assert chaos.sandboxes >= 2
    for one, other in zip(quiet, loud, strict=True):
        assert other == one
    assert {str(told) for told, _, _ in quiet} != {str(quiet[0][0])}  # the episodes do differ
    await asyncio.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= len(before)
