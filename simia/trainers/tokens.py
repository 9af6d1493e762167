"""Token in, token out: an episode as ids, and what lies between messages and ids. Shared by every trainer.

The ids that a policy sampled are trained as they are and never tokenised again; what the environment says between them is rendered
alone, behind a stand-in for the policy's turn, and has mask 0. Imports no trainer: a tokenizer comes from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.environment import Episode
from simia.errors import UserError
from simia.formats import calls as tagged
from simia.tool import ToolSpec
from simia.trajectory import Message

MARK = "simia_stand_in"  # where the policy's turn stands while a template renders what follows it


@dataclass(slots=True)
class Row:
    """One episode as ids. `pending`: the environment's tokens that the policy has not answered yet; they count when it does,
    so that a completion ends with what was sampled."""

    episode: Episode
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    turns: int = 0

    @property
    def context(self) -> list[int]:
        return [*self.prompt_ids, *self.completion_ids, *self.pending]

    def take(self, ids: list[int], logprobs: list[float]) -> None:
        self.completion_ids += [*self.pending, *ids]
        self.mask += [0] * len(self.pending) + [1] * len(ids)
        self.logprobs += [0.0] * len(self.pending) + logprobs
        self.pending = []
        self.turns += 1


class Text:
    """Between messages and ids, by the tokenizer's chat template; the policy's calls are read as Hermes text."""

    def __init__(
        self, tokenizer: Any, end_ids: Sequence[int] | None = None, template_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """`end_ids`: what generation stops at (None: the tokenizer's end token); `template_kwargs` go to the chat template."""
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        self.end_ids: list[int] = [int(tokenizer.eos_token_id)] if end_ids is None else list(end_ids)
        self._ends = [tokenizer.decode([i]) for i in self.end_ids]

    def opening(self, system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """System text, tools and the user's first words, up to where the policy begins."""
        rows = [{"role": "system", "content": system}] if system else []
        rows += [self._row(m) for m in messages]
        specs = [{"type": "function", "function": tool.flat()} for tool in tools]
        return self._ids(self._render(rows, tools=specs or None))

    def between(self, messages: Sequence[Message]) -> list[int]:
        """What follows the end of the policy's turn: these messages, up to where it begins again.

        A template renders whole conversations and may change earlier turns; so a short one is rendered, with a stand-in
        for the policy's turn, and what comes behind that one's end is taken.
        """
        results = [m for m in messages if m.role == "tool"]
        stand_in: dict[str, Any] = {"role": "assistant", "content": "" if results else MARK}
        if results:
            called = {"name": MARK, "arguments": dict[str, Any]()}
            stand_in["tool_calls"] = [{"id": m.call_id, "type": "function", "function": called} for m in results]
        rows = [{"role": "user", "content": "-"}, stand_in, *(self._row(m) for m in messages)]
        behind = self._render(rows).split(MARK, len(results) or 1)[-1]
        places = [(behind.index(end), end) for end in self._ends if end in behind]
        if not places:
            raise UserError(
                f"the chat template ends no turn with a token that generation stops at ({', '.join(self._ends)}): "
                "set the tokenizer's eos_token to the template's end of turn"
            )
        at, end = min(places)
        return self._ids(behind[at + len(end) :])

    def read(self, ids: list[int], turn: int) -> Message:
        """The message that the policy meant. A call that cannot be read stays a call: the environment answers it with an error."""
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return tagged.read_message(text, f"call_{turn}")

    def _row(self, m: Message) -> dict[str, Any]:
        row: dict[str, Any] = {"role": m.role, "content": m.text}
        return {**row, "name": m.name, "tool_call_id": m.call_id} if m.role == "tool" else row

    def _render(self, rows: list[dict[str, Any]], tools: Any = None) -> str:
        template = self._tokenizer.apply_chat_template
        return str(template(rows, tools=tools, add_generation_prompt=True, tokenize=False, **self._kwargs))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
