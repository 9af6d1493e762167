"""Trajectory: one episode as a record, which simia makes, reads, checks and exports.

A trajectory holds the system text, the tools, the messages with their calls and results, how it ended, its
reward and where it came from. Errors are data in it. Its `id` is a hash of the content alone (no times, costs
or provenance), so that the same episode has the same id wherever and whenever it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from simia.errors import Code, Issue, UserError
from simia.reward import Reward
from simia.tool import ToolSpec

VERSION = 1
Role = Literal["system", "user", "assistant", "tool"]
TEXT_PARTS = frozenset(("text", "input_text", "output_text"))
EndKind = Literal["terminated", "truncated", "aborted"]


class Record(BaseModel):
    """Base of the parts of a trajectory: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ToolCall(Record):
    """A call by the agent. `raw` holds the arguments' text if and only if it could not be parsed."""

    id: str
    """Id that the result's message repeats as `call_id`."""
    name: str
    """The tool's name."""
    arguments: dict[str, Any] | None = None
    """The arguments; None: they could not be parsed."""
    raw: str | None = None
    """The arguments' text, only where it could not be parsed."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of the dialect that have no field here."""


class Message(Record):
    """One message of a conversation. `content` is text, or a list of parts as OpenAI's chat has them; `reasoning` never mixes with it.

    An assistant message has text and/or any number of calls, run in order; a `tool` message answers one call
    (`call_id`). `train` is a per-turn loss switch (None: the exporter's rule). `extra` keeps a dialect's unknown fields.
    """

    role: Role
    """Whose message it is."""
    content: str | list[dict[str, Any]] | None = None
    """Text, or a list of parts as in OpenAI's chat format; None: none."""
    reasoning: str | None = None
    """The model's reasoning before the message."""
    calls: list[ToolCall] = Field(default_factory=list)
    """Calls of an assistant message, run in this order."""
    call_id: str | None = None
    """Of a tool message: the id of the call that it answers."""
    name: str | None = None
    """Of a tool message: the tool's name."""
    error: Code | None = None
    """Of a tool message: why the call failed; None: it succeeded."""
    train: bool | None = None
    """Whether the loss counts this turn; None: the exporter's rule decides."""
    visible_to: list[str] | None = None
    """Parties that see the message, such as `user`; None: those that the role implies."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of the dialect that have no field here."""

    @property
    def text(self) -> str:
        """The readable text of the content: the string itself, or the text parts joined."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content if part.get("type", "text") in TEXT_PARTS)
        return self.content or ""


class End(Record):
    """How an episode ended: finished, cut by a limit (still scored), or aborted by infrastructure (never scored)."""

    kind: EndKind = "terminated"
    """`terminated`: finished; `truncated`: cut by a limit, still scored; `aborted`: infrastructure failed, never scored."""
    code: Code | None = None
    """The reason; None: not known."""


class Perturbation(Record):
    """A planned disturbance that was applied to an episode, and the agent's reaction."""

    kind: str
    """Kind of the disturbance, such as `transient_error`; docs/perturb.md lists all."""
    message: int
    """Index of the message that shows it: a tool's result, or a message of the user."""
    tool: str | None = None
    """The tool whose result was disturbed; None: the user was."""
    by: Literal["code", "model"] = "code"
    """`code`: code changed the result or the message; `model`: a model was instructed to write it so."""
    happened: bool = True
    """Whether the message shows the effect, which code checks. A model may not have followed."""
    detail: dict[str, Any] = Field(default_factory=dict)
    """Details of the disturbance: names of fields, the code that an injected instruction asks for, a wrong identifier."""
    reaction: Literal["repeated", "followed", "too_early"] | None = None
    """`repeated`: the agent made the same call again and got the regular answer; `followed`: it wrote what an injected instruction asks for;
    `too_early`: after the user withdrew its wish, it called a tool that changes something before the user's next message."""


class Provenance(Record):
    """Where a trajectory came from: enough to find the stored reply and to repeat every later stage."""

    run: str | None = None
    """Id of the run."""
    item: str | None = None
    """Id of the run's item."""
    seed_ids: list[str] = Field(default_factory=list)
    """Ids of the seed trajectories in the prompt."""
    model: str | None = None
    """The model that wrote it."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Prompt file → hash of its content."""
    reply_keys: list[str] = Field(default_factory=list)
    """Keys of the model's replies in the run's store."""
    stages: list[str] = Field(default_factory=list)
    """The processing stages that it passed, in order."""
    simia: str | None = None
    """The version of simia that made it."""
    licence: str | None = None
    """Licence of the seed or pack."""
    source: str | None = None
    """File and line, or data set, that it was read from."""


class Usage(Record):
    """Tokens as the endpoint counted them. `prompt` includes the `cached` tokens, and `completion` the `reasoning` tokens."""

    prompt: int = 0
    """Prompt tokens."""
    completion: int = 0
    """Completion tokens, reasoning included."""
    cached: int = 0
    """Prompt tokens that the endpoint served from a prefix cache."""
    reasoning: int = 0
    """Reasoning tokens among the completion's."""
    cost: float | None = None
    """US dollars; None: the price is not known."""
    estimated: bool = False
    """The tokens are an estimate: no endpoint counted them."""

    def __add__(self, other: Usage) -> Usage:
        known = [c for c in (self.cost, other.cost) if c is not None]
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
            cost=sum(known) if known else None,
            estimated=self.estimated or other.estimated,
        )


