"""A model as the user: the task's instruction as who it is, a word that ends it, tools of its own where the pack gives them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import orjson
from pydantic import Field

from simia.config import Config
from simia.errors import Aborted, Code
from simia.formats import calls as tagged
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import LLMFault, Request, reply_key
from simia.pack import Pack
from simia.prompts import template
from simia.task import Task
from simia.trajectory import Message
from simia.users.user import Stop, View

_numbers = itertools.count()


class UserSettings(Config):
    """How the user's model is asked."""

    stop: str = Field("###STOP###", min_length=3, description="What the user says at the end.")
    temperature: float | None = Field(1.0, ge=0, description="Sampling temperature; None leaves it to the endpoint.")
    max_tokens: int | None = Field(512, ge=16, description="Longest message of the user.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Further fields of the request body.")


class LLMUser:
    """One episode's user. `name` tells its draws from those of other episodes; a stored reply is found again by it."""

    def __init__(
        self, engine: Engine, pack: Pack, task: Task, settings: UserSettings | None = None, *, name: str | None = None
    ) -> None:
        self._engine, self._pack, self._task = engine, pack, task
        self._settings = settings or UserSettings()
        self.name = name or f"{task.id}/{next(_numbers)}"
        self._turn = 0

    async def reply(self, view: View) -> Message | Stop:
        """Raises `Aborted` when the model cannot be had; a user that says nothing has failed, and says so."""
        if self._turn == 0 and not view.messages and self._task.opening:
            self._turn = 1
            return Message(role="user", content=self._task.opening)
        settings, backend = self._settings, self._engine.backend
        request = Request(
            messages=[{"role": "system", "content": self._system(view)}, *turned(view)],
            temperature=settings.temperature, max_tokens=settings.max_tokens, stop=["<tool_response>"], extra_body=dict(settings.extra),
        )  # fmt: skip
        draw = f"user/{self.name}/{self._turn}"
        self._turn += 1
        try:
            key = reply_key(backend.alias, backend.model, request, draw)
            reply = await self._engine.ask(request, item=self.name, draw=draw, key=key)
        except BudgetReached as error:
            raise Aborted(Code.BUDGET, str(error)) from None
        except LLMFault as fault:
            raise Aborted(fault.code, f"the user: {fault.detail or fault.code.meaning}") from None
        message = tagged.read_message(reply.text, f"user_{self._turn}")
        text = (message.content if isinstance(message.content, str) else None) or ""
        if message.calls and view.tools:
            return Message(role="user", calls=message.calls)
        if settings.stop in text:
            return Stop(Code.USER_STOP, text.replace(settings.stop, "").strip())
        if not text.strip():
            return Stop(Code.USER_FAILED)
        return Message(role="user", content=text.strip())

    def _system(self, view: View) -> str:
        path = self._pack.path_of("instructions")
        profile = self._task.profile
        return (
            template("user/system.j2")[0]
            .render(
                task=self._task.instruction or self._task.opening or "",
                profile=profile if isinstance(profile, str) or profile is None else orjson.dumps(profile).decode(),
                stop=self._settings.stop,
                instructions=path.read_text(encoding="utf-8").strip() if path else "",
                tools=[orjson.dumps(tool.flat()).decode() for tool in view.tools],
            )
            .strip()
        )

    def fork(self) -> LLMUser:
        made = copy.copy(self)
        made.name = f"{self.name}+{next(_numbers)}"
        return made


def turned(view: View) -> list[dict[str, Any]]:
    """The conversation from the user's side: what the assistant said is what is heard, and its own words are the model's."""
    found: list[dict[str, Any]] = []
    results: list[str] = []

    def heard(text: str) -> None:
        if found and found[-1]["role"] == "user":
            found[-1]["content"] += f"\n\n{text}"
        else:
            found.append({"role": "user", "content": text})

    for message in view.messages:
        if message.role == "tool":
            results.append(message.text)
            continue
        if results:
            heard(tagged.join_results(results))
            results = []
        if message.role == "assistant":
            heard(message.text)
        else:
            found.append(
                {"role": "assistant", "content": tagged.write_tagged(message.text or None, message.calls) or ""}
            )
    if results:
        heard(tagged.join_results(results))
    if not found or found[0]["role"] != "user":
        found.insert(0, {"role": "user", "content": "(The assistant is ready. Begin.)"})
    return found
