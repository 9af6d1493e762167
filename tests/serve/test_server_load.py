"""A thousand sessions at once, and memory over a hundred thousand steps."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

pytest.importorskip("prometheus_client")

from simia.envs.opening import open_environment
from simia.errors import Code
from simia.trajectory import Message, ToolCall
from tests.serve.server_process import server_process

pytestmark = pytest.mark.all
SESSIONS, STEPS, AT_ONCE, EPISODE = 1000, 100_000, 64, 50
LOOK = Message(
    role="assistant",
    calls=[ToolCall(id="1", name="get_order", arguments={"order_id": "ORD-00001", "email": "a@example.com"})],
)
LIMITS = ("--set", "episode.errors=1000", "--set", "user=scripted")


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_thousand_sessions_at_once(tmp_path: Path) -> None:
    with server_process(tmp_path / "out.jsonl", "--sessions", str(SESSIONS), *LIMITS) as server:
        async with await open_environment(server.url) as remote, aiohttp.ClientSession() as http:
            tasks = remote.tasks
            episodes = await asyncio.gather(*(remote.reset(tasks[n % len(tasks)], seed=n) for n in range(SESSIONS)))
            assert {episode.end for episode in episodes} == {None}
            async with http.get(f"{server.url}/metrics") as response:
                text = await response.text()
            assert f'simia_sessions{{pack="customer_service",state="connected"}} {SESSIONS}.0' in text
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await http.ws_connect(f"{server.url}/ws")
            for _ in range(3):
                steps = await asyncio.gather(*(episode.step(LOOK) for episode in episodes))
                assert {(step.end, len(step.messages)) for step in steps} == {(None, 1)}
            ended = await asyncio.gather(*(episode.stop(Code.MAX_TOKENS) for episode in episodes))
            assert {step.end.kind for step in ended if step.end is not None} == {"truncated"}
            assert all(step.reward is not None and step.reward.value is not None for step in ended)
        assert sorted(row.task_id or "" for row in server.read_kept()) == sorted(each.task.id for each in episodes)


async def test_memory_is_flat_over_a_hundred_thousand_steps(tmp_path: Path) -> None:
    with server_process(tmp_path / "out.jsonl", "--turns", str(EPISODE), *LIMITS) as server:
        made, marks = 0, list[float]()
        async with await open_environment(server.url) as remote:

            async def play(number: int) -> None:
                nonlocal made
                while made < STEPS:
                    episode = await remote.reset(remote.tasks[number % len(remote.tasks)], seed=number)
                    while episode.end is None:
                        await episode.step(LOOK)
                        made += 1
                        if made % (STEPS // 20) == 0:
                            marks.append(await asyncio.to_thread(server.measure_memory))
                    assert episode.end.code is Code.MAX_TURNS
                    await episode.close()

            await asyncio.gather(*(play(number) for number in range(AT_ONCE)))
        print("megabytes, every 5,000 steps:", [round(mark, 1) for mark in marks])
        early, late = max(marks[3:8]), max(marks[-5:])
        assert late < 1.05 * early + 2, f"{marks} MB"
        assert len(server.read_kept()) >= STEPS / EPISODE
