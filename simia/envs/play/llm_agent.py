"""An agent that is a model behind OpenAI's chat completions: with the endpoint's own tool calls, or as text.

Native: tools are sent in the request's `tools`, and calls come back in `tool_calls`. Hermes: tools are listed in the system text, calls
are between `<tool_call>` tags in the reply, and results between `<tool_response>` tags in a user turn; for models whose server does not
support tools, and for policies trained on that text. CodeGym: the same with the words and marks of `simia.formats.codegym`. ReAct: a
thought and one action per message (`simia.formats.react`). In each format a malformed call is kept as a call, and the environment answers
it with an error that the agent can react to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson
from pydantic import Field

from simia.config import Config
from simia.envs.environment import Sample
from simia.envs.play.agent import AgentFailed
from simia.envs.users import EpisodeView
from simia.errors import Code
from simia.formats import codegym, react
from simia.formats import tagged_calls as tagged
from simia.formats.hermes import join_system
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, write_compact_json

FENCE = re.compile(r"\A```(?:json)?\s*(.*?)\s*```\Z", re.DOTALL)


class LLMAgentSettings(Config):
    """Prompt and sampling settings of the agent's model."""

    calls: Literal["native", "hermes", "codegym", "react"] = Field(
        "native",
        description="How the model writes calls. native: the endpoint's tool calls. hermes: text in Hermes' tags. codegym: text in "
        "CodeGym's marks. react: ReAct's thought and action.",
    )
    bare: bool = Field(
        False,
        description="For calls as text: whether a reply that is only the JSON of a call, without tags or marks, is read as that call.",
    )
    temperature: float | None = Field(1.0, ge=0, description="Sampling temperature. null: the endpoint's default.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling (top-p). null: the endpoint's default.")
    max_tokens: int | None = Field(
        2048,
        ge=1,
        description="Maximum number of tokens of one message of the agent, reasoning tokens included. null: the endpoint's limit.",
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Additional fields of the request body.")


class NamedModel(Protocol):
    """The names under which a reply is stored."""

    alias: str
    model: str


class AgentEngine(Protocol):
    """The part of an engine that an agent uses."""

    @property
    def backend(self) -> NamedModel:
        """The model that replies."""

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the reply. Raises `LLMFault`."""


class LLMAgent:
    """One episode's agent. `item` names it in the run's ledger, and the sample names of its turns derive from it."""

    def __init__(self, engine: AgentEngine, settings: LLMAgentSettings, *, item: str) -> None:
        self._engine, self._settings, self._item = engine, settings, item
        self._turn = 0
        self.reply_keys: list[str] = []

    async def act(self, view: EpisodeView) -> tuple[Message, Sample | None]:
        settings = self._settings
        native = settings.calls == "native"
        extra = dict(settings.extra)
        if native and view.all_tools:
            extra["tools"] = [{"type": "function", "function": tool.flat()} for tool in view.all_tools]
        request = Request(
            messages=make_chat(view) if native else make_text_chat(view, TEXT_DIALECTS[settings.calls]),
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.max_tokens,
            stop=None if native else [TEXT_DIALECTS[settings.calls].stop],
            extra_body=extra,
        )
        draw = f"{self._item}/{self._turn}"
        self._turn += 1
        try:
            backend = self._engine.backend
            key = make_reply_key(backend.alias, backend.model, request, draw)
            self.reply_keys.append(key)
            reply = await self._engine.ask(request, item=self._item, draw=draw, key=key)
        except LLMFault as fault:
            if fault.exceeds_context:
                raise AgentFailed(Code.MAX_TOKENS, fault.detail, aborted=False) from None
            raise AgentFailed(fault.code, fault.detail) from None
        if native:
            return read_native_message(reply, self._turn), None
        read = TEXT_DIALECTS[settings.calls].read(reply.text, f"call_{self._turn}")
        message = read if read.reasoning else read.model_copy(update={"reasoning": reply.reasoning})
        if settings.bare and not message.calls:
            names = {tool.name for tool in view.all_tools}
            calls = [call for call in bare_calls(reply.text) if call.name in names]
            if calls:
                numbered = [call.model_copy(update={"id": f"call_{self._turn}_{i}"}) for i, call in enumerate(calls)]
                message = Message(role="assistant", reasoning=message.reasoning, calls=numbered)
        return message, None


def bare_calls(text: str) -> list[ToolCall]:
    """Parse the calls of a reply that holds only calls: a JSON object or list, or one object per line, perhaps in a code fence."""
    body = FENCE.sub(r"\1", text.strip()).strip()
    try:
        rows = [orjson.loads(body)]
    except orjson.JSONDecodeError:
        try:
            rows = [orjson.loads(line) for line in body.splitlines() if line.strip()]
        except orjson.JSONDecodeError:
            return []
    if len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    calls = [tagged.read_tagged_call(row) for row in rows]
    return [call for call in calls if call is not None] if all(calls) else []


def make_chat(view: EpisodeView) -> list[dict[str, Any]]:
    """The conversation as OpenAI's messages."""
    found: list[dict[str, Any]] = [{"role": "system", "content": view.system}] if view.system else []
    for m in view.messages:
        row: dict[str, Any] = {"role": m.role, "content": m.content if m.content is not None else ""}
        if m.calls:
            row["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": arguments_text(c)}}
                for c in m.calls
            ]
        if m.role == "tool":
            row["tool_call_id"] = m.call_id
        found.append(row)
    return found


