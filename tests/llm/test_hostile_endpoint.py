"""An endpoint that lies, quotes keys in headers or never ends: each call ends in one line, and no wrong figure is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.errors import Code, UserError
from simia.jobs.database import Database
from simia.jobs.ledger import Ledger
from simia.jobs.reply_store import Store
from simia.jobs.tables import PUT
from simia.llm.engine import Engine, EngineLimits
from simia.llm.http_response import read_retry_after, read_usage
from simia.llm.openai_backend import OpenAIBackend, read_body
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prices import Price
from simia.llm.types import LLMFault, Request

KEY = "sk-Proj_9aZ-Qx7+/Lm2Kd8vRt4Ys6Wn1Bp3Hc5Jf0Ge"
HELLO = Request(messages=[{"role": "user", "content": "hello"}])
GOOD = {"prompt_tokens": 3, "completion_tokens": 4}
Write = Callable[[asyncio.StreamWriter], Any]


@contextlib.asynccontextmanager
async def serve(write: Write) -> AsyncIterator[str]:
    """The address of a server that reads a request's head and then writes what it is told."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                await write(writer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


def body(**more: Any) -> bytes:
    message = {"role": "assistant", "content": "hi"}
    return json.dumps({"choices": [{"message": message}], "usage": GOOD, **more}).encode()


def sends(raw: bytes, status: str = "200 OK", *headers: str) -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(raw)}", *headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + raw)

    return write


async def ask(write: Write, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """The reply or the fault."""
    monkeypatch.setenv("MY_KEY", KEY)
    async with serve(write) as url:
        backend = OpenAIBackend(OpenAISettings(**{"model": "m", "base_url": url, "key_env": "MY_KEY"} | settings))
        await backend.start()
        try:
            return await backend.complete(HELLO, draw="0")
        except LLMFault as fault:
            return fault
        finally:
            await backend.close()


@pytest.mark.attack("an endpoint repeats the key in a header or a line that an error quotes")
@pytest.mark.parametrize(
    ("status", "header"),
    [
        ("200 OK", f"Content-Encoding: {KEY}"),
        ("200 OK", f"Content-Encoding: none-of-these-0123456789-{KEY}"),
        ("302 Found", f"Location: http://h/?k={KEY}"),
        ("200 OK", f"Bad Header {KEY}"),
        ("200 OK", f"X-Long: {'a' * 60}{KEY}{'a' * 70_000}"),
        (f"{KEY} OK", "X: y"),
    ],
)
async def test_a_key_in_a_header_is_in_no_error(status: str, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = await ask(sends(b"x", status, header), monkeypatch)
    assert isinstance(fault, LLMFault)
    assert not any(KEY[at : at + 8].lower() in str(fault).lower() for at in range(len(KEY) - 7)), "nor a part of it"
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    ("usage", "completion"),
    [
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}, 103),
        ({"prompt_tokens": 32, "completion_tokens": 103, "total_tokens": 135}, 103),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 0}, 9),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": "135"}, 9),
        ({"completion_tokens": 9, "total_tokens": 135}, 9),
    ],
)
def test_reasoning_that_only_the_total_counts_is_paid(usage: dict[str, Any], completion: int) -> None:
    assert read_usage(usage).completion == completion


@pytest.mark.parametrize(
    "strange",
    [
        {"finish_reason": {"type": "stop"}},
        {"finish_reason": 1},
        {"message": {"content": "hi", "reasoning_content": {"text": "why"}}},
        {"message": {"content": "hi", "reasoning": ["why"]}},
    ],
)
def test_a_paid_reply_is_kept_although_a_field_has_another_type(strange: dict[str, Any]) -> None:
    raw = body(choices=[{"message": {"content": "hi"}, "finish_reason": "stop"} | strange], model=["m"])
    reply = read_body(raw)
    assert reply is not None
    assert (reply.text, reply.usage.prompt, reply.model) == ("hi", 3, None)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb"a\ud83d", "a\ufffd"),
        (rb"\ude00 b", "\ufffd b"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ud83d\ud83d\ude00 \ud800", "\ufffd\U0001f600 \ufffd"),
        (rb"\\ud800 \ud800", "\\ud800 \ufffd"),
        (b"caf\xc3", "caf\ufffd"),
    ],
)
def test_broken_characters_do_not_lose_a_paid_reply(written: bytes, read: str) -> None:
    reply = read_body(body().replace(b'"hi"', b'"' + written + b'"'))
    assert reply is not None
    assert (reply.text, reply.usage.prompt) == (read, 3)


def test_a_byte_order_mark_does_not_lose_a_paid_reply() -> None:
    reply = read_body(b"\xef\xbb\xbf" + body())
    assert reply is not None
    assert reply.text == "hi"


