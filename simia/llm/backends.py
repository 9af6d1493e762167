"""All back ends: the union of settings for a config's `llm:` section, and the functions that open it and find its price."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from simia.errors import UserError
from simia.llm.batch_files import BatchBackend, BatchSettings
from simia.llm.embedded import EmbeddedBackend, EmbeddedSettings
from simia.llm.endpoint_pool import PoolBackend, PoolSettings
from simia.llm.openai_backend import OpenAIBackend, OpenAIClientBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prices import FREE, Price, look_up_price
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.llm.types import ModelBackend
from simia.llm.vllm import VLLMBackend, VLLMSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LLMSettings = Annotated[
    OpenAISettings | PoolSettings | EmbeddedSettings | VLLMSettings | BatchSettings | ReplaySettings,
    Field(discriminator="kind"),
]
KINDS = ("openai", "pool", "embedded", "vllm", "batch", "replay")


def read_llm(llm: str | Mapping[str, Any] | LLMSettings | AsyncOpenAI | None) -> dict[str, Any]:
    """Return the `llm:` section for an `llm=` argument, as plain values. `attach_client` attaches a client to the settings later.

    `llm`: a section, settings, one of the kinds (`"embedded"`), the name of a model of an OpenAI-compatible endpoint, or a client,
    whose key is not read here. Raises `UserError`.
    """
    if llm is None:
        return {}
    if isinstance(llm, str):
        return {"kind": llm} if llm in KINDS else {"kind": "openai", "model": llm}
    if isinstance(llm, BaseModel):
        return llm.model_dump(mode="json")
    if isinstance(llm, Mapping):
        return dict(llm)
    if is_client(llm):
        return {"kind": "openai", "base_url": str(llm.base_url)}
    raise UserError(
        f"llm= takes a kind, a mapping, settings or an openai.AsyncOpenAI, not {type(llm).__name__}; "
        "a client must be asynchronous"
    )


def is_client(llm: object) -> bool:
    """Check for an `openai.AsyncOpenAI`, without importing the package: it is already imported if there is such an object."""
    openai = sys.modules.get("openai")
    return openai is not None and isinstance(llm, openai.AsyncOpenAI)


def attach_client(settings: LLMSettings, llm: Any) -> None:
    """Let the back end of these settings send requests through `llm`, if that is a client. No dump of the settings holds it."""
    if not is_client(llm):
        return
    if not isinstance(settings, OpenAISettings):
        raise UserError(f"llm= is a client, and llm.kind is {settings.kind}: leave llm.kind out")
    settings._client = llm


def open_backend(settings: LLMSettings, *, say: Callable[[str], None] | None = None) -> ModelBackend:
    """Return the back end, not started. `say` prints lines for the user while it starts (a download, a warning)."""
    if isinstance(settings, OpenAISettings):
        return OpenAIClientBackend(settings, settings._client) if settings._client else OpenAIBackend(settings)
    if isinstance(settings, PoolSettings):
        return PoolBackend(settings)
    if isinstance(settings, BatchSettings):
        return BatchBackend(settings, say=say)
    if isinstance(settings, VLLMSettings):
        return VLLMBackend(settings, say=say)
    if isinstance(settings, EmbeddedSettings):
        return EmbeddedBackend(settings, say=say)
    return ReplayBackend(settings)


def find_price(settings: LLMSettings) -> Price | None:
    """Return the price of its replies; None if unknown. Of a pool, which prices each reply itself: that of the first endpoint, or None if
    the price of any endpoint is unknown."""
    if isinstance(settings, PoolSettings):
        prices = [find_price(each) for each in settings.endpoints]
        return None if None in prices else prices[0]
    if isinstance(settings, OpenAISettings):
        return settings.price or look_up_price(settings.model)
    if isinstance(settings, BatchSettings):
        return settings.batch_price()
    return FREE
