"""Trajectory: one episode as a record. Everything that simia makes, reads, checks or exports is one of these.

A trajectory holds the system text, the tools, the messages with their calls and results, how it ended, its
reward and where it came from. Errors are data in it. Its `id` is a hash of the content alone (no times, costs
or provenance), so that the same episode has the same id wherever and whenever it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code, Issue, UserError
from simia.reward import Reward
from simia.tool import ToolSpec

VERSION = 1
Role = Literal["system", "user", "assistant", "tool"]
EndKind = Literal["terminated", "truncated", "aborted"]


class ToolCall(BaseModel):
    """A call by the agent. `raw` holds the arguments' text if and only if it could not be parsed."""

    model_config = ConfigDict(extra="forbid")

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    raw: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class Message(BaseModel):
    """One turn. `content` is text, or a list of parts as OpenAI's chat has them; `reasoning` never mixes with it.

    An assistant message has text and/or any number of calls, run in order; a `tool` message answers one call
    (`call_id`). `train` is a per-turn loss switch (None: the exporter's rule). `extra` keeps a dialect's unknown fields.
    """

    model_config = ConfigDict(extra="forbid")

    role: Role
    content: str | list[dict[str, Any]] | None = None
    reasoning: str | None = None
    calls: list[ToolCall] = Field(default_factory=list)
    call_id: str | None = None
    name: str | None = None
    error: Code | None = None
    train: bool | None = None
    visible_to: list[str] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The readable text of the content: the string itself, or the text parts joined."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content if part.get("type", "text") == "text")
        return self.content or ""


class End(BaseModel):
    """How an episode ended: finished, cut by a limit (still scored), or aborted by infrastructure (never scored)."""

    model_config = ConfigDict(extra="forbid")

    kind: EndKind = "terminated"
    code: Code | None = None


class Provenance(BaseModel):
    """Where a trajectory came from: enough to find the paid reply again and to redo every later stage."""

    model_config = ConfigDict(extra="forbid")

    run: str | None = None
    item: str | None = None
    seed_ids: list[str] = Field(default_factory=list)
    model: str | None = None
    prompts: dict[str, str] = Field(default_factory=dict)
    reply_keys: list[str] = Field(default_factory=list)
    stages: list[str] = Field(default_factory=list)
    simia: str | None = None
    licence: str | None = None
    source: str | None = None


class Usage(BaseModel):
    """Tokens as the endpoint counted them. `cached` is the share of `prompt` that it served from a prefix cache."""

    model_config = ConfigDict(extra="forbid")

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        known = [c for c in (self.cost, other.cost) if c is not None]
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
            cost=sum(known) if known else None,
        )


class Trajectory(BaseModel):
    """One episode. On disk: a JSON line whose `version` says how to read it (see `upgrade`)."""

    model_config = ConfigDict(extra="forbid")

    version: int = VERSION
    pack: str | None = None
    task_id: str | None = None
    split: str | None = None
    system: str | None = None
    tools: list[ToolSpec] = Field(default_factory=list)
    user_tools: list[ToolSpec] = Field(default_factory=list)
    messages: list[Message] = Field(default_factory=list)
    end: End = Field(default_factory=End)
    reward: Reward | None = None
    evidence: dict[str, Any] | None = None
    issues: list[Issue] = Field(default_factory=list)
    provenance: Provenance = Field(default_factory=Provenance)
    usage: Usage = Field(default_factory=Usage)
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def id(self) -> str:
        """Hash of what a reader of the conversation would see: system, tools and messages; 16 bytes in hex."""
        seen = {
            "system": self.system,
            "tools": [tool.model_dump(exclude_defaults=True) for tool in self.tools],
            "messages": [content_of(message) for message in self.messages],
        }
        return digest(seen)

    def calls(self) -> Iterator[tuple[int, int, ToolCall]]:
        """Every call with its place: (index of the message, index within the message, call)."""
        for i, message in enumerate(self.messages):
            for j, call in enumerate(message.calls):
                yield i, j, call

    def to_row(self) -> dict[str, Any]:
        """The row that is written to disk: JSON types only, empty fields left out."""
        return {"version": self.version, **self.model_dump(mode="json", exclude_defaults=True)}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Trajectory:
        """Read a row of any released version."""
        return cls.model_validate(upgrade(row))


def content_of(message: Message) -> dict[str, Any]:
    """What counts of a message for identity: not the made-up call ids, but which call a result answers stays in order."""
    return {
        "role": message.role,
        "content": message.content,
        "reasoning": message.reasoning,
        "calls": [[call.name, call.arguments, call.raw] for call in message.calls],
    }


def compact(value: Any) -> str:
    """JSON on one line; also where a model wrote an integer beyond 64 bits or half a character."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))


def digest(value: Any) -> str:
    """A stable hash of a JSON value (keys sorted), 32 hex characters."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, which foreign rows do hold
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


# Each entry lifts a row of that version to the next one. A fixture of every released version is tested.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def upgrade(row: dict[str, Any]) -> dict[str, Any]:
    """Lift a stored row, step by step, to the present version. Pure; refuses rows from a newer simia."""
    version = row.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise UserError(f"this row has trajectory version {version!r}, newer than {VERSION}: upgrade simia to read it")
    while version < VERSION:
        row = UPGRADES[version](row)
        version += 1
    return row
