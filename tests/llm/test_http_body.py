"""Replies have a largest size, compressed or not, and an endpoint that repeats the key is masked in everything that is kept."""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard

from simia.errors import Code
from simia.jobs.reply_store import Store
from simia.llm.endpoint_pool import PoolBackend, PoolSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.http_response import decompress
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.types import LLMFault, Reply, Request
from tests.key_forms import FORMS, holds

if TYPE_CHECKING:
    from tests.fake_endpoint import FakeEndpoint

KEY = "sk-test-Echo/0123456789+abcdefghij=="
HELLO = Request(messages=[{"role": "user", "content": "hello"}])
ASK = """
import asyncio, resource, sys
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.types import LLMFault, Request

async def ask():
    backend = OpenAIBackend(OpenAISettings(model="m", base_url=sys.argv[1]))
    await backend.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        await backend.complete(Request(messages=[{"role": "user", "content": "hello"}]), draw="0")
    except LLMFault as fault:
        print(fault.code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print(fault.detail)
    await backend.close()

asyncio.run(ask())
"""


@pytest.mark.attack("an endpoint answers with hundreds of megabytes, as they are or as gzip")
@pytest.mark.parametrize("planned", ["bomb:400", "flood:400"])
def test_a_huge_reply_is_one_line_and_takes_no_memory(fake_endpoint: FakeEndpoint, planned: str) -> None:
    fake_endpoint.plan(script=[planned])
    done = subprocess.run([sys.executable, "-c", ASK, fake_endpoint.url], capture_output=True, text=True, timeout=480)
    first, line = done.stdout.splitlines()
    code, grown = first.split()
    assert code == Code.TOO_LARGE, done.stderr
    assert int(grown) < 64 << 10, "kilobytes; the body has 400,000"
    assert line == "HTTP 200: the reply is larger than 8,388,608 bytes: raise max_reply_bytes to accept it"


async def test_the_session_goes_on_after_a_refused_reply(fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(script=["flood:1"])
    backend = OpenAIBackend(OpenAISettings(model="m", base_url=fake_endpoint.url, max_reply_bytes=100_000))
    await backend.start()
    try:
        with pytest.raises(LLMFault) as caught:
            await backend.complete(HELLO, draw="0")
        assert (caught.value.code, caught.value.retry) == (Code.TOO_LARGE, False)
        assert (await backend.complete(HELLO, draw="0")).text == "echo: hello"
    finally:
        await backend.close()


def test_what_is_compressed_is_read() -> None:
    text = b'{"a": 1}' * 100
    assert decompress(text, "", 10) == text, "its size was counted before"
    assert decompress(text, "identity", 1000) == text
    assert decompress(gzip.compress(text, mtime=0), " GZIP ", 1000) == text
    assert decompress(zlib.compress(text), "deflate", 800) == text
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    assert decompress(bare.compress(text) + bare.flush(), "deflate", 1000) == text


@pytest.mark.parametrize(
    ("raw", "encoding", "code"),
    [
        (gzip.compress(b"x" * 101, mtime=0), "gzip", Code.TOO_LARGE),
        (zlib.compress(b"x" * 101), "deflate", Code.TOO_LARGE),
        (gzip.compress(b"x" * 50, mtime=0)[:-9], "gzip", Code.BAD_REPLY_BODY),
        (gzip.compress(b"x", mtime=0) * 2, "gzip", Code.BAD_REPLY_BODY),
        (b"no gzip", "gzip", Code.BAD_REPLY_BODY),
        (b"x", "br", Code.BAD_REPLY_BODY),
        (gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), "gzip, gzip", Code.BAD_REPLY_BODY),
    ],
)
def test_what_is_too_large_or_unreadable_is_refused(raw: bytes, encoding: str, code: Code) -> None:
    with pytest.raises(LLMFault) as caught:
        decompress(raw, encoding, 100)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


@pytest.mark.attack("an endpoint repeats the key in a reply, to have it stored and shown")
@pytest.mark.parametrize("form", FORMS)
async def test_a_repeated_key_is_neither_stored_nor_shown(
    fake_endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    fake_endpoint.plan(script=[f"parrot:{form}", f"parrot401:{form}"])
    endpoint = {"model": "m", "base_url": fake_endpoint.url, "key_env": "MY_KEY"}
    backend = PoolBackend(PoolSettings(endpoints=[OpenAISettings(**endpoint)]))
    store = Store.open(tmp_path)
    seen: list[str] = []
    async with Engine(backend, store, EngineLimits(retries=0)) as engine:
        for draw in "01":
            try:
                reply: Reply = await engine.ask(HELLO, item="i", draw=draw)
                assert "***" in reply.text
                seen.append(reply.model_dump_json())
            except LLMFault as fault:
                seen.append(str(fault))
    store.close()
    assert fake_endpoint.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert len(seen) == 2
    stored = read_store(tmp_path)
    assert not any(holds(each, KEY) for each in (*seen, *stored))
    assert sum("***" in each for each in stored) == 1


def read_store(folder: Path) -> list[str]:
    """All texts of a store, its replies decompressed."""
    texts = ["".join(sqlite3.connect(path).iterdump()) for path in folder.rglob("*.db")]
    replies = sqlite3.connect(folder / "0" / "replies.db").execute("SELECT body FROM reply").fetchall()
    return texts + [zstandard.decompress(body).decode() for (body,) in replies]
