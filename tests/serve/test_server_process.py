"""`simia serve --openenv` as a process: signals, kills, tokens, and what it says of mistakes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from simia.envs.opening import open_environment
from simia.errors import Code
from simia.trajectory import Message, ToolCall
from tests.command import run_simia
from tests.serve.environment_servers import wait_until
from tests.serve.server_process import server_process

TASK = "cs-009"
TOKEN = "correct-horse-battery-staple"
LOOK = Message(
    role="assistant",
    calls=[ToolCall(id="1", name="get_order", arguments={"order_id": "ORD-00001", "email": "a@example.com"})],
)


async def test_sigterm_drains_and_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    with server_process(tmp_path / "out.jsonl", "--drain", "240") as server:
        async with await open_environment(server.url) as remote:
            finished, left = [await remote.reset(TASK) for _ in range(2)]
            for episode in (finished, left):
                await episode.step(LOOK)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(1)
            assert (await finished.step(LOOK)).end is None, "it goes on"
            await finished.stop(Code.MAX_TOKENS)
            assert server.process.poll() is None, "one is still in progress"
            server.process.send_signal(signal.SIGINT)
            await wait_until(lambda: server.process.poll() is not None)
        assert server.process.returncode == 0
        assert [row.end.code for row in server.read_kept()] == [Code.MAX_TOKENS, Code.AGENT_FAILED]


async def test_a_server_that_is_killed_and_started_again_serves_the_same_client(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with server_process(out) as server:
        remote = await open_environment(server.url)
        port = server.url.rpartition(":")[2]
        done, lost = [await remote.reset(TASK) for _ in range(2)]
        await done.step(LOOK)
        await done.stop(Code.MAX_TOKENS)
        await lost.step(LOOK)
        server.process.kill()
        stepping = asyncio.ensure_future(lost.step(LOOK))
        await asyncio.to_thread(server.process.wait)
    with server_process(out, "--port", port) as server:
        async with remote:
            step = await stepping
            assert step.end is not None
            assert (step.end.kind, step.end.code) == ("aborted", Code.CONNECTION)
            again = await remote.reset(TASK)
            await again.step(LOOK)
            await again.stop(Code.MAX_TOKENS)
        assert [row.task_id for row in server.read_kept()] == [TASK, TASK], "the finished ones; the lost one is nowhere"


async def test_the_token_is_never_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMIA_TOKEN", TOKEN)
    with server_process(tmp_path / "out.jsonl", "--host", "0.0.0.0") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        async with await open_environment(url, token_env="SIMIA_TOKEN") as remote:
            episode = await remote.reset(TASK)
            await episode.step(LOOK)
            await episode.close()
        server.process.send_signal(signal.SIGINT)
        assert server.process.stderr is not None
        said = await asyncio.to_thread(server.process.stderr.read)
        assert TOKEN not in said
        assert TOKEN not in server.out.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["customer_service", "--openenv", "--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines, and no token: export SIMIA_TOKEN=…"),
        (["customer_service", "--openenv", "--token-env", "SHORT"], "the token in SHORT is shorter than 16 characters"),
        (["customer_service", "--openenv", "--token-env", "NONE"], "no token: export NONE=…"),
        (["customer_service", "--openenv", "--token-env", "A", "--no-token"], "cannot be combined"),
        (["customer_service", "office", "--mcp"], "MCP serves the tools of one pack"),
        (["customer_service", "nope", "--openenv"], "no pack named 'nope'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = run_simia("serve", *words, cwd=tmp_path, env={"SHORT": "abc", "SIMIA_TOKEN": None, "NONE": None, "A": TOKEN})
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert said in line
    assert not list(tmp_path.iterdir())
