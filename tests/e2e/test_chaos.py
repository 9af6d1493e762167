"""Two hundred episodes while workers, and at times whole sandboxes, are killed from outside: they end as undisturbed ones do."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from simia.environment import Environment, EpisodeLimits, open_environment
from simia.pack import Pack
from simia.rollout import play
from simia.rollout.scripted import RandomAgent, ReferenceAgent
from simia.trajectory import Trajectory
from simia.users import ScriptedUser
from simia.worlds.executable import ExecutableBackend

EPISODES, AT_ONCE, KILLS = 200, 32, 25


def processes() -> dict[int, tuple[int, str]]:
    """Our descendants: pid → (parent, command line)."""
    everyone: dict[int, tuple[int, str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                words = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            everyone[int(entry)] = (parent, words)
    ours = {os.getpid()}
    for _ in range(8):
        ours |= {pid for pid, (parent, _) in everyone.items() if parent in ours}
    return {pid: everyone[pid] for pid in ours - {os.getpid()} if pid in everyone}


def workers() -> list[int]:
    """The processes at the end of each line: they run episodes."""
    found = processes()
    python = {pid for pid, (_, words) in found.items() if "inside/main.py" in words and not words.startswith("bwrap")}
    inner = {pid for pid in python if "bwrap" not in found[pid][1]}
    return [pid for pid in inner if found[pid][0] in inner]


def sandboxes() -> list[int]:
    """The processes that workers are forked from."""
    found, low = processes(), set(workers())
    return sorted({found[pid][0] for pid in low if pid in found})


async def episodes(environment: Environment, pack: Pack) -> list[Trajectory]:
    """Every other one by the solution, the rest by calls at random: reads, writes and refusals."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Trajectory:
        task = pack.tasks[number % len(pack.tasks)]
        agent: Any = ReferenceAgent(task) if number % 2 == 0 else RandomAgent(task, number, calls=12)
        async with room:
            return await play(await environment.reset(task, seed=number), agent)

    return list(await asyncio.gather(*(one(number) for number in range(EPISODES))))


async def kill_at_random(source: random.Random, done: asyncio.Event, killed: list[int]) -> None:
    while not done.is_set():
        await asyncio.sleep(source.uniform(0.01, 0.05))
        victims = sandboxes() if len(killed) % 8 == 7 else workers()
        if victims and len(killed) < KILLS:
            victim = source.choice(victims)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(victim)


@pytest.mark.parametrize("isolation", ["shared", "process"])
async def test_episodes_end_as_they_would_have_ended(isolation: str) -> None:
    pack = Pack.load("customer_service")
    how: dict[str, Any] = {"isolation": isolation, "user": ScriptedUser, "limits": EpisodeLimits(turns=60, errors=60)}
    async with await open_environment(pack, **how) as environment:
        calm = await episodes(environment, pack)
    descriptors = len(os.listdir("/proc/self/fd"))
    killed: list[int] = []
    done = asyncio.Event()
    async with await open_environment(pack, **how) as environment:
        assert isinstance(environment.backend, ExecutableBackend)
        storm = asyncio.create_task(kill_at_random(random.Random(7), done, killed))
        stormy = await episodes(environment, pack)
        done.set()
        await storm
    assert len(killed) >= 5, "there was a storm"
    assert not any(t.end.kind == "aborted" for t in calm)
    assert [t.id for t in stormy] == [t.id for t in calm]
    assert [t.reward for t in stormy] == [t.reward for t in calm]
    assert [t.evidence for t in stormy] == [t.evidence for t in calm]
    assert sum(t.reward is not None and t.reward.value == 1 for t in calm) >= EPISODES // 2
    await asyncio.sleep(0.2)
    assert [pid for pid, (_, words) in processes().items() if "inside/main.py" in words] == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors
