"""Failover: one model behind two endpoints; the run does not notice which one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from simia.errors import Code, UserError
from simia.llm.endpoint_pool import PoolBackend, PoolSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.types import LLMFault, Request
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


def test_endpoints_must_agree_on_structured_output(fake_endpoint: FakeEndpoint) -> None:
    both = [{"model": "m", "base_url": fake_endpoint.url}, {"model": "gpt-4", "base_url": "https://example.com/v1"}]
    with pytest.raises(UserError, match="structured"):
        PoolSettings(endpoints=both)  # type: ignore[arg-type]
