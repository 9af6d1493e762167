"""LLaMA-Factory's ShareGPT rows: what its `sharegpt` converter reads without dropping, cutting or re-encoding anything.

Its converter drops rows whose turns it cannot pair, crashes on others and rewrites others, mostly without a message (measured
on 0.9.5). So everything that it would not keep exactly is refused here, as an `Issue`:

- roles must alternate human|observation, gpt|function_call: one turn holds all the results of a parallel call;
- text of a message with calls is in the same function_call turn, as `text\\n<tool_call>{json}</tool_call>`, thinking as
  `<think>\\n...\\n</think>\\n\\n`: the trainer splits both with regular expressions, which hostile text could mislead.
  So every `<` in the JSON is written `\\u003c`: the trainer parses and prints the JSON again, so the tokens are the
  same, and a marker inside an argument cannot be mistaken for a real one;
- tokens like `<|im_end|>` inside any text would become real control tokens;
- `{{idx}}` in a user turn would be replaced by a number;
- if every text of a file is a bare date, its JSON reader converts them to timestamps and the run crashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simia.errors import Code, Issue
from simia.terminal import write_count
from simia.trajectory import Message, ToolCall, Trajectory

RESULT_JOINT = "\n</tool_response>\n<tool_response>\n"
"""Between the results of parallel calls: the template puts tags around the turn, as Qwen's chat template does around each result."""
LLAMA3_RESULT_JOINT = "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"
"""The same for the template `llama3`, which has no tags: each result is a message of the role `ipython`."""
CONTROL = re.compile(r"<\|[^\s|<>]{1,40}\|>")
AGENT_MARKERS = re.compile(r"</?(?:tool_call|think|tool_response)>")
RESULT_MARKERS = re.compile(r"</?tool_response>")
BARE_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T][\d:.]+(?:Z|[+-][\d:]+)?)?")


class UntrainableError(Exception):
    """This trajectory (or turn) cannot be exported without loss; `issue` says why. The exporter catches it."""

    def __init__(self, code: Code, where: str, detail: str) -> None:
        self.issue = Issue(code=code, where=where, detail=detail)
        super().__init__(str(self.issue))


@dataclass(frozen=True)
class TrainerTurn:
    """One entry of `conversations`. `place` is the index of its (first) message; `calls` how many it makes."""

    role: str
    value: str
    place: int
    calls: int = 0
    trained: bool = False

    @property
    def is_agents(self) -> bool:
        return self.role in ("gpt", "function_call")


@dataclass(frozen=True)
class TrainerConversation:
    """A trajectory in LLaMA-Factory's form: the fields that all rows made from it share, and its turns."""

    id: str
    system: str
    tools: str
    turns: tuple[TrainerTurn, ...]

    def row(self, end: int | None = None) -> dict[str, Any]:
        """The row of the first `end` turns (all of them when None). Extra columns are ignored by the trainer."""
        shown = self.turns[:end]
        return {
            "id": self.id,
            "turn": shown[-1].place,
            "system": self.system,
            "tools": self.tools,
            "conversations": [{"from": turn.role, "value": turn.value} for turn in shown],
        }


def write_row(t: Trajectory, *, reasoning: bool = False) -> dict[str, Any]:
    """Write the whole trajectory as one row, in which every assistant turn is trained on. Raises `UntrainableError`."""
    return write_whole(convert_conversation(t, reasoning=reasoning))


def write_whole(c: TrainerConversation) -> dict[str, Any]:
    """Write one row, for the trainer setting `mask_history: false`. Raises `UntrainableError` if a turn is not to be trained on."""
    if not c.turns[-1].is_agents:
        where = f"messages[{c.turns[-1].place}]"
        raise UntrainableError(Code.BAD_ENDING, where, "the row would end on a turn of the environment")
    for turn in c.turns:
        if turn.is_agents and not turn.trained:
            detail = "train: false cannot be set for one turn of a whole trajectory; export with segment=turns"
            raise UntrainableError(Code.UNEXPRESSIBLE, f"messages[{turn.place}]", detail)
    return c.row()


def list_segment_ends(c: TrainerConversation) -> list[int]:
    """Return the number of turns of each row of `segment=turns`: a row ends at each assistant turn that is to be trained on."""
    return [n for n, turn in enumerate(c.turns, start=1) if turn.trained]


def convert_conversation(t: Trajectory, *, reasoning: bool = False, joint: str = RESULT_JOINT) -> TrainerConversation:
    """Check and convert. Raises `UntrainableError` with the first issue: a part that the trainer would not keep exactly.

    `joint`: the text between the results of parallel calls, which one turn holds. Without a system text, the row's is empty and the template adds its default, as the model's chat template does at inference.
    """
    system = t.system or ""
    tools = write_json([tool.flat() for tool in t.tools], "tools") if t.tools else ""
    check_writable_text(system, "system")
    refuse_control_tokens(system, "system")
    refuse_control_tokens(tools, "tools")
    turns = pair_turns(t.messages, reasoning, joint)
    if not any(turn.trained for turn in turns):
        raise UntrainableError(Code.UNEXPRESSIBLE, "messages", "no turn to train on")
    if BARE_DATE.fullmatch(system) or all(BARE_DATE.fullmatch(turn.value) for turn in turns[:2]):
        detail = "nothing but dates: the trainer's reader would make timestamps of them"
        raise UntrainableError(Code.UNEXPRESSIBLE, "messages", detail)
    return TrainerConversation(id=t.id, system=system, tools=tools, turns=tuple(turns))


