"""Failover: one model behind two endpoints; the run does not notice which one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from simia.errors import Code, UserError
from simia.llm import endpoint_pool
from simia.llm.backends import find_price
from simia.llm.endpoint_pool import PoolBackend, PoolSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.http_response import RateLimits
from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import Usage
from tests.fake_endpoint import FakeEndpoint

QUICK = {"backoff": 0.01, "backoff_max": 0.02}


@pytest.fixture(scope="module")
def second() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture(autouse=True)
def fresh(second: FakeEndpoint) -> None:
    second.plan()


def pool(first: FakeEndpoint, second: FakeEndpoint, **more: Any) -> PoolBackend:
    both = [
        {"model": "m", "base_url": first.url, "alias": "one"},
        {"model": "m-2", "base_url": second.url, "alias": "two"},
    ]
    return PoolBackend(PoolSettings(endpoints=both, **more))  # type: ignore[arg-type]


def prompt(i: int) -> Request:
    return Request(messages=[{"role": "user", "content": f"question {i}"}])


async def ask_all(backend: PoolBackend, n: int, **limits: Any) -> list[Any]:
    async with Engine(backend, limits=EngineLimits(**QUICK | limits)) as engine:
        return await asyncio.gather(*(engine.ask(prompt(i), item=f"i{i}", draw=f"i{i}.0") for i in range(n)))


async def test_while_the_first_is_well_it_answers_alone(fake_endpoint: FakeEndpoint, second: FakeEndpoint) -> None:
    backend = pool(fake_endpoint, second)
    await ask_all(backend, 10)
    assert [member.answered for member in backend.members] == [10, 0]


async def test_an_outage_of_the_first_costs_no_reply(fake_endpoint: FakeEndpoint, second: FakeEndpoint) -> None:
    fake_endpoint.plan(rate=1.0, mix=["500"])
    backend = pool(fake_endpoint, second)
    replies = await ask_all(backend, 40, retries=2, concurrency=8)
    assert [reply.text for reply in replies] == [f"echo: question {i}" for i in range(40)]
    assert backend.members[1].answered == 40
    assert fake_endpoint.log()["count"] <= 16, "it rests, and is not asked forty times"
    assert {reply.body["endpoint"] for reply in replies} == {"two"}


async def test_a_refused_key_leaves_one_out_and_is_final_for_the_last(
    fake_endpoint: FakeEndpoint, second: FakeEndpoint
) -> None:
    fake_endpoint.plan(rate=1.0, mix=["401"])
    backend = pool(fake_endpoint, second)
    await ask_all(backend, 5, concurrency=1)
    assert (fake_endpoint.log()["count"], backend.members[1].answered) == (1, 5)
    second.plan(rate=1.0, mix=["401"])
    with pytest.raises(LLMFault) as caught:
        await ask_all(pool(fake_endpoint, second), 1, retries=3)
    assert caught.value.code is Code.AUTH


async def test_both_down_is_the_fault_it_is(fake_endpoint: FakeEndpoint, second: FakeEndpoint) -> None:
    for endpoint in (fake_endpoint, second):
        endpoint.plan(rate=1.0, mix=["500"])
    with pytest.raises(LLMFault) as caught:
        await ask_all(pool(fake_endpoint, second), 1, retries=3)
    assert caught.value.code is Code.SERVER_ERROR


async def test_keys_do_not_depend_on_who_answers(fake_endpoint: FakeEndpoint, second: FakeEndpoint) -> None:
    backend = pool(fake_endpoint, second)
    assert (backend.alias, backend.model) == ("one", "m")
    assert pool(fake_endpoint, second, alias="us", model="gpt").alias == "us"


class StubEndpoint:
    """Refuses prompts as a moderation does, with the status of an invalid key. `refuses`: all prompts."""

    def __init__(self, alias: str) -> None:
        self.alias, self.rates, self.refuses = alias, RateLimits(), False

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        if self.refuses or "flagged" in request.messages[0]["content"]:
            raise LLMFault(Code.AUTH, "your input was flagged", retry=False, status=403)
        return Reply(text=self.alias, usage=Usage(prompt=1_000_000, completion=0))


def make_stub_pool(first: FakeEndpoint, second: FakeEndpoint) -> tuple[PoolBackend, list[StubEndpoint]]:
    backend = pool(first, second)
    stubs = [StubEndpoint("one"), StubEndpoint("two")]
    for member, stub in zip(backend.members, stubs, strict=True):
        member.backend = stub  # type: ignore[assignment]
    return backend, stubs


FLAGGED = Request(messages=[{"role": "user", "content": "flagged"}])


async def test_a_refused_prompt_does_not_leave_its_endpoint_out(
    fake_endpoint: FakeEndpoint, second: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, (one, _) = make_stub_pool(fake_endpoint, second)
    now = 0.0
    monkeypatch.setattr(endpoint_pool, "time", SimpleNamespace(monotonic=lambda: now))
    assert (await backend.complete(prompt(0), draw="0")).text == "one"
    with pytest.raises(LLMFault) as caught:
        await backend.complete(FLAGGED, draw="1")
    assert caught.value.elsewhere, "the other endpoint may take this prompt"
    with pytest.raises(LLMFault) as caught:
        await backend.complete(FLAGGED, draw="1")
    now = 3.0
    assert (await backend.complete(prompt(2), draw="2")).text == "one", "it is used again after a rest"
    one.refuses = True
    for _ in range(endpoint_pool.REFUSED):
        now = max(now, backend.members[0].well_at)
        with pytest.raises(LLMFault):
            await backend.complete(prompt(3), draw="3")
    assert backend.members[0].well_at == endpoint_pool.NEVER, "it refuses every call"


async def test_a_prompt_that_the_only_endpoint_refuses_is_not_sent_again(fake_endpoint: FakeEndpoint) -> None:
    settings = {"endpoints": [{"model": "m", "base_url": fake_endpoint.url}]}
    backend = PoolBackend(PoolSettings.model_validate(settings))
    backend.members[0].backend = StubEndpoint("one")  # type: ignore[assignment]
    await backend.complete(prompt(0), draw="0")
    with pytest.raises(LLMFault) as caught:
        await backend.complete(FLAGGED, draw="1")
    assert not caught.value.retry


async def test_replies_of_unknown_price_are_not_charged_at_another_endpoints(fake_endpoint: FakeEndpoint) -> None:
    both: list[dict[str, Any]] = [
        {"model": "gpt-5-mini", "base_url": fake_endpoint.url, "structured": False},
        {"model": "own", "base_url": fake_endpoint.url, "alias": "own", "structured": False},
    ]
    settings = PoolSettings.model_validate({"endpoints": both})
    backend = PoolBackend(settings)
    for member, alias in zip(backend.members, ("one", "two"), strict=True):
        member.backend = StubEndpoint(alias)  # type: ignore[assignment]
    async with Engine(backend, price=find_price(settings)) as engine:
        priced = await engine.ask(prompt(0), item="i0", draw="0")
        backend.members[0].well_at = endpoint_pool.NEVER
        unknown = await engine.ask(prompt(1), item="i1", draw="1")
    assert priced.usage.cost
    assert (unknown.usage.cost, engine.stats.unpriced) == (None, 1)
    with pytest.raises(UserError, match="in a pool: of each endpoint"):
        Engine(backend, limits=EngineLimits(max_cost=1), price=find_price(settings))
    both[1]["price"] = {"input": 0, "cached": 0, "output": 0}
    assert find_price(PoolSettings.model_validate({"endpoints": both})) == find_price(settings.endpoints[0])


def test_endpoints_must_agree_on_structured_output(fake_endpoint: FakeEndpoint) -> None:
    both = [{"model": "m", "base_url": fake_endpoint.url}, {"model": "gpt-4", "base_url": "https://example.com/v1"}]
    with pytest.raises(UserError, match="structured"):
        PoolSettings(endpoints=both)  # type: ignore[arg-type]
