"""A model as the user: it follows the task's instruction, ends the episode with a marker, and may have tools of its own from the pack."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

import orjson
from pydantic import Field

from simia.config import Config
from simia.envs.users.user import EpisodeView, UserStop
from simia.errors import Aborted, Code
from simia.formats import tagged_calls
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.pack import Pack
from simia.prompts import load_template
from simia.task import Task
from simia.trajectory import Message

TAG = re.compile(r"<(\s*/?\s*tool_(?:call|response))", re.I)
_numbers = itertools.count()


class UserSettings(Config):
    """Prompt and sampling settings of the model that plays the user."""

    stop: str = Field("###STOP###", min_length=3, description="Marker with which the user ends the episode.")
    temperature: float | None = Field(1.0, ge=0, description="Sampling temperature. null: the endpoint's default.")
    max_tokens: int | None = Field(
        2048,
        ge=16,
        description="Maximum number of tokens of a reply, reasoning tokens included. null: the endpoint's limit.",
    )
    again: int = Field(1, ge=0, description="Maximum number of further requests after a reply without a message.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Additional fields of the request body.")


class LLMUser:
    """One episode's user. `name` distinguishes its samples from those of other episodes, and identifies its stored replies."""

    def __init__(
        self, engine: Engine, pack: Pack, task: Task, settings: UserSettings | None = None, *, name: str | None = None
    ) -> None:
        self._engine, self._pack, self._task = engine, pack, task
        self._settings = settings or UserSettings()
        self.name = name or f"{task.id}/{next(_numbers)}"
        self.steering = ""
        """The perturbation's instruction for its next message, added to the prompt; empty: none."""
        self._turn = 0

    async def reply(self, view: EpisodeView) -> Message | UserStop:
        """Ask the model for the user's next message. Raises `Aborted`, since it is not the agent's fault, when the model fails or
        gives no readable reply in all attempts."""
        if self._turn == 0 and not view.messages and self._task.opening:
            self._turn = 1
            return Message(role="user", content=self._task.opening)
        settings, request = self._settings, self.request(view)
        first, cut = f"user/{self.name}/{self._turn}", ""
        self._turn += 1
        for attempt in range(1 + settings.again):
            reply = await self._ask(request, f"{first}+{attempt}" if attempt else first)
            if (said := self._read(reply.text, view)) is not None:
                return said
            if reply.truncated and (
                most := request.max_tokens
            ):  # its reasoning was too long, so the same limit would fail again
                cut = f": its reply was cut at {most:,} tokens, raise user_settings.max_tokens"
                request = request.model_copy(update={"max_tokens": 2 * most})
        raise Aborted(Code.USER_FAILED, f"the user said nothing that can be read{cut}")

    def request(self, view: EpisodeView) -> Request:
        """Write the request for the user's next message."""
        settings = self._settings
        return Request(
            messages=[{"role": "system", "content": self._system(view)}, *swap_roles(view)],
            temperature=settings.temperature, max_tokens=settings.max_tokens, stop=["<tool_response>"], extra_body=dict(settings.extra),
        )  # fmt: skip

    def _read(self, text: str, view: EpisodeView) -> Message | UserStop | None:
        """Parse a reply. Returns None if it has no message; reasoning does not count, nor does a call by a user without tools."""
        message = tagged_calls.read_message(text, f"user_{self._turn}")
        words = (message.content if isinstance(message.content, str) else None) or ""
        if message.calls and view.tools:
            return Message(role="user", calls=message.calls)
        if self._settings.stop in words:
            return UserStop(Code.USER_STOP, words.replace(self._settings.stop, "").strip())
        return Message(role="user", content=words.strip()) if words.strip() else None

    async def _ask(self, request: Request, draw: str) -> Reply:
        backend = self._engine.backend
        try:
            key = make_reply_key(backend.alias, backend.model, request, draw)
            return await self._engine.ask(request, item=self.name, draw=draw, key=key)
        except BudgetReached as error:
            raise Aborted(Code.BUDGET, str(error)) from None
        except LLMFault as fault:
            raise Aborted(fault.code, f"the user: {fault.detail or fault.code.meaning}") from None

    def _system(self, view: EpisodeView) -> str:
        path = self._pack.path_of("instructions")
        profile = self._task.profile
        text = (
            load_template("user/system.j2")[0]
            .render(
                task=describe_task(self._task),
                profile=profile if isinstance(profile, str) or profile is None else orjson.dumps(profile).decode(),
                stop=self._settings.stop,
                instructions=path.read_text(encoding="utf-8").strip() if path else "",
                tools=[tool.write_json() for tool in view.tools],
            )
            .strip()
        )
        return f"{text}\n\n# Your next message\n{self.steering}" if self.steering else text

    def fork(self) -> LLMUser:
        made = copy.copy(self)
        made.name = f"{self.name}+{next(_numbers)}"
        return made


def describe_task(task: Task) -> str:
    """Describe a task for the user's model: its instruction, or its goals in order, and the facts to disclose on request."""
    lines = [task.instruction or task.opening or ""]
    if task.goals:
        lines.append("Ask for these things one after the other, the next one when the one before is done:")
        lines += [f"{number}. {goal.query}" for number, goal in enumerate(task.goals, start=1)]
    if task.knows:
        lines += ["You may say:", *(f"- {fact}" for fact in task.knows)]
    if task.withheld:
        lines += ["Say only when you are asked for it:", *(f"- {each.fact}" for each in task.withheld)]
    return "\n".join(line for line in lines if line)


def disarm_tags(text: str) -> str:
    """Escape the tags of calls and results."""
    return TAG.sub(r"&lt;\1", text)


def swap_roles(view: EpisodeView) -> list[dict[str, Any]]:
    """Swap the roles: the assistant's messages become `user` rows, and the user's own become `assistant` rows.

    Results of the user's own tools have the same role as the assistant's messages, so tags in either are written `&lt;`: only the
    environment writes tags.
    """
    found: list[dict[str, Any]] = []
    results: list[str] = []

    def heard(text: str) -> None:
        if found and found[-1]["role"] == "user":
            found[-1]["content"] += f"\n\n{text}"
        else:
            found.append({"role": "user", "content": text})

    for message in view.messages:
        if message.role == "tool":
            results.append(disarm_tags(message.text))
            continue
        if results:
            heard(tagged_calls.join_results(results))
            results = []
        if message.role == "assistant":
            heard(disarm_tags(message.text))
        else:
            found.append(
                {"role": "assistant", "content": tagged_calls.write_tagged(message.text or None, message.calls) or ""}
            )
    if results:
        heard(tagged_calls.join_results(results))
    if not found or found[0]["role"] != "user":
        found.insert(0, {"role": "user", "content": "(The assistant is ready. Begin.)"})
    return found
