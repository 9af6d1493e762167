"""Turn by turn: a conversation from many small constrained replies, for a model too small to write one whole.

Three sides with a prompt each. The user knows what it wants and sees no tools; the assistant sees policy, tools and what was
said; the side behind the tools sees their schemas, the exemplars' results and every earlier result. All three are shown
the exemplars as finished conversations before their own, so the front of a prompt stays and only its end grows (law 7).
What a call says and the exemplar's result repeats, the new result must repeat: the schema holds it there.
Given the replies, the outcome is always the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Literal

import orjson
from pydantic import Field

from simia.amplification.reply_schema import Shape, call_schema
from simia.amplification.turnwise_view import (
    VALUES,
    Chat,
    answers,
    as_turns,
    assistant_view,
    echoing,
    said,
    tool_view,
    user_view,
    values,
)
from simia.config import Config
from simia.errors import Code, Issue
from simia.formats.reply.assemble import Reading, Turn, Unreadable, assemble, tool_turn
from simia.formats.reply.json_repair import ReadCall, RepairError, loads, read_call
from simia.formats.reply.parse import Parsed
from simia.json_schema import TEXT, strict
from simia.llm.types import Reply, Request
from simia.prompts import template
from simia.trajectory import Message, Trajectory, compact

Ask = Callable[[Request, str], Awaitable[Reply]]
"""(request, the draw's suffix) → reply."""
Sampling = Callable[[list[dict[str, Any]], dict[str, Any] | None, int], Request]
"""(messages, response_format, most tokens of the reply) → request. It may leave the format out."""


class TurnwiseSettings(Config):
    """How a conversation is played turn by turn."""

    user: str = "turnwise/user.md"
    """Prompt of the side that plays the user."""
    assistant: str = "turnwise/assistant.j2"
    """Prompt of the assistant."""
    tool: str = "turnwise/tool.j2"
    """Prompt of the side behind the tools."""
    shape: Shape = "seed"
    """`seed` keeps to the seed's order of turns and tools; `free` lets the sides decide."""
    offer: Literal["seed", "all"] = "seed"
    """Tools that the assistant is shown: those that the seed calls, or all of them."""
    max_turns: int = Field(default=24, ge=4)
    """Most messages of a conversation; the assistant answers in words when the end is near."""
    max_parallel: int = Field(default=3, ge=1)
    """Most calls in one turn of the assistant, where the seed does not say."""
    max_rounds: int = Field(default=4, ge=1)
    """Most turns of calls in a row."""
    user_tokens: int = Field(default=200, ge=1)
    """Longest message of the user."""
    assistant_tokens: int = Field(default=400, ge=1)
    """Longest turn of the assistant."""
    tool_tokens: int = Field(default=800, ge=1)
    """Longest result."""


class Failed(Exception):  # noqa: N818 - a finding on a reply, not a fault of the program
    def __init__(self, issue: Issue) -> None:
        super().__init__(str(issue))
        self.issue = issue


async def converse(
    seed: Trajectory,
    hint: str,
    settings: TurnwiseSettings,
    sampling: Sampling,
    ask: Ask,
    *,
    shots: Sequence[Trajectory] = (),
    tools: Sequence[str] = (),
) -> Parsed:
    """One conversation after the seed. `hint` is for the user's side: fresh values, a persona, nothing of tools; `shots`:
    further exemplars, shown first; `tools`: names that are offered besides the seed's."""
    play = Play(seed, hint, settings, sampling, ask, shots, tools)
    try:
        await play.run()
        messages, issues = assemble(play.reading)
    except Failed as failed:
        return Parsed(issues=[failed.issue], repairs=list(play.reading.repairs))
    except Unreadable as error:
        return Parsed(issues=[Issue(code=Code.UNPARSABLE, detail=str(error))], repairs=list(play.reading.repairs))
    return Parsed(messages, issues, list(play.reading.repairs))


def files(settings: TurnwiseSettings) -> dict[str, str]:
    """The prompt files with their hashes."""
    return {name: template(name)[1] for name in (settings.user, settings.assistant, settings.tool)}


class Play:
    """One conversation in the making."""

    def __init__(
        self,
        seed: Trajectory,
        hint: str,
        settings: TurnwiseSettings,
        sampling: Sampling,
        ask: Ask,
        shots: Sequence[Trajectory],
        tools: Sequence[str],
    ) -> None:
        self.settings, self.hint = settings, prompted(hint, seed)
        self.sampling, self.ask, self.draws = sampling, ask, count()
        self.reading = Reading()
        self.turns = self.reading.turns
        self.exemplars = [*(shot for shot in shots if shot is not seed), seed]
        self.script = [message for message in seed.messages if message.role != "system"]
        wanted = {call.name for shot in self.exemplars for _, _, call in shot.calls()} | set(tools)
        self.offered = [tool for tool in seed.tools if settings.offer == "all" or tool.name in wanted]
        shown = {"tools": [compact(tool.flat()) for tool in self.offered], "policy": seed.system}
        self.heads = {
            side: [{"role": "system", "content": template(name)[0].render(shown).strip()}]
            for side, name in (("user", settings.user), ("assistant", settings.assistant), ("tool", settings.tool))
        }
        for shot in self.exemplars:
            told = [message for message in shot.messages if message.role != "system"]
            turns = [*as_turns(told)]
            self.heads["user"] += [*user_view(turns, values(shot)), said({"done": True})]
            self.heads["assistant"] += assistant_view(turns)
            self.heads["tool"] += tool_view(turns)

    @property
    def following(self) -> Message | None:
        """The seed's message at this place, where the seed is followed."""
        at = len(self.turns)
        return self.script[at] if self.settings.shape == "seed" and at < len(self.script) else None

    @property
    def room(self) -> int:
        return self.settings.max_turns - len(self.turns)

    async def run(self) -> None:
        rounds = 0
        await self.user(may_stop=False)
        while True:
            turn = await self.assistant(may_call=self.room > 2 and rounds < self.settings.max_rounds)
            rounds += 1
            for call in turn.calls:
                await self.result(call)
            if not turn.calls:
                rounds = 0
                if not await self.goes_on():
                    return

    async def goes_on(self) -> bool:
        """The user speaks again, if there is room and something to say."""
        if self.room < 2:
            return False
        if self.settings.shape == "seed":
            return self.following is not None and await self.user(may_stop=False)
        asked = (self.turns[-1].text or "").rstrip().endswith("?")
        spoken, planned = (sum(turn.role == "user" for turn in turns) for turns in (self.turns, self.script))
        return (spoken < planned or asked) and await self.user(may_stop=True)

    async def user(self, *, may_stop: bool) -> bool:
        """False: the user has nothing more to say."""
        speak = strict({"text": TEXT})
        schema = {"anyOf": [speak, strict({"done": {"const": True}})]} if may_stop else speak
        chat = self.heads["user"] + user_view(self.turns, self.hint)
        read = await self.read(chat, schema, self.settings.user_tokens, "user")
        if may_stop and isinstance(read, dict) and read.get("done") is True:
            return False
        self.turns.append(Turn("user", self.words(read)))
        return True

    async def assistant(self, *, may_call: bool) -> Turn:
        schema = self.assistant_schema(may_call=may_call)
        chat = self.heads["assistant"] + assistant_view(self.turns)
        read = await self.read(chat, schema, self.settings.assistant_tokens, "assistant")
        if isinstance(read, dict) and read.get("calls") and may_call:
            turn = Turn("assistant", calls=self.calls(read["calls"]))
        else:
            turn = Turn("assistant", self.words(read))
        self.turns.append(turn)
        return turn

    def assistant_schema(self, *, may_call: bool) -> dict[str, Any]:
        text, model = strict({"text": TEXT}), self.following
        by_name = {tool.name: tool for tool in self.offered}
        if not may_call or not self.offered or (model is not None and not model.calls):
            return text
        if model is not None:
            named = [call_schema(by_name[call.name]) for call in model.calls if call.name in by_name]
            if named:
                return strict({"calls": exactly(named)})
        most = min(self.settings.max_parallel, self.room - 2)
        calls = {"type": "array", "items": {"anyOf": [call_schema(tool) for tool in self.offered]}}
        return {"anyOf": [strict({"calls": calls | {"minItems": 1, "maxItems": most}}), text]}

    async def result(self, call: ReadCall) -> None:
        chat = [*self.heads["tool"], *tool_view(self.turns, upto=call)]
        read = await self.read(chat, self.result_schema(call), self.settings.tool_tokens, "tool")
        self.turns.append(tool_turn(read, name=call.name))

    def result_schema(self, call: ReadCall) -> dict[str, Any]:
        """One of the forms that exemplars show for this tool."""
        forms: dict[bytes, dict[str, Any]] = {}
        model = self.following
        for shot in self.exemplars:
            for made, answer in answers(shot):
                if made.name == call.name and (model is None or model.role != "tool" or answer is model):
                    form = echoing(answer.text, made.arguments or {}, call.arguments or {})
                    forms[orjson.dumps(form, option=orjson.OPT_SORT_KEYS)] = form
        if not forms:
            return {"type": "object"}
        return next(iter(forms.values())) if len(forms) == 1 else {"anyOf": list(forms.values())}

    async def read(self, chat: Chat, schema: dict[str, Any], most: int, name: str) -> Any:
        """The JSON value of one reply; plain words where a side that may speak was not held to JSON."""
        draw = f"t{next(self.draws)}"
        wanted = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        reply = await self.ask(self.sampling(chat, wanted, most), draw)
        text = reply.text.strip("\ufeff \t\n")
        if reply.finish == "content_filter":
            raise Failed(Issue(code=Code.CONTENT_FILTER, where=draw))
        if reply.truncated:
            raise Failed(Issue(code=Code.TRUNCATED, where=draw, detail=f"a turn of the {name} is longer than {most}"))
        if not text:
            raise Failed(Issue(code=Code.EMPTY_REPLY, where=draw))
        if name != "tool" and text[0] not in '{[`"':
            self.reading.repairs["plain_words"] = None
            return text
        try:
            value, repairs = loads(text)
        except RepairError as error:
            raise Failed(Issue(code=Code.UNPARSABLE, where=draw, detail=error.detail)) from None
        self.reading.repairs.update(dict.fromkeys(repairs))
        return value

    def words(self, read: Any) -> str:
        """What a side said. An empty turn is kept: the checks name it."""
        text = read.get("text") if isinstance(read, dict) else read
        if not isinstance(text, str):
            raise Failed(
                Issue(code=Code.UNPARSABLE, where=f"messages[{len(self.turns)}]", detail="no words in the reply")
            )
        return text.strip()

    def calls(self, read: Any) -> list[ReadCall]:
        try:
            pairs = [read_call(value) for value in (read if isinstance(read, list) else [read])]
        except RepairError as error:
            where = f"messages[{len(self.turns)}]"
            raise Failed(Issue(code=Code.UNPARSABLE, where=where, detail=error.detail)) from None
        for _, repairs in pairs:
            self.reading.repairs.update(dict.fromkeys(repairs))
        return [call for call, _ in pairs]


def prompted(hint: str, seed: Trajectory) -> str:
    """A hint that gives no values leaves a small model nothing to ask for (it babbled): then the seed's wish stands in."""
    if VALUES in hint:
        return hint
    opening = next((message.text for message in seed.messages if message.role == "user"), "")
    return f"{hint} Another person with a wish like this one: {opening}".strip()


def exactly(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
