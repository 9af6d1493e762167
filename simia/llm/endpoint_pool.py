"""A pool of endpoints that serve one model, used in order of preference: an outage at one provider does not stop a run.

The run sees one endpoint (one alias in the replies' keys), so a reply has the same key whichever endpoint gives it; the reply's body names
the endpoint. An endpoint that fails is not used for a while, longer each time; one that refuses the key or does not know the model is not
used again, unless no other is left. If it has answered before, it must refuse several calls in a row, since a moderation refuses single
prompts with the same status. If another endpoint is ready, a fault has `elsewhere` set: the engine then tries again at once, without
a wait and without a lower concurrency.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from simia.config import Config, Operational
from simia.errors import Code, UserError
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prices import Price, look_up_price
from simia.llm.types import REFUSALS, LLMFault, Reply, Request

log = logging.getLogger(__name__)

REST, LONGEST_REST = 2.0, 120.0
NEVER = float("inf")
REFUSED = 8  # calls in a row, after which an endpoint that has answered is left out
ILL = {
    Code.RATE_LIMITED,
    Code.TIMEOUT,
    Code.CONNECTION,
    Code.SERVER_ERROR,
    Code.BAD_REPLY_BODY,
    Code.TOO_LARGE,
} | REFUSALS


class PoolSettings(Config):
    """Several endpoints of one model, in order of preference."""

    kind: Literal["pool"] = "pool"
    """Several endpoints of one model."""
    alias: str | None = Field(
        None, description="Name of the pool in the keys of stored replies. null: that of the first endpoint."
    )
    endpoints: Operational[list[OpenAISettings]] = Field(
        min_length=1,
        description="The endpoints, each with its own name of the model. A resume may add and remove endpoints: stored replies stay "
        "valid while `alias` and `model` are the same.",
    )
    model: str = Field(
        "", description="Name of the model in the keys of stored replies. Empty: that of the first endpoint."
    )

    @model_validator(mode="after")
    def _named(self) -> PoolSettings:
        first = self.endpoints[0]
        self.model = self.model or first.model
        self.alias = self.alias or first.alias or first.host
        schemas = {endpoint.takes_schema for endpoint in self.endpoints}
        if len(schemas) > 1:
            raise UserError("the pool's endpoints differ in structured output: set structured the same for all")
        return self


@dataclass(slots=True)
class PoolMember:
    """One endpoint and its state."""

    backend: OpenAIBackend
    price: Price | None
    well_at: float = 0.0  # on the monotonic clock
    failures: int = 0  # in a row
    refusals: int = 0  # in a row
    answered: int = 0


class PoolBackend:
    """The back end of a pool. `members` counts the replies of each endpoint."""

    def __init__(self, settings: PoolSettings) -> None:
        self.alias = settings.alias or ""
        self.model = settings.model
        self.members = [
            PoolMember(OpenAIBackend(endpoint), endpoint.price or look_up_price(endpoint.model))
            for endpoint in settings.endpoints
        ]
        self.structured = self.members[0].backend.structured

    async def start(self) -> None:
        for member in self.members:
            await member.backend.start()

    async def close(self) -> None:
        for member in self.members:
            await member.backend.close()

    async def complete(self, request: Request, *, draw: str) -> Reply:
        member = self._choose()
        try:
            reply = await member.backend.complete(request, draw=draw)
        except LLMFault as fault:
            if fault.code in ILL:
                self._rest(member, fault)
            raise
        member.failures, member.refusals, member.well_at = 0, 0, 0.0
        member.answered += 1
        if reply.usage.cost is None and member.price is not None:
            reply.usage.cost = member.price.of(reply.usage)  # each endpoint at its own price
        reply.body["endpoint"] = member.backend.alias
        if wait := member.backend.rates.wait(reply.usage.prompt + reply.usage.completion):
            member.well_at = time.monotonic() + wait
        return reply

    def _choose(self) -> PoolMember:
        now = time.monotonic()
        well = (member for member in self.members if member.well_at <= now)
        return next(well, None) or min(self.members, key=lambda member: member.well_at)

    def _rest(self, member: PoolMember, fault: LLMFault) -> None:
        member.failures += 1
        now = time.monotonic()
        rest = fault.retry_after or min(LONGEST_REST, REST * 2 ** (member.failures - 1))
        member.refusals = member.refusals + 1 if fault.code in REFUSALS else 0
        final = member.refusals >= (REFUSED if member.answered else 1)
        if final and member.well_at < NEVER:
            log.warning("%s is left out: %s", member.backend.alias, fault.detail)
        member.well_at = NEVER if final else max(member.well_at, now + rest)
        others = [other for other in self.members if other is not member]
        if any(other.well_at <= now for other in others):
            fault.elsewhere = fault.retry = True
        elif any(other.well_at < NEVER for other in others):
            fault.retry = True  # the others rest, but will be back
