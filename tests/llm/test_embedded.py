"""The embedded back end with a real model behind it: the smallest one, since only the plumbing is at stake."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from simia.errors import Code, UserError
from simia.llm import local_models
from simia.llm.backends import LLMSettings, find_price, open_backend
from simia.llm.embedded import EmbeddedBackend, EmbeddedSettings
from simia.llm.embedded_server import declares_pooling
from simia.llm.embeddings import compute_cosine, embed_texts
from simia.llm.engine import Engine, EngineLimits
from simia.llm.prices import FREE
from simia.llm.types import LLMFault, Request

SMALL = local_models.KNOWN[local_models.FALLBACK]
SETTINGS: dict[str, Any] = {"model": SMALL.name, "threads": 1, "context": 1024}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
CITY = Request(
    messages=[{"role": "user", "content": "Name a city as JSON."}],
    temperature=0.0,
    max_tokens=20,
    response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}},
)

real_model = pytest.mark.usefixtures("weights")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    backend = EmbeddedBackend(EmbeddedSettings(**SETTINGS, restarts=1), say=lambda _: None)
    async with Engine(backend, limits=EngineLimits(backoff=0.05), price=FREE) as opened:
        yield opened


def kill_child(backend: EmbeddedBackend) -> int:
    assert backend.server is not None
    pid = backend.server.child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def backend_of(engine: Engine) -> EmbeddedBackend:
    assert isinstance(engine.backend, EmbeddedBackend)
    return engine.backend


@real_model
async def test_a_constrained_reply_and_its_identity(engine: Engine) -> None:
    reply = await engine.ask(CITY, item="i", draw="0")
    assert json.loads(reply.text)["city"] in ("Rome", "Oslo")
    assert reply.usage.prompt > 0
    assert reply.usage.completion > 0
    assert reply.usage.cost == 0
    assert engine.backend.alias == "embedded"
    assert engine.backend.model == f"smollm2-135m@{SMALL.sha256[:8]}"


@real_model
async def test_a_killed_child_is_started_again_and_the_retry_succeeds(engine: Engine) -> None:
    backend = backend_of(engine)
    before = await engine.ask(CITY, item="i", draw="0")
    dead = kill_child(backend)
    after = await engine.ask(CITY, item="i", draw="1")
    assert after.text == before.text
    assert backend.restarts == 1
    assert backend.server is not None
    assert backend.server.child.pid != dead
    assert engine.stats.retries[Code.CONNECTION] >= 1

    kill_child(backend)  # `restarts` is 1
    with pytest.raises(LLMFault, match="died 2 times") as caught:
        await engine.ask(CITY, item="i", draw="2")
    assert caught.value.retry is False


@real_model
async def test_calls_broken_by_one_death_cost_one_restart() -> None:
    backend = EmbeddedBackend(EmbeddedSettings(**SETTINGS, parallel=4, restarts=1), say=lambda _: None)
    async with Engine(backend, limits=EngineLimits(backoff=0.05), price=FREE) as engine:
        kill_child(backend)
        replies = await asyncio.gather(*(engine.ask(CITY, item="i", draw=str(n)) for n in range(4)))
    assert all(json.loads(reply.text)["city"] in ("Rome", "Oslo") for reply in replies)
    assert backend.restarts == 1


@real_model
async def test_a_prompt_beyond_the_context_names_the_setting(engine: Engine) -> None:
    with pytest.raises(
        LLMFault, match=r"exceeds the available context size \(\d+ tokens\): raise `context` of the local model"
    ) as failed:
        await engine.ask(Request(messages=[{"role": "user", "content": "word " * 20_000}]), item="long", draw="long")
    assert failed.value.exceeds_context
    assert not failed.value.retry


@real_model
async def test_closing_ends_the_child() -> None:
    backend = EmbeddedBackend(EmbeddedSettings(**SETTINGS), say=lambda _: None)
    await backend.start()
    assert backend.server is not None
    pid = backend.server.child.pid
    assert pid is not None
    await backend.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await backend.close()


@real_model
async def test_a_path_and_a_name_are_one_identity(tmp_path: Path, weights: Path) -> None:
    renamed = tmp_path / "renamed.gguf"
    renamed.symlink_to(weights)
    backend = EmbeddedBackend(EmbeddedSettings(**SETTINGS | {"model": str(renamed)}), say=lambda _: None)
    await backend.start()
    assert backend.model == f"smollm2-135m@{SMALL.sha256[:8]}"
    await backend.close()


async def test_the_small_model_stands_in_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "small.gguf"
    weights.write_bytes(b"not a model")

    def fetch_best(say: Any) -> tuple[Path, local_models.LocalModel]:
        say("WARNING: using the small one")
        return weights, SMALL

    said: list[str] = []
    monkeypatch.setattr(local_models, "fetch_best_model", fetch_best)
    backend = EmbeddedBackend(EmbeddedSettings(), say=said.append)
    assert backend.model.startswith(f"{local_models.DEFAULT}@")
    with pytest.raises(UserError):  # the library refuses the file, and no child stays behind
        await backend.start()
    assert backend.model == f"{SMALL.name}@{SMALL.sha256[:8]}", "the identity is that of the weights really used"
    assert said == ["WARNING: using the small one"]
    assert backend.server is None


async def test_an_unknown_model_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="no-such-model"):
        await EmbeddedBackend(EmbeddedSettings(model="no-such-model")).start()


def test_a_config_chooses_by_kind() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(LLMSettings)
    settings = adapter.validate_python({"kind": "embedded", "slots": 2})
    assert isinstance(settings, EmbeddedSettings)
    assert settings.model == local_models.DEFAULT
    assert isinstance(open_backend(settings), EmbeddedBackend)
    assert find_price(settings) == FREE
    remote = adapter.validate_python({"kind": "openai", "model": "gpt-4o"})
    price = find_price(remote)
    assert price is not None
    assert price.output == 10


@real_model
async def test_it_embeds_texts_on_request() -> None:
    """A model for text has no pooling of its own: its vectors are the mean over the tokens."""
    backend = EmbeddedBackend(EmbeddedSettings(**SETTINGS, embeddings=True), say=lambda _: None)
    texts = ["order_id (string): The order", "the weather in Oslo", "order_id (string): The order"]

    async with Engine(backend, price=FREE) as engine:
        vectors = await embed_texts(lambda asked, draw: engine.ask(asked, item="x", draw=draw), texts, draw="x")
    assert len({len(vector) for vector in vectors}) == 1
    assert compute_cosine(vectors[0], vectors[2]) == pytest.approx(1, abs=1e-3)
    assert compute_cosine(vectors[0], vectors[1]) < 0.99


def test_an_embedding_model_names_its_pooling(tmp_path: Path) -> None:
    (tmp_path / "embed.gguf").write_bytes(b"GGUF" + b"bert.pooling_type" + bytes(100))
    (tmp_path / "text.gguf").write_bytes(b"GGUF" + bytes(100))
    assert declares_pooling(tmp_path / "embed.gguf")
    assert not declares_pooling(tmp_path / "text.gguf")
