"""The child process with a real model in it: the smallest one, since only the plumbing is at stake."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simia.errors import UserError
from simia.llm import embedded_server, local_models
from simia.llm.embedded_server import EmbeddedServer

MODEL = local_models.models_dir() / local_models.KNOWN[local_models.FALLBACK].file
real_model = pytest.mark.usefixtures("weights")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

PARENT = """
import asyncio, pathlib, sys
from simia.llm.embedded_server import EmbeddedServer

async def main():
    server = EmbeddedServer(pathlib.Path(sys.argv[1]), threads=1, context=512)
    await server.start()
    print(server.child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    started = EmbeddedServer(MODEL, threads=1, context=512, log=tmp_path / "logs" / "model.log")
    try:
        await started.start()
        yield started
    finally:
        await started.stop()


async def ask(server: EmbeddedServer, key: str | None = None) -> tuple[int, Any]:
    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4, "temperature": 0}
    headers = {"Authorization": f"Bearer {key or server.api_key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{server.base_url}/chat/completions", json=body) as reply,
    ):
        return reply.status, await reply.json()


def proc(pid: int | None, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def gone(pid: int) -> bool:
    """Ended: no process of that number, or one that waits to be buried by whoever inherited it."""
    try:
        return proc(pid, "stat").rpartition(b")")[2].split()[0] == b"Z"
    except FileNotFoundError:
        return True


def wait_until(true: Callable[[], bool]) -> None:
    """A killed process shows as a zombie while its threads still end, and only then can its parent reap it."""
    for _ in range(3000):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("the process lives on")


@real_model
async def test_it_answers_whoever_has_the_key(server: EmbeddedServer, tmp_path: Path) -> None:
    assert server.base_url.startswith("http://127.0.0.1:")
    status, reply = await ask(server)
    assert status == 200
    assert reply["choices"][0]["message"]["content"]
    assert reply["usage"]["completion_tokens"] == 4
    assert str(Path.home()) not in json.dumps(reply)
    status, reply = await ask(server, key="guess")
    assert status == 401
    assert (tmp_path / "logs" / "model.log").stat().st_size > 0


@real_model
@linux
async def test_the_key_stands_in_no_command_line_and_no_environment(server: EmbeddedServer) -> None:
    for name in ("cmdline", "environ"):
        assert server.api_key.encode() not in proc(server.child.pid, name)


@real_model
@linux
async def test_a_killed_child_is_seen_and_restarted(server: EmbeddedServer) -> None:
    assert server.alive
    old = server.child.pid
    assert old is not None
    os.kill(old, 9)
    await asyncio.to_thread(wait_until, lambda: not server.alive)
    with pytest.raises(aiohttp.ClientError):
        await ask(server)
    await server.restart()
    assert server.alive
    assert server.child.pid != old
    assert (await ask(server))[0] == 200


@real_model
@linux
async def test_stop_leaves_no_process(server: EmbeddedServer) -> None:
    pid = server.child.pid
    assert pid is not None
    await server.stop()
    assert not server.alive
    assert gone(pid)
    await server.stop()


@real_model
@linux
def test_the_child_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(MODEL)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.kill()
    wait_until(lambda: gone(pid))


@real_model
@linux
async def test_a_cancelled_start_leaves_no_process() -> None:
    server = EmbeddedServer(MODEL, threads=1, context=512)
    starting = asyncio.create_task(server.start())
    for _ in range(3):  # until it waits for the child's answer
        await asyncio.sleep(0)
    pid = server.child.pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert gone(pid)


async def test_a_broken_model_is_refused_with_the_librarys_words(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    (tmp_path / "broken.gguf").write_bytes(b"no model at all")
    server = EmbeddedServer(tmp_path / "broken.gguf", log=tmp_path / "model.log")
    with pytest.raises(UserError, match=r"ended while it started.* E .*log: .*model\.log"):
        await server.start()
    assert not server.alive


async def test_a_missing_model_or_library_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'simia\[embedded\]'"):
        await EmbeddedServer(tmp_path / "none.gguf").start()
    monkeypatch.undo()
    pytest.importorskip("xllamacpp")
    with pytest.raises(UserError, match="there is no model file"):
        await EmbeddedServer(tmp_path / "none.gguf").start()