@pytest.mark.attack("an endpoint reports a usage that is no count")
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 2**64 - 1, "completion_tokens": 1},
        {"prompt_tokens": 2**63 - 1, "completion_tokens": 1},
        {"prompt_tokens": 2**53 + 1, "completion_tokens": 1},
        {"prompt_tokens": -(10**9), "completion_tokens": -5},
        {"prompt_tokens": 5, "completion_tokens": "many"},
        {"prompt_tokens": 5, "completion_tokens": "many", "total_tokens": 9},
        {"prompt_tokens": 5, "completion_tokens": 1.5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}},
        "none",
        [1],
    ],
)
async def test_an_impossible_usage_is_unknown(
    usage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(sends(body(usage=usage))) as url:
        ledger = Ledger(Database(tmp_path))
        backend = OpenAIBackend(OpenAISettings(model="m", base_url=url))
        async with Engine(backend, ledger, EngineLimits(retries=0), Price(input=1, cached=1, output=1)) as engine:
            for draw in "01":
                assert (await engine.ask(HELLO, item="i", draw=draw)).text == "hi"
        ledger.flush()
        spent = ledger.spent()[0]
        ledger.db.close()
    assert (engine.stats.unpriced, engine.stats.usage.cost) == (2, None)
    assert (spent.prompt, spent.completion, spent.cost) == (0, 0, None)
    assert caplog.text.count("token usage without usable counts") == 1


@pytest.mark.attack("an endpoint reports a cost that is no amount")
@pytest.mark.parametrize("cost", ["nan", "inf", "-inf", -1000, "free", 1e300, True, [1], {}])
def test_an_impossible_cost_is_unknown(cost: Any) -> None:
    reply = read_body(body(usage=GOOD | {"cost": cost}))
    assert reply is not None
    assert (reply.usage.prompt, reply.usage.completion, reply.usage.cost) == (3, 4, None)


@pytest.mark.attack("an endpoint sends a reply that is nested too deep to be stored")
@pytest.mark.parametrize("depth", [100, 180, 300, 900])
async def test_a_deep_reply_is_stored_without_its_depth(depth: int, tmp_path: Path) -> None:
    deep = body()[:-1] + b',"z":' + b'[{"a":' * (depth // 2) + b"1" + b"}]" * (depth // 2) + b"}"
    async with serve(sends(deep)) as url:
        store = Store.open(tmp_path)
        async with Engine(
            OpenAIBackend(OpenAISettings(model="m", base_url=url)), store, EngineLimits(retries=0)
        ) as engine:
            assert (await engine.ask(HELLO, item="i", draw="0")).text == "hi"
            again = await engine.ask(HELLO, item="i", draw="0")
            assert (again.text, engine.stats.recalled) == ("hi", 1)
        store.close()
    orjson.dumps(again.body)


@pytest.mark.attack("an endpoint sends an error that is nested too deep to be printed")
@pytest.mark.parametrize("shape", [b'{"error":%s}', b'{"error":{"message":%s}}', b'{"detail":%s}'])
async def test_a_deep_error_is_one_line(shape: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = await ask(sends(shape % (b"[" * 1000 + b"]" * 1000), "400 Bad"), monkeypatch)
    assert fault.code is Code.BAD_REQUEST


@pytest.mark.attack("an endpoint asks to wait until a time that no date can hold")
@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 2024 00:00:00 +9999",
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
        "Mon, 01 Jan 99999999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 0001 00:00:00 -0000",
        "Fri, 31 Dec 9999 23:59:59 -0000",
        "\\" * 5000,
        "nan",
    ],
)
def test_a_strange_retry_after_is_a_number_or_none(value: str) -> None:
    for headers in ({"Retry-After": value}, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": value}):
        wait = read_retry_after(headers)
        assert wait is None or wait >= 0


@pytest.mark.attack("an endpoint sends interim responses for ever")
async def test_endless_interim_responses_end_with_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 20)
            await writer.drain()
            await asyncio.sleep(0.01)

    started = time.monotonic()
    fault = await ask(write, monkeypatch, timeout=0.5)
    assert fault.code is Code.TIMEOUT
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    "key", [f"{KEY}\nX-Other: 1", f"{KEY}\r", f"a\0{KEY}", f"{KEY[:9]}\u200b{KEY[9:]}", f"\udcff{KEY}"]
)
@pytest.mark.parametrize("headers", [{}, {"X-Key": "${MY_KEY}"}])
async def test_a_key_that_no_header_can_carry_is_refused(
    key: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\0" not in key:  # no variable can hold it
        monkeypatch.setenv("MY_KEY", key)
    else:
        monkeypatch.setattr("os.environ", {"MY_KEY": key})
    backend = OpenAIBackend(OpenAISettings(model="m", base_url="http://h/v1", key_env="MY_KEY", headers=headers))
    if key.endswith("\r") and not headers:  # white space around a key is taken off
        await backend.start()
        await backend.close()
        return
    with pytest.raises(UserError, match="holds a line break, a control or an invisible character") as caught:
        await backend.start()
    assert KEY[:9] not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "headers", [{"X-A": "b\r\nX-C: d"}, {"X-A\r\nX-B": "c"}, {"X A": "b"}, {"": "b"}, {"X-A": "b\n"}, {"X-A": "\0"}]
)
def test_a_header_of_a_config_that_is_no_line_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"header") as caught:
        OpenAISettings(model="m", headers=headers)
    assert "\n" not in str(caught.value)


async def test_a_value_that_no_column_takes_stops_the_run_in_one_line(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for value in (2**64, object()):
        with pytest.raises(UserError, match="cannot write the run"):
            await asyncio.wait_for(database.commit(("ledger", PUT["ledger", "meta"], ("a", value))), 60)
        assert database.failure is not None
        assert "\n" not in str(database.failure)
    database.close()
