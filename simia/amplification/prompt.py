"""Prompt design (paper §2.2): rules, tools with full parameter schemas, policy and form first, then the seed.

The static part comes first (law 7): two prompts for the same pack share everything up to the exemplar, so a prefix cache serves it.
With `shots` > 1, further seeds precede the exemplar as answered requests, the same for every item of the pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import Field

from simia.config import Config
from simia.prompts import decode_result, load_template, read_prompt
from simia.trajectory import Message, Trajectory, sort_results, write_compact_json

Form = Literal["json", "tagged"]
MOST_KEPT = 1000


class PromptSettings(Config):
    """The prompt files, and the optional parts of the prompt."""

    system: str = "amplify/system.j2"
    """Prompt file of the static part: rules, tools, policy and form of the reply."""
    request: str = "amplify/request.j2"
    """Prompt file of the part for each item: the example trajectories and the request."""
    shots: int = Field(default=1, ge=0)
    """Number of seeds in the prompt. The paper uses 1; small models need 3."""
    hints: bool = True
    """Whether to put new values (such as names, ids and dates) into each item's request, so that samples differ."""
    scenarios: bool = False
    """Whether each item gets its own plan instead of following its seed's calls. A plan has goals (calls that are rare so far are preferred),
    outcomes, the length that follows from them, a persona and an unexpected event. `plan` sets the distribution."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages for the endpoint, and the hashes of the files that they were rendered from."""

    messages: list[dict[str, Any]]
    files: dict[str, str]


class PromptRenderer:
    """Renders the prompts of a run. Parts that items share (the static part of a pack, a seed's exemplar) are rendered once."""

    def __init__(self, settings: PromptSettings, form: Form) -> None:
        self.settings, self.form = settings, form
        form_file = f"amplify/form_{form}.md"
        self._form_text, form_hash = read_prompt(form_file)
        self._system, system_hash = load_template(settings.system)
        self._request, request_hash = load_template(settings.request)
        self.files = {settings.system: system_hash, settings.request: request_hash, form_file: form_hash}
        self._static: dict[tuple[object, ...], tuple[str, Trajectory]] = {}
        self._exemplars: dict[int, tuple[str, Trajectory]] = {}

    def render(
        self,
        seed: Trajectory,
        *,
        fixed: Sequence[Trajectory] = (),
        hint: str = "",
        rules: str = "",
        targeted: bool = False,
        planned: int | None = None,
    ) -> Prompt:
        """Render the prompt for one item. `fixed`: the seeds that every item of this pack shows before its own; `rules`: the rules of its suite;
        `targeted`: the hint names the subject of the conversation, which replaces the seed's tools and length; `planned`: the number of messages
        of a plan, whose calls the hint names."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.static(seed, rules)}]
        shown = [other for other in fixed if other is not seed][: max(0, self.settings.shots - 1)]
        for other in shown:
            messages.append(self._ask_for(other, exemplar=None, hint="", targeted=False, planned=None))
            messages.append({"role": "assistant", "content": self.exemplar(other)})
        own = self.exemplar(seed) if self.settings.shots else None
        messages.append(self._ask_for(seed, exemplar=own, hint=hint, targeted=targeted, planned=planned))
        return Prompt(messages, self.files)

    def _ask_for(self, seed: Trajectory, *, planned: int | None, **values: Any) -> dict[str, Any]:
        used = list(dict.fromkeys(call.name for _, _, call in seed.calls())) if planned is None else []
        tools = [write_compact_json(tool.flat()) for tool in seed.tools if tool.name in used]
        text = self._request.render(
            messages=planned or len(seed.messages), tools_used=used, tools=tools, planned=planned is not None, **values
        )
        return {"role": "user", "content": text}

    def static(self, seed: Trajectory, rules: str = "") -> str:
        """Render the system message: the same text object for all items with these tools and this policy."""
        key = (seed.system, rules, *(id(tool) for tool in seed.tools))
        if key not in self._static:
            if len(self._static) >= MOST_KEPT:
                self._static.clear()
            tools = [write_compact_json(tool.flat()) for tool in seed.tools]
            text = self._system.render(tools=tools, policy=seed.system, form=self._form_text, rules=rules)
            self._static[key] = (text, seed)  # the seed keeps its tools alive, so that their ids stay theirs
        return self._static[key][0]

    def exemplar(self, seed: Trajectory) -> str:
        text, _ = self._exemplars.get(id(seed)) or (render_exemplar(seed, self.form), seed)
        if len(self._exemplars) < MOST_KEPT:
            self._exemplars[id(seed)] = (text, seed)
        return text


def render_exemplar(seed: Trajectory, form: Form) -> str:
    """Write a seed in the form that the reply must have."""
    turns = [message for message in sort_results(seed.messages) if message.role != "system"]
    if form == "json":
        return orjson.dumps({"messages": [to_json_turn(turn) for turn in turns]}).decode()
    return "\n".join(to_tagged_turn(turn) for turn in turns)


def to_json_turn(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "content": decode_result(message.text)}
    turn: dict[str, Any] = {"role": message.role}
    if message.reasoning:
        turn["reasoning"] = message.reasoning
    if message.text or not message.calls:
        turn["content"] = message.text
    if message.calls:
        turn["calls"] = [{"name": call.name, "arguments": call.arguments} for call in message.calls]
    return turn


def to_tagged_turn(message: Message) -> str:
    lines = [f"<think>{message.reasoning}</think>"] if message.reasoning else []
    if message.text:
        lines.append(message.text)
    for call in message.calls:
        body = orjson.dumps({"name": call.name, "arguments": call.arguments}).decode()
        lines.append(f"<tool_call>{body}</tool_call>")
    return "\n".join([f"<{message.role}>", *lines, f"</{message.role}>"])
