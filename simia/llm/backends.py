"""Which back ends there are: the union that a config's `llm:` section is read as, and the one place that opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from simia.llm.batch import BatchBackend, BatchSettings
from simia.llm.embedded import EmbeddedBackend, EmbeddedSettings
from simia.llm.failover import PoolBackend, PoolSettings
from simia.llm.openai import OpenAIBackend, OpenAISettings
from simia.llm.prices import FREE, Price, price_of
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.llm.types import Backend
from simia.llm.vllm import VLLMBackend, VLLMSettings

LLMSettings = Annotated[
    OpenAISettings | PoolSettings | EmbeddedSettings | VLLMSettings | BatchSettings | ReplaySettings,
    Field(discriminator="kind"),
]


def open_backend(settings: LLMSettings, *, say: Callable[[str], None] | None = None) -> Backend:
    """The back end, not started. `say` gets the lines a user should see while it starts (a download, a warning)."""
    if isinstance(settings, OpenAISettings):
        return OpenAIBackend(settings)
    if isinstance(settings, PoolSettings):
        return PoolBackend(settings)
    if isinstance(settings, BatchSettings):
        return BatchBackend(settings, say=say)
    if isinstance(settings, VLLMSettings):
        return VLLMBackend(settings, say=say)
    if isinstance(settings, EmbeddedSettings):
        return EmbeddedBackend(settings, say=say)
    return ReplayBackend(settings)


def price_for(settings: LLMSettings) -> Price | None:
    """What its replies cost; None if nobody knows."""
    if isinstance(settings, OpenAISettings):
        return settings.price or price_of(settings.model)
    if isinstance(settings, PoolSettings):
        first = settings.endpoints[0]
        return first.price or price_of(first.model)
    if isinstance(settings, BatchSettings):
        return settings.batch_price()
    return FREE
