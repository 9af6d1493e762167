"""The limits of one engine, as a config's `limits:` section gives them: concurrency, retries and the caps of a budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from simia.config import Config

Cap = Literal["max_tokens", "max_cost"]


class EngineLimits(Config):
    """How hard to push an endpoint, how patient to be with it, and how much to spend. All operational: a resume may change them."""

    concurrency: int = Field(
        256, ge=1, description="Requests in flight at most; how many there are is found by trying."
    )
    start: int = Field(
        16, ge=1, description="Requests in flight at first: more while the endpoint takes them, fewer when it refuses."
    )
    stall: float | None = Field(
        6.0,
        gt=1,
        description="Cancel and repeat a call that takes so many times the 95th percentile (and 60 s); None: never.",
    )
    retries: int = Field(6, ge=0, description="Tries after the first, for faults that may pass.")
    backoff: float = Field(1.0, gt=0, description="Seconds; the n-th retry waits a random share of backoff times 2^n.")
    backoff_max: float = Field(60.0, gt=0, description="The longest such wait.")
    retry_after_max: float = Field(600.0, gt=0, description="If the endpoint asks to wait longer than this, give up.")
    max_cost: float | None = Field(None, ge=0, description="Dollars to spend at most.")
    max_tokens: int | None = Field(None, ge=0, description="Tokens, prompt and completion, to use at most.")
    max_requests: int | None = Field(None, ge=0, description="HTTP requests to send at most, retries included.")

    @property
    def capped(self) -> bool:
        """Whether there is a budget at all."""
        return self.max_requests is not None or any(True for _ in self.caps())

    def caps(self) -> Iterator[tuple[Cap, float]]:
        """The caps on what replies cost."""
        if self.max_tokens is not None:
            yield "max_tokens", self.max_tokens
        if self.max_cost is not None:
            yield "max_cost", self.max_cost
