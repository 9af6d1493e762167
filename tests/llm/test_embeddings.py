"""Embeddings: asked for as every request is, stored before use, recalled at no cost; and the comparison of texts without a model."""

from __future__ import annotations

import asyncio
import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from simia.errors import Code
from simia.jobs.database import Database
from simia.jobs.ledger import Ledger
from simia.llm.embeddings import TEXTS, compute_cosine, embed_texts, make_lexical_vectors, read_vectors
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prices import Price, look_up_price
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.llm.types import LLMFault, Request
from simia.trajectory import Usage

if TYPE_CHECKING:  # pytest loads it as a plugin
    from tests.fake_endpoint import FakeEndpoint

TEXTS_OF_THREE_REQUESTS = [f"environment {n}: {'abcdefghij'[n % 10] * (n + 1)}" for n in range(2 * TEXTS + 5)]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-simia-test-0123456789abcdef")


def ask_through(engine: Engine) -> Any:
    return lambda request, draw: engine.ask(request, item="clusters/all", draw=draw)


def embed(endpoint: FakeEndpoint, folder: Path, texts: list[str], **limits: Any) -> tuple[Engine, list[list[float]]]:
    """One session on the store in `folder`."""
    folder.mkdir(exist_ok=True)
    settings = OpenAISettings(model="embedder", base_url=endpoint.url, alias="fake")
    database = Database(folder)

    async def go() -> tuple[Engine, list[list[float]]]:
        price = Price(input=1.0, cached=1.0, output=1.0)
        engine = Engine(OpenAIBackend(settings), Ledger(database), EngineLimits(backoff=0.01, **limits), price)
        async with engine:
            return engine, await embed_texts(ask_through(engine), texts, draw="clusters/all.vectors")

    with contextlib.closing(database):
        return asyncio.run(go())


def test_texts_are_sent_in_batches_and_vectors_come_in_their_order(fake_endpoint: FakeEndpoint, tmp_path: Path) -> None:
    engine, vectors = embed(fake_endpoint, tmp_path / "run", TEXTS_OF_THREE_REQUESTS)
    assert [len(each["body"]["input"]) for each in fake_endpoint.requests] == [TEXTS, TEXTS, 5]
    assert {each["path"] for each in fake_endpoint.requests} == {"/v1/embeddings"}
    assert fake_endpoint.requests[0]["body"].keys() == {"model", "input"}
    assert len(vectors) == len(TEXTS_OF_THREE_REQUESTS)
    assert all(math.isclose(math.hypot(*vector), 1) for vector in vectors)
    one = [float(TEXTS_OF_THREE_REQUESTS[70].count(chr(97 + n))) for n in range(26)]
    assert vectors[70] == pytest.approx([value / math.hypot(*one) for value in one])
    assert engine.stats.usage.prompt == sum(each // 4 for each in count_characters(fake_endpoint))


def count_characters(endpoint: FakeEndpoint) -> list[int]:
    return [sum(map(len, each["body"]["input"])) for each in endpoint.requests]


def test_a_resume_pays_for_no_vector_twice(fake_endpoint: FakeEndpoint, tmp_path: Path) -> None:
    fake_endpoint.plan(script=["ok", "ok", "400"])
    with pytest.raises(LLMFault):
        embed(fake_endpoint, tmp_path / "run", TEXTS_OF_THREE_REQUESTS)
    fake_endpoint.plan()
    engine, vectors = embed(fake_endpoint, tmp_path / "run", TEXTS_OF_THREE_REQUESTS)
    assert [len(each["body"]["input"]) for each in fake_endpoint.requests] == [5]
    assert engine.stats.recalled == 2
    _, whole = embed(fake_endpoint, tmp_path / "whole", TEXTS_OF_THREE_REQUESTS)
    assert vectors == whole
    fake_endpoint.plan()
    engine, again = embed(fake_endpoint, tmp_path / "run", TEXTS_OF_THREE_REQUESTS)
    assert (fake_endpoint.requests, engine.stats.usage.cost, again) == ([], None, whole)


def test_retries_and_the_budget_hold(fake_endpoint: FakeEndpoint, tmp_path: Path) -> None:
    fake_endpoint.plan(each=["429:20ms", "cut"])
    engine, vectors = embed(fake_endpoint, tmp_path / "retried", ["one", "two"])
    assert len(vectors) == 2
    assert sum(engine.stats.retries.values()) == 2
    fake_endpoint.plan()
    with pytest.raises(BudgetReached):
        embed(fake_endpoint, tmp_path / "limited", TEXTS_OF_THREE_REQUESTS, max_tokens=1)
    assert fake_endpoint.log()["count"] == 1


def test_a_recording_holds_the_vectors(fake_endpoint: FakeEndpoint, tmp_path: Path) -> None:
    _, vectors = embed(fake_endpoint, tmp_path / "run", ["one", "two"])
    fake_endpoint.plan()
    recording = tmp_path / "replies.jsonl"
    database = Database(tmp_path / "run")
    with contextlib.closing(database):
        rows = [row | {"reply": {"text": row["reply"]["text"]}} for row in Ledger(database).replies()]
    recording.write_bytes(b"\n".join(map(orjson.dumps, rows)))

    async def go(texts: list[str]) -> list[list[float]]:
        async with Engine(ReplayBackend(ReplaySettings(path=recording))) as engine:
            return await embed_texts(ask_through(engine), texts, draw="clusters/all.vectors")

    assert asyncio.run(go(["one", "two"])) == vectors
    assert fake_endpoint.requests == []
    with pytest.raises(LLMFault, match="input differs"):
        asyncio.run(go(["one", "three"]))
    recording.write_bytes(orjson.dumps(rows[0] | {"reply": "two vectors, please"}))
    with pytest.raises(LLMFault, match="a JSON list of 2 vectors"):
        asyncio.run(go(["one", "two"]))


@pytest.mark.parametrize(
    "data",
    [
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}],
        [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}],
        [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": [1.0]}],
        [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": [1.0]}],
        [{"index": None, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}],
        None,
    ],
)
def test_a_body_without_a_vector_for_each_text_is_no_reply(data: Any) -> None:
    assert read_vectors(orjson.dumps({"data": data}), 2) is None


def test_a_wrong_body_is_a_fault_that_is_retried(fake_endpoint: FakeEndpoint, tmp_path: Path) -> None:
    fake_endpoint.plan(vectors={"one": [1.0, 2.0]})  # the other text has 26 values
    with pytest.raises(LLMFault) as caught:
        embed(fake_endpoint, tmp_path / "run", ["one", "two"], retries=1)
    assert caught.value.code is Code.BAD_REPLY_BODY
    assert fake_endpoint.log()["count"] == 2


def test_a_request_for_embeddings_changes_no_key_of_others() -> None:
    assert Request(messages=[]).canonical() == {"messages": []}
    assert Request(messages=[], input=["a"]).canonical() == {"messages": [], "input": ["a"]}


def test_lexical_vectors_compare_words_and_their_parts() -> None:
    one, same, near, other, empty = make_lexical_vectors(
        ["Booking hotel rooms", "booking HOTEL rooms", "hotel room bookings", "grades of students", "the and of"]
    )
    assert compute_cosine(one, same) == 1
    assert 0.4 < compute_cosine(one, near) < 1
    assert compute_cosine(one, other) < 0.1
    assert compute_cosine(one, empty) == 0


def test_the_price_of_an_embedding_model_is_known_and_counts_the_texts_alone() -> None:
    price = look_up_price("text-embedding-3-small")
    assert price is not None
    assert price.of(Usage(prompt=1_000_000)) == pytest.approx(0.02)
