"""The OpenAI-compatible back end against a server that does everything wrong, and the settings that name it."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import ValidationError

from simia.errors import Code, UserError
from simia.llm.http_response import read_retry_after
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.types import LLMFault, Reply, Request
from tests.fake_endpoint import FakeEndpoint
from tests.llm.unreachable import silent_host

KEY = "sk-test-0123456789abcdefghij"
HELLO = Request(messages=[{"role": "user", "content": "hello"}])
Open = Callable[..., Any]


@pytest.fixture
async def opened(fake_endpoint: FakeEndpoint) -> AsyncIterator[Open]:
    backends: list[OpenAIBackend] = []

    async def open_(**settings: Any) -> OpenAIBackend:
        backend = OpenAIBackend(OpenAISettings(**{"model": "m", "base_url": fake_endpoint.url} | settings))
        backends.append(backend)
        await backend.start()
        return backend

    yield open_
    for backend in backends:
        await backend.close()


async def fault_of(backend: OpenAIBackend) -> LLMFault:
    with pytest.raises(LLMFault) as caught:
        await backend.complete(HELLO, draw="0")
    return caught.value


async def test_reads_a_completion(fake_endpoint: FakeEndpoint, opened: Open) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    fake_endpoint.plan(usage=usage, finish="length", message={"reasoning_content": "hmm"})
    reply: Reply = await (await opened()).complete(HELLO, draw="0")
    assert (reply.text, reply.reasoning, reply.finish, reply.truncated) == ("echo: hello", "hmm", "length", True)
    assert reply.usage.model_dump() == {
        "prompt": 100,
        "completion": 20,
        "cached": 64,
        "reasoning": 7,
        "cost": None,
        "estimated": False,
    }
    assert reply.body["choices"][0]["message"]["reasoning_content"] == "hmm"


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}, "ab", None),
        ({"content": None, "refusal": "I will not"}, "I will not", None),
        ({"content": "<think>why</think>yes"}, "<think>why</think>yes", None),
        ({"content": None, "reasoning": "thought"}, "", "thought"),
        ({"content": "yes", "reasoning": [{"type": "summary", "text": "why"}]}, "yes", None),
    ],
)
async def test_reads_every_shape_of_message(
    fake_endpoint: FakeEndpoint, opened: Open, message: dict[str, Any], text: str, reasoning: str | None
) -> None:
    fake_endpoint.plan(message=message)
    reply = await (await opened()).complete(HELLO, draw="0")
    assert (reply.text, reply.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("planned", "code", "retry", "wait"),
    [
        ("429", Code.RATE_LIMITED, True, None),
        ("429:2", Code.RATE_LIMITED, True, 2.0),
        ("429:150ms", Code.RATE_LIMITED, True, 0.15),
        ("429:date7", Code.RATE_LIMITED, True, 7.0),
        ("503:3", Code.SERVER_ERROR, True, 3.0),
        ("quota", Code.RATE_LIMITED, False, None),
        ("402", Code.RATE_LIMITED, False, None),
        ("408", Code.TIMEOUT, True, None),
        ("500", Code.SERVER_ERROR, True, None),
        ("529", Code.SERVER_ERROR, True, None),
        ("reset", Code.CONNECTION, True, None),
        ("cut", Code.CONNECTION, True, None),
        ("401", Code.AUTH, False, None),
        ("403", Code.AUTH, False, None),
        ("404", Code.NOT_FOUND, False, None),
        ("400", Code.BAD_REQUEST, False, None),
        ("422", Code.BAD_REQUEST, False, None),
        ("filter", Code.CONTENT_FILTER, False, None),
        ("redirect", Code.BAD_REQUEST, False, None),
        ("garbage", Code.BAD_REPLY_BODY, True, None),
        ("nochoice", Code.BAD_REPLY_BODY, True, None),
        ("error200:502", Code.SERVER_ERROR, True, None),
        ("error200:429", Code.RATE_LIMITED, True, None),
        ("choice200:502", Code.SERVER_ERROR, True, None),
        ("choice200", Code.BAD_REPLY_BODY, True, None),
    ],
)
async def test_every_fault_has_its_code(
    fake_endpoint: FakeEndpoint, opened: Open, planned: str, code: Code, retry: bool, wait: float | None
) -> None:
    fake_endpoint.plan(script=[planned])
    backend = await opened()
    fault = await fault_of(backend)
    assert (fault.code, fault.retry, fault.retry_after) == (code, retry, wait)
    assert "\n" not in str(fault)
    if planned.isdigit():
        assert f"planned {planned}" in fault.detail, "the endpoint's own words"
    assert (await backend.complete(HELLO, draw="0")).text == "echo: hello", "one attempt, and the session lives on"
    assert fake_endpoint.log()["count"] == 2


async def test_an_endpoint_that_stalls_is_a_timeout(fake_endpoint: FakeEndpoint, opened: Open) -> None:
    fake_endpoint.plan(script=["stall"])
    fault = await fault_of(await opened(timeout=0.3))
    assert (fault.code, fault.retry) == (Code.TIMEOUT, True)


async def test_nobody_there_is_a_connection_fault(opened: Open) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can answer on it either
        fault = await fault_of(await opened(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))
    assert (fault.code, fault.retry) == (Code.CONNECTION, True)


async def test_a_host_that_does_not_take_the_connection_is_a_connection_fault(opened: Open) -> None:
    with silent_host() as url:
        fault = await fault_of(await opened(base_url=url, connect_timeout=0.3))
    assert (fault.code, fault.retry, fault.detail) == (Code.CONNECTION, True, "no connection within 0.3 s")


def test_retry_after_of_nonsense_is_none() -> None:
    assert read_retry_after({"Retry-After": "soon"}) is None
    assert read_retry_after({}) is None
    assert read_retry_after({"Retry-After": "-3"}) == 0.0


# --- the request's shape ----------------------------------------------------------------------------------------------


async def test_openai_address_header_and_body(
    fake_endpoint: FakeEndpoint, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    backend = await opened(key_env="MY_KEY", headers={"X-Team": "blue"}, extra_body={"top_k": 5})
    request = HELLO.model_copy(update={"temperature": 0.7, "max_tokens": 9, "stop": ["END"], "extra_body": {"a": 1}})
    await backend.complete(request, draw="0")
    sent = fake_endpoint.requests[0]
    assert sent["path"] == "/v1/chat/completions"
    assert sent["headers"]["authorization"] == f"Bearer {KEY}"
    assert sent["headers"]["x-team"] == "blue"
    assert sent["headers"]["content-type"] == "application/json"
    assert sent["body"] == {
        "model": "m",
        "messages": HELLO.messages,
        "temperature": 0.7,
        "max_tokens": 9,
        "stop": ["END"],
        "top_k": 5,
        "a": 1,
    }


async def test_azure_address_and_header(
    fake_endpoint: FakeEndpoint, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_KEY", KEY)
    base = fake_endpoint.url.removesuffix("/v1")
    backend = await opened(base_url=base, api_version="2024-10-21", deployment="my-gpt", key_env="AZURE_KEY")
    await backend.complete(HELLO, draw="0")
    sent = fake_endpoint.requests[0]
    assert sent["path"] == "/openai/deployments/my-gpt/chat/completions"
    assert sent["query"] == {"api-version": "2024-10-21"}
    assert sent["headers"]["api-key"] == KEY
    assert "authorization" not in sent["headers"]


def body_of(model: str, request: Request, **settings: Any) -> dict[str, Any]:
    return OpenAIBackend(OpenAISettings(model=model, **settings)).body(request)


SAMPLED = Request(messages=[], temperature=0.5, top_p=0.9, max_tokens=100, stop=["x"], reasoning_effort="low")


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "openai/gpt-5.1"])
def test_reasoning_models_get_their_parameters(model: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        body = body_of(model, SAMPLED)
    assert body == {"model": model, "messages": [], "max_completion_tokens": 100, "reasoning_effort": "low"}
    assert "does not take temperature" in caplog.text, "what is left out is said"
    assert body_of(model, SAMPLED.model_copy(update={"temperature": 1.0}))["temperature"] == 1.0


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "o-llama", "qwen3", "deepseek-r1"])
def test_other_models_get_all_parameters(model: str) -> None:
    body = body_of(model, SAMPLED)
    assert (body["temperature"], body["top_p"], body["stop"], body["max_tokens"]) == (0.5, 0.9, ["x"], 100)
    assert "max_completion_tokens" not in body


def test_the_guess_by_name_can_be_overruled() -> None:
    forced = body_of("my-deployment", SAMPLED, reasoning_model=True)
    assert "temperature" not in forced
    assert forced["max_completion_tokens"] == 100
    plain = body_of("gpt-5", SAMPLED, reasoning_model=False, token_parameter="max_tokens")
    assert (plain["temperature"], plain["max_tokens"]) == (0.5, 100)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model": "gpt-4o"}, True),
        ({"model": "gpt-4-turbo"}, False),
        ({"model": "gpt-4.1"}, True),
        ({"model": "x", "base_url": "http://localhost:8000/v1"}, True),
        ({"model": "x", "base_url": "https://router.example/v1"}, False),
        ({"model": "x", "base_url": "https://router.example/v1", "structured": True}, True),
        ({"model": "gpt-4o", "structured": False}, False),
    ],
)
def test_structured(settings: dict[str, Any], expected: bool) -> None:
    assert OpenAIBackend(OpenAISettings(**settings)).structured is expected


def test_alias_is_the_host_unless_named() -> None:
    assert (
        OpenAIBackend(OpenAISettings(model="m", base_url="https://router.example:8443/v1/")).alias == "router.example"
    )
    assert OpenAIBackend(OpenAISettings(model="m", alias="mine")).alias == "mine"


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_no_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"no key for api\.openai\.com: export OPENAI_API_KEY"):
        await OpenAIBackend(OpenAISettings(model="m")).start()


async def test_loopback_needs_no_key_and_gets_none_by_default(
    fake_endpoint: FakeEndpoint, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    await (await opened()).complete(HELLO, draw="0")
    assert KEY not in str(fake_endpoint.requests[0]["headers"])


async def test_a_key_that_was_asked_for_is_not_left_out_at_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(UserError, match=r"no key for 127\.0\.0\.1: export MY_KEY=… \(or leave key_env out"):
        await OpenAIBackend(OpenAISettings(model="m", base_url="http://127.0.0.1:1/v1", key_env="MY_KEY")).start()


@pytest.mark.parametrize("planned", ["echokey", "500", "reset", "cut", "garbage", "redirect"])
async def test_the_key_is_in_no_text(
    fake_endpoint: FakeEndpoint,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    planned: str,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    fake_endpoint.plan(script=[planned])
    with caplog.at_level(logging.DEBUG):
        backend = await opened(key_env="MY_KEY", headers={"X-Gateway": "Bearer ${MY_KEY}"})
        fault = await fault_of(backend)
    sent = fake_endpoint.requests[0]["headers"]
    assert sent["authorization"] == f"Bearer {KEY}", "or this test would prove nothing"
    assert sent["x-gateway"] == f"Bearer {KEY}"
    seen = [str(fault), repr(fault), repr(vars(fault)), repr(backend), repr(backend.settings), caplog.text]
    chain: BaseException | None = fault.__cause__ or fault.__context__
    while chain is not None:
        seen += [str(chain), repr(chain), repr(vars(chain))]
        chain = chain.__cause__ or chain.__context__
    assert KEY not in "\n".join(seen)
    if planned == "echokey":
        assert "***" in fault.detail


@pytest.mark.parametrize(
    "settings",
    [
        {"key_env": KEY},
        {"key_env": "gsk_0123456789abcdefghij"},
        {"api_key": KEY},
        {"alias": KEY},
        {"headers": {"Authorization": f"Bearer {KEY}"}},
        {"headers": {"X-Anything": KEY}},
        {"base_url": f"https://user:{KEY}@host.example/v1"},
        {"base_url": f"https://host.example/v1?key={KEY}"},
        {"key_env": "MY-KEY"},
        {"base_url": "host.example/v1"},
        {"deployment": "d"},
    ],
)
def test_a_config_with_a_key_or_a_slip_is_refused_without_showing_it(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        OpenAISettings(**{"model": "m"} | settings)
    assert KEY not in str(caught.value)
    assert "gsk_" not in str(caught.value)


def test_an_unknown_field_is_refused_without_its_value() -> None:
    with pytest.raises(ValidationError) as caught:
        OpenAISettings(model="m", acces_code="hush-hush")  # type: ignore[call-arg]
    assert "hush" not in str(caught.value)


def test_names_that_only_resemble_keys_are_fine() -> None:
    OpenAISettings(model="hf-internal-testing/tiny-random-llama", key_env="SK_PROD_KEY")


def test_every_field_says_what_it_is() -> None:
    assert not [name for name, f in OpenAISettings.model_fields.items() if name != "kind" and not f.description]


async def test_a_header_with_a_missing_variable_names_it() -> None:
    settings = OpenAISettings(
        model="m", base_url="http://127.0.0.1:1/v1", key_env="NO_SUCH_KEY", headers={"X-Team": "${NO_SUCH_KEY}"}
    )
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        await OpenAIBackend(settings).start()


@pytest.mark.attack("a config that sends another variable of the environment to its endpoint")
@pytest.mark.parametrize("text", ["${AWS_SECRET_ACCESS_KEY}", "Bearer $AWS_SECRET_ACCESS_KEY", "${MY_KEY}${HOME}"])
@pytest.mark.parametrize("header", ["Authorization", "X-Team"])
def test_a_header_reads_no_variable_but_the_key(header: str, text: str) -> None:
    with pytest.raises(
        UserError, match=rf"header {header} reads the variable (AWS_SECRET_ACCESS_KEY|HOME): "
    ) as caught:
        OpenAISettings(model="m", key_env="MY_KEY", headers={header: text})
    assert "\n" not in str(caught.value)
    OpenAISettings(model="m", key_env="MY_KEY", headers={header: "Bearer ${MY_KEY}", "X-Price": "$$5"})
