"""`apigen`: ShareGPT rows as APIGen-MT and LLaMA-Factory write them, with separate turns for calls and results.

A `function_call` turn holds a call as a JSON object, or parallel calls as a list; each result is an `observation` turn.
Reasoning is a `<think>` block at the start of the turn; text of a message with calls is a `gpt` turn right before them.
Variants of published data are read too: a system turn, `tool` and `user`/`assistant` roles, tools as text or list, flat or
nested, consecutive calls, results joined in one turn, and text with `<tool_call>` tags in a `function_call` turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simia.errors import Code
from simia.formats import row_tools, tagged_calls
from simia.formats.dialect import RowError, dump_json, read_optional_text
from simia.formats.llamafactory import LLAMA3_RESULT_JOINT, RESULT_JOINT
from simia.formats.turn_dialect import HeadHabit, RowHead, RowShape, Turn, TurnDialect, find_roles
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall

SHAPE = RowShape(
    rows="conversations",
    role="from",
    text="value",
    roles={
        "human": "user",
        "gpt": "assistant",
        "function_call": "calls",
        "observation": "tool",
        "system": "system",
        "tool": "tool",
        "user": "user",
        "assistant": "assistant",
        "tool_call": "calls",
        "tool_response": "tool",
    },
)
JOINTS = (RESULT_JOINT, LLAMA3_RESULT_JOINT)  # LLaMA-Factory's, between the results of parallel calls in one turn
NAMES = {"user": "human", "assistant": "gpt", "tool": "observation", "system": "system"}


class ApigenDialect(TurnDialect):
    """APIGen-MT / ShareGPT rows."""

    name = "apigen"
    shape = SHAPE
    head_fields = ("system", "tools")
    tools_text, tools_nested = True, False

    def sniff(self, row: Mapping[str, Any]) -> bool:
        found = find_roles(row, SHAPE)
        return found is not None and (
            bool(found & {"function_call", "observation"}) or not tagged_calls.holds_tags(row)
        )

    def read_head(self, head: RowHead) -> tuple[str | None, list[ToolSpec]]:
        system = read_optional_text(head.turns[0], "value") if head.turns else read_optional_text(head.fields, "system")
        return system, row_tools.read_tools(head.fields.get("tools"))

    def habit(self, head: RowHead) -> HeadHabit:
        turn = {key: value for key, value in head.turns[0].items() if key != "value"} if head.turns else None
        return super().habit(head).model_copy(update={"turn": turn})

    def write_head(self, system: str | None, specs: list[ToolSpec], habit: HeadHabit) -> RowHead:
        head = super().write_head(system, specs, habit)
        if system is None or habit.turn is not None:
            return head
        return RowHead([], {"system": system, **head.fields})

    def continues(self, before: Turn, turn: Turn) -> bool:
        kinds = self.kind(before), self.kind(turn)
        return kinds in (("calls", "calls"), ("tool", "tool"), ("assistant", "calls"))

    def read_group(self, turns: list[Turn]) -> list[Message]:
        kind = self.kind(turns[-1])
        if kind == "tool":
            return [message for turn in turns for message in self.read_results(turn, split_joined_results)]
        if kind == "calls":
            return [self.read_calls(turns)]
        return [self.read_text(turns[0])]

    def read_text(self, turn: Turn) -> Message:
        role: Any = self.kind(turn)
        value, extra = self.value(turn), self.read_turn_extra(turn)
        if role == "assistant" and isinstance(value, str):
            reasoning, value = tagged_calls.split_think(value)
            return Message(role=role, content=value, reasoning=reasoning, extra=extra)
        return Message(role=role, content=value, extra=extra)

    def read_calls(self, turns: list[Turn]) -> Message:
        """Read one message from a text turn (if any) and the call turns that follow it."""
        message = Message(role="assistant")
        if self.kind(turns[0]) == "assistant":
            message, turns = self.read_text(turns[0]), turns[1:]
        for turn in turns:
            reasoning, text, found = read_call_turn(turn.get("value"))
            message.reasoning = join_texts(message.reasoning, reasoning)
            if text is not None and not isinstance(message.content, list):
                message.content = join_texts(message.content, text)
            message.calls += found
            message.extra |= self.read_turn_extra(turn)
        return message

    def write_group(self, messages: list[Message]) -> list[Turn]:
        return [turn for message in messages for turn in self.write_message(message)]

    def write_message(self, m: Message) -> list[Turn]:
        said = m.content
        if m.reasoning is not None and (m.content is not None or not m.calls):
            said = tagged_calls.join_think(m.reasoning, None if m.content is None else m.text)
        if not m.calls:
            return [self.turn(NAMES[m.role], said, m.extra)]
        written = [tagged_calls.write_call(call) for call in m.calls]
        value = dump_json(written[0] if len(written) == 1 else written)
        if m.content is None:
            return [self.turn("function_call", tagged_calls.join_think(m.reasoning, value), m.extra)]
        return [self.turn("gpt", said), self.turn("function_call", value, m.extra)]


def split_joined_results(text: str) -> list[str] | None:
    """Split the results of a turn: between tags, or joined as LLaMA-Factory joins them; None for a single result."""
    found = tagged_calls.split_results(text)
    joint = next((joint for joint in JOINTS if joint in text), None)
    return text.split(joint) if found is None and joint else found


def read_call_turn(value: Any) -> tuple[str | None, str | None, list[ToolCall]]:
    """(reasoning, text, calls) of a function_call turn."""
    if isinstance(value, dict | list):
        return None, None, tagged_calls.read_calls(dump_json(value), python=True)
    if not isinstance(value, str):
        raise RowError(Code.BAD_ROW, "the turn has no call in 'value'")
    reasoning, rest = tagged_calls.split_think(value)
    if rest is not None and "<tool_call>" in rest:
        found = tagged_calls.read_calls(rest, python=True)
        if found[0].raw == rest:
            text, found = tagged_calls.read_tagged(rest, python=True)
            return reasoning, text, found
    return reasoning, None, tagged_calls.read_calls(rest or "", python=True)


def join_texts(a: str | None, b: str | None) -> str | None:
    return f"{a}\n{b}" if a is not None and b is not None else a if b is None else b
