"""Token in, token out: an episode as ids, and the conversion between messages and ids. Shared by all trainers.

Sampled ids are trained on as they are and never tokenised again. The environment's messages between them are rendered separately, after a
placeholder for the policy's turn, and have mask 0. This module imports no trainer; the caller passes a tokenizer.

`open_row` and `act` run in an event loop that a thousand episodes may share, so openings are cached (`openings.py`) and long texts are
tokenised in a thread.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from simia.envs.environment import Episode
from simia.errors import Code, UserError
from simia.formats import codegym, tagged_calls
from simia.reward import Reward
from simia.tool import ToolSpec
from simia.trainers.openings import OpeningCache
from simia.trajectory import Message

MARK = "simia_stand_in"  # placeholder of the policy's turn while a template renders what follows it
ASKED = 'set one that asks for <tool_call>{"name": …, "arguments": {…}}</tool_call>, as those of Qwen2.5 and Qwen3 do'
QUICK = 4096  # most characters to tokenise in the event loop (below a millisecond); more in a thread
CallForm = Literal["template", "codegym"]
Heard = Callable[[Sequence[Message]], Sequence[Message]]


@dataclass(slots=True)
class TokenRow:
    """One episode as ids. `pending`: the environment's ids since the policy's last turn. They join the completion with the policy's next
    turn, so that a completion always ends with sampled ids."""

    episode: Episode
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    turns: int = 0
    turn_ends: list[int] = field(default_factory=list)
    """Index of each turn's last sampled id in the completion."""

    @property
    def context(self) -> list[int]:
        return [*self.prompt_ids, *self.completion_ids, *self.pending]

    def take(self, ids: list[int], logprobs: list[float]) -> None:
        self.completion_ids += [*self.pending, *ids]
        self.mask += [0] * len(self.pending) + [1] * len(ids)
        self.logprobs += [0.0] * len(self.pending) + logprobs
        self.pending = []
        self.turns += 1
        self.turn_ends.append(max(0, len(self.completion_ids) - 1))

    @property
    def reward(self) -> float | None:
        """The outcome plus the rewards of single turns. None if the episode must neither be trained on nor count in its group: it was
        aborted, could not be judged, or ended before the policy spoke."""
        return self._scored.total if self._scored is not None else None

    @property
    def outcome(self) -> float | None:
        """The reward without those of single turns, for reports of validations; None if `reward` is None."""
        return self._scored.value if self._scored is not None else None

    @property
    def _scored(self) -> Reward | None:
        end, reward = self.episode.end, self.episode.reward
        return None if end is None or end.kind == "aborted" or not self.turns else reward

    @property
    def step_rewards(self) -> dict[int, float]:
        """Index in the completion → reward of the turn that ends there; empty without rewards of single turns."""
        return place_steps(self._scored.steps if self._scored is not None else [], self.turn_ends)


def place_steps(steps: Sequence[float], ends: Sequence[int]) -> dict[int, float]:
    """Return index → sum of the rewards of the turns that end there."""
    placed: dict[int, float] = {}
    for reward, end in zip(steps, ends, strict=False):
        if reward:
            placed[end] = placed.get(end, 0.0) + reward
    return placed