def pair_turns(messages: Sequence[Message], reasoning: bool, joint: str) -> list[TrainerTurn]:
    """Convert messages to turns in the trainer's strict alternation; messages that the agent did not see are left out."""
    seen = [(i, m) for i, m in enumerate(messages) if m.visible_to is None or "agent" in m.visible_to]
    turns: list[TrainerTurn] = []
    position = 0
    while position < len(seen):
        place, message = seen[position]
        where = f"messages[{place}]"
        position += 1
        if message.role == "tool":
            asked = messages[turns[-1].place].calls if turns and turns[-1].role == "function_call" else []
            results = [message]
            while position < len(seen) and seen[position][1].role == "tool":
                results.append(seen[position][1])
                position += 1
            turns.append(write_observation(asked, results, place, joint))
        elif message.role == "assistant":
            turns.append(write_agent_turn(message, place, reasoning))
        elif message.role == "user" and not message.calls:
            turns.append(write_user_turn(message, place))
        else:
            raise UntrainableError(Code.UNEXPRESSIBLE, where, f"a {message.role} message here has no counterpart")
        if turns[-1].is_agents != (len(turns) % 2 == 0):
            raise UntrainableError(Code.ROLE_ORDER, where, f"a {message.role} message cannot be turn {len(turns)}")
        if turns[-1].role == "human" and len(turns) > 1 and turns[-2].role == "function_call":
            raise UntrainableError(Code.UNPAIRED_CALL, where, "a call has no result")
    return turns


def write_user_turn(message: Message, place: int) -> TrainerTurn:
    where = f"messages[{place}]"
    text = take_plain_text(message, where)
    if "{{idx}}" in text:
        raise UntrainableError(Code.UNEXPRESSIBLE, where, "the trainer replaces {{idx}} in a user turn by a number")
    if RESULT_MARKERS.search(text):
        raise UntrainableError(Code.LEAK, where, "a user turn with <tool_response> reads as a tool's result")
    return TrainerTurn("human", text, place)


def write_observation(asked: Sequence[ToolCall], results: Sequence[Message], place: int, joint: str) -> TrainerTurn:
    """Write all results of one assistant turn in the order of the calls, since rows have no call ids."""
    where = f"messages[{place}]"
    if len(results) != len(asked):
        code = Code.UNPAIRED_RESULT if len(results) > len(asked) else Code.UNPAIRED_CALL
        raise UntrainableError(code, where, f"{write_count(len(asked), 'call')}, {write_count(len(results), 'result')}")
    ordered = list(results)
    if any(result.call_id is not None for result in results):
        by_id = {result.call_id: result for result in results}
        if len(by_id) != len(results) or set(by_id) != {call.id for call in asked}:
            raise UntrainableError(Code.UNPAIRED_RESULT, where, "the results' call ids are not those of the calls")
        ordered = [by_id[call.id] for call in asked]
    texts = [take_plain_text(result, where) for result in ordered]
    if any(RESULT_MARKERS.search(text) for text in texts):
        raise UntrainableError(Code.LEAK, where, "a result that holds <tool_response> reads as several results")
    return TrainerTurn("observation", joint.join(texts), place)


def write_agent_turn(message: Message, place: int, reasoning: bool) -> TrainerTurn:
    where = f"messages[{place}]"
    text = take_plain_text(message, where)
    thought = (message.reasoning or "") if reasoning else ""
    for words in (text, thought):
        refuse_control_tokens(words, where)
        if found := AGENT_MARKERS.search(words):
            raise UntrainableError(Code.LEAK, where, f"the agent's words hold the marker {found[0]}")
    head = f"<think>\n{thought}\n</think>\n\n" if thought.strip() else ""
    trained = message.train is not False
    if message.calls:
        written = write_calls(message.calls, where)
        body = f"{text}\n<tool_call>{written}</tool_call>" if text else written
        return TrainerTurn("function_call", head + body, place, len(message.calls), trained)
    if not text.strip():
        raise UntrainableError(Code.EMPTY_TURN, where, "neither text nor calls")
    return TrainerTurn("gpt", head + text, place, 0, trained)


def write_calls(calls: Sequence[ToolCall], where: str) -> str:
    """One call as an object, several as a list, with no `<` in it (see above)."""
    written = []
    for n, call in enumerate(calls):
        at = f"{where}.calls[{n}]"
        if call.arguments is None:
            raise UntrainableError(
                Code.UNPARSABLE_ARGUMENTS, at, "the trainer fails on a call without parsed arguments"
            )
        text = write_json({"name": call.name, "arguments": call.arguments}, at)
        refuse_control_tokens(text, at)
        if "</tool_call>" in text:
            detail = "a call that holds </tool_call> could not be read back from the model's output"
            raise UntrainableError(Code.LEAK, at, detail)
        written.append(text.replace("<", "\\u003c"))
    return written[0] if len(written) == 1 else f"[{', '.join(written)}]"


def take_plain_text(message: Message, where: str) -> str:
    """The text of a message, if it is nothing but text and can be written as UTF-8."""
    if isinstance(message.content, list) and any(part.get("type", "text") != "text" for part in message.content):
        raise UntrainableError(Code.UNEXPRESSIBLE, where, "a message with parts that are not text")
    text = message.text
    refuse_control_tokens(text, where)
    check_writable_text(text, where)
    return text


def write_json(value: Any, where: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise UntrainableError(Code.BAD_JSON, where, f"not JSON: {error}") from None
    check_writable_text(text, where)
    return text


def check_writable_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UntrainableError(Code.BAD_ROW, where, "half a surrogate pair cannot be written as UTF-8") from None


def refuse_control_tokens(text: str, where: str) -> None:
    if found := CONTROL.search(text):
        raise UntrainableError(Code.LEAK, where, f"{found[0]} would become a control token")