def arguments_text(call: ToolCall) -> str:
    return call.raw or "{}" if call.arguments is None else write_compact_json(call.arguments)


@dataclass(frozen=True)
class TextDialect:
    """How a text dialect lists tools, writes a turn of the agent, and reads one."""

    join_system: Callable[[str | None, list[ToolSpec]], str | None]
    write: Callable[[str | None, list[ToolCall]], str | None]
    read: Callable[[str, str], Message]
    join_results: Callable[[list[str]], str] = tagged.join_results
    stop: str = "<tool_response>"


TEXT_DIALECTS = {
    "hermes": TextDialect(join_system, tagged.write_tagged, tagged.read_message),
    "codegym": TextDialect(codegym.join_functions, codegym.write_marked, codegym.read_marked_message),
    "react": TextDialect(
        react.join_react_tools,
        react.write_react,
        react.read_react_message,
        react.write_observations,
        f"\n{react.OBSERVATION}",
    ),
}


def make_hermes_chat(view: EpisodeView) -> list[dict[str, Any]]:
    """The conversation as plain chat turns in Hermes text."""
    return make_text_chat(view, TEXT_DIALECTS["hermes"])


def make_text_chat(view: EpisodeView, dialect: TextDialect) -> list[dict[str, Any]]:
    """Convert the conversation to plain chat turns with calls and results as text. The results of one turn form one user turn."""
    system = dialect.join_system(view.system, list(view.tools)) or ""
    found: list[dict[str, Any]] = [{"role": "system", "content": system}]
    results: list[str] = []
    for m in view.messages:
        if m.role == "tool":
            results.append(m.text)
            continue
        if results:
            found.append({"role": "user", "content": dialect.join_results(results)})
            results = []
        text = dialect.write(m.text or None, m.calls) if m.role == "assistant" else m.text
        found.append({"role": m.role, "content": text or ""})
    if results:
        found.append({"role": "user", "content": dialect.join_results(results)})
    return found


def read_native_message(reply: Reply, turn: int) -> Message:
    """Text and `tool_calls` of the reply; missing and duplicate ids are replaced."""
    try:
        given = reply.body["choices"][0]["message"].get("tool_calls") or []
    except (KeyError, IndexError, TypeError):
        given = []
    calls: list[ToolCall] = []
    for i, item in enumerate(given if isinstance(given, list) else []):
        call = tagged.read_tagged_call(item) or ToolCall(id="", name="", raw=str(item)[:2000])
        own = item.get("id") if isinstance(item, dict) else None
        fresh = not isinstance(own, str) or not own or any(own == other.id for other in calls)
        calls.append(call.model_copy(update={"id": f"call_{turn}_{i}" if fresh else own, "extra": {}}))
    return Message(role="assistant", content=reply.text or None, reasoning=reply.reasoning, calls=calls)
