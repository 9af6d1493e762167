"""Requests, replies and faults of models, and the protocol of back ends.

A back end makes exactly one attempt. The engine handles retries, limits, storage and accounting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code
from simia.trajectory import Usage, digest

REFUSALS = frozenset((Code.AUTH, Code.NOT_FOUND))
"""Faults of an endpoint that refuses the key or does not know the model: as a rule, it refuses every call."""


class Request(BaseModel):
    """One chat completion, in OpenAI's terms. All fields enter the reply's key."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    messages: list[dict[str, Any]]
    """Messages in the form of OpenAI's chat completions."""
    temperature: float | None = None
    """Sampling temperature; None: the endpoint's."""
    top_p: float | None = None
    """Nucleus sampling; None: the endpoint's."""
    max_tokens: int | None = None
    """Longest completion, reasoning included."""
    stop: list[str] | None = None
    """Texts that end the completion."""
    seed: int | None = None
    """Random seed, for endpoints that take one."""
    reasoning_effort: str | None = None
    """low, medium or high, for models that take it."""
    response_format: dict[str, Any] | None = None
    """JSON Schema that constrains the completion, in OpenAI's form."""
    input: list[str] | None = None
    """Texts to embed. With them it is a request for embeddings, without messages (`simia.llm.embeddings`)."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the body."""

    def canonical(self) -> dict[str, Any]:
        """The fields that are set, by name. Messages and the rest are JSON values as they stand."""
        return {name: value for name, value in self.__dict__.items() if value is not None and value != {}}


def make_reply_key(alias: str, model: str, request: Request, draw: str) -> str:
    """Return the key of a reply: a digest of endpoint alias, model, canonical request and `draw` (the sample's name, the same for all tries)."""
    return digest([alias, model, request.canonical(), draw])


class Reply(BaseModel):
    """A reply as received. `body` is the rest of the endpoint's JSON, for later stages that may read it differently."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    text: str = ""
    """The completion."""
    reasoning: str | None = None
    """The model's reasoning, where the endpoint returns it."""
    finish: str | None = None
    """The endpoint's finish reason."""
    usage: Usage = Field(default_factory=Usage)
    """Tokens as the endpoint counted them."""
    model: str | None = None
    """The model that the endpoint names."""
    body: dict[str, Any] = Field(default_factory=dict)
    """The rest of the endpoint's JSON."""

    def stored(self) -> dict[str, Any]:
        """Return the reply as a JSON value without empty fields. Equal to the result of `model_dump`, at a fifth of its cost."""
        usage = {name: value for name, value in self.usage.__dict__.items() if value or (name == "cost" and value == 0)}
        fields = {name: value for name, value in self.__dict__.items() if value and name != "usage"}
        return fields | {"usage": usage} if usage else fields

    @property
    def truncated(self) -> bool:
        return self.finish in ("length", "max_tokens")


class LLMFault(Exception):  # noqa: N818
    """One attempt failed. `retry`: the same request may succeed later; `retry_after`: seconds the endpoint asked for;
    `elsewhere`: another endpoint of the pool is ready to take it at once."""

    def __init__(
        self, code: Code, detail: str = "", *, retry: bool, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.retry, self.retry_after, self.status = (code, detail, retry, retry_after, status)
        self.elsewhere = False

    @property
    def exceeds_context(self) -> bool:
        """Whether the request was longer than the model's context, which sending it again does not change."""
        return self.code is Code.BAD_REQUEST and "context" in self.detail.lower()


class ModelBackend(Protocol):
    """One way to reach a model."""

    alias: str
    model: str
    structured: bool  # can constrain a reply to a JSON Schema through `response_format`

    async def start(self) -> None:
        """Open connections or processes. Raises `UserError` when the user must change something first."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        """One attempt. Raises `LLMFault`. `draw` is for back ends that answer from records."""

    async def close(self) -> None: ...


@runtime_checkable
class RecordedBackend(Protocol):
    """A back end that may replace a newly rendered request by the one that was recorded for the same sample."""

    matches_draws: bool
    """Whether it replaces requests."""
    prompts: dict[str, str]
    """The prompt files of the recorded requests, by name: their hashes."""

    def find_recorded(self, request: Request, draw: str) -> Request:
        """Return the request to ask instead of `request`, or `request` itself."""

    def find_plan(self, draw: str) -> dict[str, Any] | None:
        """Return the plan that the recorded request was made with, if it had one."""


@runtime_checkable
class DeferredBackend(Protocol):
    """A back end whose replies come in another session: it writes requests to files and raises `Code.PENDING`."""

    pending: int
    """Requests that wait for their replies."""

    @property
    def place(self) -> str:
        """Where they wait, and what to do: a text for the user."""


def describe_waiting(backends: Iterable[object]) -> str:
    """Return the number of waiting requests and their place for each deferred back end; empty if none waits."""
    distinct = {id(backend): backend for backend in backends}.values()  # engines may share a back end
    deferred = [backend for backend in distinct if isinstance(backend, DeferredBackend) and backend.pending]
    return "; ".join(
        f"{backend.pending:,} {'question waits' if backend.pending == 1 else 'questions wait'} in {backend.place}"
        for backend in deferred
    )