class Trajectory(Record):
    """One episode as a record: system text, tools, messages, ending, reward and origin.

    On disk it is a JSON line whose `version` says how to read it.
    """

    version: int = VERSION
    """Version of the stored form."""
    pack: str | None = None
    """Name of the pack."""
    task_id: str | None = None
    """Id of the pack's task."""
    split: str | None = None
    """Split of the task, such as `train` or `test`."""
    system: str | None = None
    """The system text."""
    tools: list[ToolSpec] = Field(default_factory=list)
    """Tools that the agent sees."""
    user_tools: list[ToolSpec] = Field(default_factory=list)
    """Tools that the user has."""
    messages: list[Message] = Field(default_factory=list)
    """The conversation, in order."""
    end: End = Field(default_factory=End)
    """How the episode ended."""
    reward: Reward | None = None
    """The reward; None: not scored."""
    evidence: dict[str, Any] | None = None
    """The data from which the reward was computed, such as changes of the state."""
    perturbations: list[Perturbation] = Field(default_factory=list)
    """Planned disturbances of its tools and its user, in the order in which they were made."""
    issues: list[Issue] = Field(default_factory=list)
    """Faults that were found in it."""
    provenance: Provenance = Field(default_factory=Provenance)
    """Where it came from."""
    usage: Usage = Field(default_factory=Usage)
    """Tokens and cost of making it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of the dialect that have no field here."""

    @property
    def id(self) -> str:
        """Hash of system text, tools and messages; 16 bytes, as 32 hexadecimal digits."""
        seen = {
            "system": self.system,
            "tools": [tool.model_dump(exclude_defaults=True) for tool in self.tools],
            "messages": [select_content(message) for message in self.messages],
        }
        return digest(seen)

    @property
    def all_tools(self) -> list[ToolSpec]:
        """The tools, and those that became visible during the episode: `extra["tools"]` of the user's message lists them."""
        later = [
            ToolSpec(**row)
            for message in self.messages
            for row in message.extra.get("tools", ())
            if message.role == "user"
        ]
        return [*self.tools, *later]

    def calls(self) -> Iterator[tuple[int, int, ToolCall]]:
        """Yield every call with its place: (index of the message, index within the message, call)."""
        for i, message in enumerate(self.messages):
            for j, call in enumerate(message.calls):
                yield i, j, call

    def to_row(self) -> dict[str, Any]:
        """Return the row that is written to disk: JSON types only, fields with their defaults left out."""
        return {"version": self.version, **self.model_dump(mode="json", exclude_defaults=True)}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Trajectory:
        """Read a row of any released version.

        Raises:
            UserError: The row was written by a newer version of simia.
            pydantic.ValidationError: The row does not have the form of a trajectory.
        """
        return cls.model_validate(upgrade_row(row))


def sort_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of parallel calls in the order of the calls, for written forms without call ids.

    Results stay as they are if an id repeats or is not of the calls before them.
    """
    found: list[Message] = []
    for are_results, group in groupby(messages, lambda message: message.role == "tool"):
        run = list(group)
        if are_results and found:
            places: dict[str | None, int] = {call.id: place for place, call in enumerate(found[-1].calls)}
            ids = {result.call_id for result in run}
            if len(ids) == len(run) and ids <= places.keys():
                run.sort(key=lambda result: places[result.call_id])
        found += run
    return found


def pair_calls(messages: Sequence[Message]) -> list[tuple[Message, ToolCall, Message | None]]:
    """Return each call with its message and its result; None: it has no result.

    A result belongs to the call with its id, or else to the first call that has none yet.
    """
    calls: list[tuple[Message, ToolCall]] = []
    waiting: list[int] = []  # places in `calls` of those without a result
    results: dict[int, Message] = {}
    for message in messages:
        if message.role == "tool" and waiting:
            place = next((place for place in waiting if calls[place][1].id == message.call_id), waiting[0])
            waiting.remove(place)
            results[place] = message
        elif message.calls:
            ids = {call.id for call in message.calls}  # some recorders begin the numbers of calls again in each turn
            waiting = [place for place in waiting if calls[place][1].id not in ids]
            waiting += range(len(calls), len(calls) + len(message.calls))
            calls += [(message, call) for call in message.calls]
    return [(message, call, results.get(place)) for place, (message, call) in enumerate(calls)]


def select_content(message: Message) -> dict[str, Any]:
    """Return the part of a message that its identity depends on: without call ids, since results follow their calls in order."""
    return {
        "role": message.role,
        "content": message.content,
        "reasoning": message.reasoning,
        "calls": [[call.name, call.arguments, call.raw] for call in message.calls],
    }


def write_compact_json(value: Any) -> str:
    """Write JSON on one line. Integers beyond 64 bits and lone surrogates are allowed."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))


def digest(value: Any) -> str:
    """Return a stable hash of a JSON value (keys sorted), 32 hex characters."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, which foreign rows do hold
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def upgrade_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a stored row in the form of the present version, the only one so far. Raises `UserError` for one of a newer simia."""
    version = row.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise UserError(f"this row has trajectory version {version!r}, newer than {VERSION}: upgrade simia to read it")
    return row
