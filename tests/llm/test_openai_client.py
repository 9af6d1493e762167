"""`llm=` as an `openai.AsyncOpenAI`: requests go through the client, and its key through nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

import simia
from simia.config_errors import find_models_in, list_kind_values
from simia.errors import Code, UserError
from simia.llm.backends import KINDS, LLMSettings, attach_client, open_backend, read_llm
from simia.llm.openai_settings import OpenAISettings
from simia.llm.types import LLMFault, ModelBackend, Request
from tests.fake_endpoint import FakeEndpoint
from tests.llm.unreachable import silent_host

KEY = "sk-test-9876543210abcdefghij"
HELLO = Request(messages=[{"role": "user", "content": "hello"}], temperature=0.5, extra_body={"min_p": 0.05})


@pytest.fixture
def client(fake_endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> openai.AsyncOpenAI:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return openai.AsyncOpenAI(api_key=KEY, base_url=fake_endpoint.url, default_headers={"X-Team": "research"})


async def open_through(client: openai.AsyncOpenAI, **settings: Any) -> ModelBackend:
    given = OpenAISettings(**{"model": "m"} | read_llm(client) | settings)
    attach_client(given, client)
    backend = open_backend(given)
    await backend.start()
    return backend


async def test_a_request_carries_the_clients_key_and_headers(
    fake_endpoint: FakeEndpoint, client: openai.AsyncOpenAI
) -> None:
    backend = await open_through(client)
    reply = await backend.complete(HELLO, draw="0")
    assert (reply.text, reply.finish, backend.alias) == ("echo: hello", "stop", "127.0.0.1")
    assert reply.usage.prompt > 0
    (request,) = fake_endpoint.requests
    assert request["headers"]["authorization"] == f"Bearer {KEY}"
    assert request["headers"]["x-team"] == "research"
    assert request["body"] == {"model": "m", "messages": HELLO.messages, "temperature": 0.5, "min_p": 0.05}
    await backend.close()
    assert not client.is_closed(), "the client belongs to the caller"


async def test_embeddings_go_through_the_client(fake_endpoint: FakeEndpoint, client: openai.AsyncOpenAI) -> None:
    backend = await open_through(client)
    reply = await backend.complete(Request(messages=[], input=["ab", "b"]), draw="0")
    assert [vector[:2] for vector in json.loads(reply.text)] == [[1.0, 1.0], [0.0, 1.0]]
    (request,) = fake_endpoint.requests
    assert request["path"] == "/v1/embeddings"
    assert request["body"] == {"model": "m", "input": ["ab", "b"], "encoding_format": "float"}
    await backend.close()


@pytest.mark.parametrize(
    ("fault", "code", "retry", "wait"),
    [
        ("429:2", Code.RATE_LIMITED, True, 2.0),
        ("quota", Code.RATE_LIMITED, False, None),
        ("500", Code.SERVER_ERROR, True, None),
        ("401", Code.AUTH, False, None),
        ("404", Code.NOT_FOUND, False, None),
        ("filter", Code.CONTENT_FILTER, False, None),
        ("garbage", Code.BAD_REPLY_BODY, True, None),
        ("nochoice", Code.BAD_REPLY_BODY, True, None),
        ("error200:502", Code.SERVER_ERROR, True, None),
        ("reset", Code.CONNECTION, True, None),
        ("cut", Code.CONNECTION, True, None),
        ("flood:40", Code.TOO_LARGE, False, None),
        ("bomb:400", Code.TOO_LARGE, False, None),
    ],
)
async def test_what_goes_wrong_is_a_fault_after_one_request(
    fake_endpoint: FakeEndpoint, client: openai.AsyncOpenAI, fault: str, code: Code, retry: bool, wait: float | None
) -> None:
    fake_endpoint.plan(script=[fault])
    backend = await open_through(client)
    with pytest.raises(LLMFault) as caught:
        await backend.complete(HELLO, draw="0")
    assert (caught.value.code, caught.value.retry, caught.value.retry_after) == (code, retry, wait)
    assert fake_endpoint.log()["count"] == 1, "simia retries, the client does not"


async def test_a_silent_endpoint_is_a_timeout(fake_endpoint: FakeEndpoint, client: openai.AsyncOpenAI) -> None:
    fake_endpoint.plan(script=["stall", "stall"])
    for backend in (await open_through(client, timeout=0.3), await open_through(client.with_options(timeout=0.3))):
        with pytest.raises(LLMFault) as caught:
            await backend.complete(HELLO, draw="0")
        assert (caught.value.code, caught.value.retry) == (Code.TIMEOUT, True)


async def test_a_host_that_does_not_take_the_connection_is_a_connection_fault(client: openai.AsyncOpenAI) -> None:
    with silent_host() as url:
        backend = await open_through(client.with_options(base_url=url, timeout=0.3))
        with pytest.raises(LLMFault) as caught:
            await backend.complete(HELLO, draw="0")
    assert (caught.value.code, caught.value.retry) == (Code.CONNECTION, True)


@pytest.mark.parametrize("fault", ["echokey", "parrot:plain", "parrot401:plain"])
async def test_a_key_that_the_endpoint_repeats_is_masked(
    fake_endpoint: FakeEndpoint, client: openai.AsyncOpenAI, fault: str
) -> None:
    from tests.key_forms import FORMS

    name, _, form = fault.partition(":")
    fake_endpoint.plan(script=[f"{name}:{next(iter(FORMS))}" if form else name])
    backend = await open_through(client)
    try:
        words = repr(await backend.complete(HELLO, draw="0"))
    except LLMFault as error:
        words = repr((error, error.__cause__, error.__context__, error.detail))
    assert KEY not in words
    assert "***" in words


async def test_amplify_asks_through_a_client_and_keeps_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fake_endpoint import FakeEndpoint

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=endpoint.url) as client:
            settings = {"llm.model": "m", "llm.structured": True}
            made = await simia.amplify("customer_service", llm=client, n=2, runs=tmp_path, settings=settings)
        assert made.stop.kind == "complete"
        assert len(list(made.trajectories())) == 2
        assert {request["headers"]["authorization"] for request in endpoint.requests} == {f"Bearer {KEY}"}
    finally:
        endpoint.stop()
    held = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]  # noqa: ASYNC240
    assert held == []
    assert endpoint.url in (made.folder / "config.yaml").read_text(encoding="utf-8")


def test_other_forms_of_llm() -> None:
    assert [list_kind_values(model)[0] for model in find_models_in(LLMSettings)] == list(KINDS)
    assert read_llm(None) == {}
    assert [read_llm(kind) for kind in KINDS] == [{"kind": kind} for kind in KINDS]
    assert read_llm("gpt-5-mini") == {"kind": "openai", "model": "gpt-5-mini"}
    assert read_llm({"kind": "openai", "model": "m"}) == {"kind": "openai", "model": "m"}
    settings = OpenAISettings(model="m", alias="a")
    assert OpenAISettings.model_validate(read_llm(settings)) == settings


def test_a_synchronous_client_is_refused() -> None:
    with openai.OpenAI(api_key=KEY) as client, pytest.raises(UserError, match=r"AsyncOpenAI.*asynchronous"):
        read_llm(client)  # type: ignore[arg-type]


async def test_a_client_and_another_kind_are_refused(tmp_path: Path) -> None:
    client = openai.AsyncOpenAI(api_key=KEY)
    with pytest.raises(UserError, match=r"llm= is a client, and llm.kind is embedded"):
        await simia.amplify(llm=client, runs=tmp_path, settings={"llm.kind": "embedded"})