class ChatText:
    """Converts between messages and ids by the tokenizer's chat template. The policy's calls are parsed as Hermes or as CodeGym text."""

    def __init__(
        self,
        tokenizer: Any,
        end_ids: Sequence[int] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        calls: CallForm = "template",
    ) -> None:
        """`end_ids`: ids that end generation (None: the tokenizer's end token); `template_kwargs`: arguments of the chat template.
        `calls`: tools and calls in the form of the template, which must be that of Hermes, or in that of `simia.formats.codegym`."""
        self._codegym = calls == "codegym"
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        self.end_ids: list[int] = [int(tokenizer.eos_token_id)] if end_ids is None else list(end_ids)
        self._ends = [tokenizer.decode([i]) for i in self.end_ids]
        self._thinks: bool | None = None
        self._checked: set[tuple[str, ...]] = set()
        self._one_at_a_time = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simia-tokens")  # starts with its first text
        self._openings = OpeningCache(self._ids, self._ends)

    async def open_row(self, episode: Episode) -> TokenRow:
        """Make the row of a new episode as `begin` does; an opening that is not cached yet is rendered in a thread."""
        view = episode.view
        ids = self._openings.find(view.system, view.messages, view.tools)
        if ids is None:
            loop = asyncio.get_running_loop()
            ids = await loop.run_in_executor(self._thread, self.opening, view.system, view.messages, view.tools)
        return TokenRow(episode, ids)

    def begin(self, episode: Episode) -> TokenRow:
        """Make the row of a new episode, with its opening as the prompt. Raises `UserError` as `opening` does."""
        view = episode.view
        return TokenRow(episode, self.opening(view.system, view.messages, view.tools))

    def opening(self, system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Render system text, tools and the user's first message, up to where the policy begins.

        Raises `UserError` for a template that does not describe the tools, or asks for calls in a form that cannot be parsed here.
        """
        known = self._openings.find(system, messages, tools)
        return known if known is not None else self._openings.make(self._render_opening, system, messages, tools)

    def _render_opening(self, system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        if self._codegym:
            system, tools = codegym.join_functions(system, tools), ()
        rows = [{"role": "system", "content": system}] if system else []
        rows += [self._row(m) for m in messages]
        specs = [{"type": "function", "function": tool.flat()} for tool in tools]
        try:
            text = self._render(rows, tools=specs or None)
        except Exception as error:  # a template may raise anything
            raise UserError(f"the chat template cannot render the opening messages ({error}): {ASKED}") from None
        names = tuple(tool.name for tool in tools)
        if names and names not in self._checked:
            self._check(text, names)
            self._checked.add(names)
        return text

    async def act(
        self, row: TokenRow, ids: list[int], logprobs: Sequence[float] | None = None, heard: Heard = list
    ) -> Sequence[Message]:
        """Step the episode with one sampled reply, end token included. The ids of the answer become `pending` in the row.

        A reply without an end token was cut: it ends the episode, which is scored. `heard` shortens the answer for the policy.
        """
        row.take(ids, list(logprobs) if logprobs is not None else [0.0] * len(ids))
        message = self.read(ids, row.turns, row.episode.view.all_tools)
        if not ids or ids[-1] not in self.end_ids:
            await row.episode.stop(Code.MAX_TOKENS, message=message)
            return ()
        step = await row.episode.step(message)
        if step.end is None:
            row.pending = await self._find_ids(self._render_following(heard(step.messages)))
        return step.messages

    def between(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids between two turns of the policy: from the end of one turn, over these messages, to the start of the next."""
        return self._ids(self._render_following(messages))

    def _render_following(self, messages: Sequence[Message]) -> str:
        """Render the text between two turns of the policy.

        A template renders whole conversations and may change earlier turns. So this renders a short conversation, with a placeholder
        for the policy's turn, and returns the text after the end of that turn.
        """
        if self._codegym:
            messages = join_result_turns(messages)
        results = [m for m in messages if m.role == "tool"]
        stand_in: dict[str, Any] = {"role": "assistant", "content": "" if results else MARK}
        if results:
            called = {"name": MARK, "arguments": dict[str, Any]()}
            stand_in["tool_calls"] = [{"id": m.call_id, "type": "function", "function": called} for m in results]
        rows = [{"role": "user", "content": "-"}, stand_in, *(self._row(m) for m in messages)]
        pieces = self._render(rows).split(MARK)
        if len(pieces) != 1 + (len(results) or 1):
            raise UserError(f"the chat template leaves out {'calls' if results else 'turns'} of the assistant: {ASKED}")
        behind = pieces[-1]
        places = [(behind.index(end), end) for end in self._ends if end in behind]
        if not places:
            raise UserError(
                f"the chat template does not end a turn with a token at which generation stops ({', '.join(self._ends)}): "
                "set the tokenizer's eos_token to the template's end of turn"
            )
        at, end = min(places)
        return behind[at + len(end) :]

    def read(self, ids: list[int], turn: int, tools: Sequence[ToolSpec] = ()) -> Message:
        """Parse the policy's message. A malformed call is kept as a call, and the environment answers it with an error."""
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if self._thinks is None:  # some templates open the reasoning themselves, and the policy only closes it
            self._thinks = self._render([{"role": "user", "content": "-"}]).rstrip().endswith("<think>")
        text = f"<think>\n{text}" if self._thinks else text
        if self._codegym:
            return codegym.read_marked_message(text, f"call_{turn}")
        return tagged_calls.read_message(text, f"call_{turn}", {tool.name: tool.parameters for tool in tools})

    def _check(self, opening: str, tools: Iterable[str]) -> None:
        """Raise `UserError` if the template lists no tools, asks for calls in another form, or cannot render an answer."""
        if missing := next((name for name in tools if name not in opening), None):
            raise UserError(f"the chat template does not show the policy its tools ({missing}): {ASKED}")
        if "<tool_call>" not in opening:
            raise UserError(f"the chat template asks for calls in another form: {ASKED}")
        result = Message(role="tool", content="{}", name="tool", call_id="call_0")
        for answers in ([Message(role="user", content="-")], [result], [result, result]):
            try:
                self.between(answers)
            except UserError:
                raise
            except Exception as error:  # as above
                raise UserError(
                    f"the chat template cannot render a user message or tool results ({error}): {ASKED}"
                ) from None

    def _row(self, m: Message) -> dict[str, Any]:
        row: dict[str, Any] = {"role": m.role, "content": m.text}
        return {**row, "name": m.name, "tool_call_id": m.call_id} if m.role == "tool" else row

    def _render(self, rows: list[dict[str, Any]], tools: Any = None) -> str:
        template = self._tokenizer.apply_chat_template
        return str(template(rows, tools=tools, add_generation_prompt=True, tokenize=False, **self._kwargs))

    async def _find_ids(self, text: str) -> list[int]:
        """Tokenise without blocking the event loop, also while the thread uses the tokenizer."""
        if len(text) <= QUICK and not self._one_at_a_time.locked():
            return self._ids(text)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ids, text)

    def _ids(self, text: str) -> list[int]:
        with self._one_at_a_time:  # a fast tokenizer raises an error if two threads use it
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def join_result_turns(messages: Sequence[Message]) -> list[Message]:
    """Join consecutive results into one user turn, between tags, for CodeGym's dialect."""
    found: list[Message] = []
    for are_results, some in itertools.groupby(messages, key=lambda m: m.role == "tool"):
        group = list(some)
        texts = [m.text for m in group]
        found += [Message(role="user", content=tagged_calls.join_results(texts))] if are_results else group
    return found


def cut_after_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return one reply up to and including its first end token, without the padding after it."""
    length = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:length])


def find_end_ids(tokenizer: Any) -> list[int]:
    """Return the ids that end generation: the tokenizer's end token, and those of the checkpoint's generation config."""
    from transformers import GenerationConfig  # type: ignore[import-not-found,unused-ignore]

    found = [int(tokenizer.eos_token_id)]
    try:
        named = GenerationConfig.from_pretrained(tokenizer.name_or_path).eos_token_id
    except (OSError, ValueError):
        return found
    for token in named if isinstance(named, list) else [named]:
        if token is not None and int(token) not in found:
            found.append(int(token))
    return found
