"""`hermes`: tools, calls, results and reasoning as tagged text, as in the prompts of Qwen's and Hermes' chat templates.

`<tools>` is in the system turn, `<tool_call>` and `<think>` in assistant text, `<tool_response>` in tool or user turns.
The canonical form is exactly that of Qwen2.5's template, with results of parallel calls in one turn. Both containers are
read and written back: ShareGPT's `conversations` and chat `messages`. If other words surround the tools in a system text
(as in NousResearch's), these words become the system text, without the tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from simia.errors import Code
from simia.formats import row_tools, tagged_calls
from simia.formats.dialect import RowError, dump_json, find_fault, read_memory, read_optional_text, take_carried
from simia.formats.llamafactory_v1 import holds_values
from simia.formats.turn_dialect import HeadHabit, RowHead, RowShape, Turn, TurnDialect, find_roles
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

SHAREGPT = RowShape(
    rows="conversations",
    role="from",
    text="value",
    roles={
        "system": "system",
        "human": "user",
        "gpt": "assistant",
        "tool": "tool",
        "user": "user",
        "assistant": "assistant",
    },
)
CHAT = RowShape(
    rows="messages",
    role="role",
    text="content",
    roles={"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"},
)
INTRO = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
OUTRO = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
BETWEEN = re.compile(r"[\s,]*")


class HermesDialect:
    """Hermes text in either container; new rows are ShareGPT."""

    name = "hermes"

    def __init__(self) -> None:
        self.sharegpt, self.chat = HermesContainer(SHAREGPT), HermesContainer(CHAT)

    def sniff(self, row: Mapping[str, Any]) -> bool:
        dialect = self.of(row)
        found = find_roles(row, dialect.shape)
        if found is None or not found <= dialect.shape.roles.keys() or tagged_calls.holds_marks(row):
            return False
        turns = row[dialect.shape.rows]
        return not any("tool_calls" in turn or holds_values(turn.get(dialect.shape.text)) for turn in turns)

    def read(self, row: Mapping[str, Any]) -> Trajectory:
        return self.of(row).read(row)

    def write(self, t: Trajectory) -> dict[str, Any]:
        chat = read_memory(t.extra, self.name).get("container") == CHAT.rows
        return (self.chat if chat else self.sharegpt).write(t)

    def of(self, row: Mapping[str, Any]) -> HermesContainer:
        return self.chat if CHAT.rows in row and SHAREGPT.rows not in row else self.sharegpt


class HermesContainer(TurnDialect):
    """Hermes text in one container."""

    name = "hermes"

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape
        self.mark = {"container": shape.rows} if shape is CHAT else {}
        self.names = {role: name for name, role in reversed(list(shape.roles.items()))}

    def read_head(self, head: RowHead) -> tuple[str | None, list[ToolSpec]]:
        system = read_optional_text(head.turns[0], self.shape.text) if head.turns else None
        column = row_tools.read_tools(head.fields.get("tools"))
        if system is None:
            return None, column
        system, listed = self.split_head(system)
        return system, column if listed is None else listed

    def habit(self, head: RowHead) -> HeadHabit:
        habit = super().habit(head)
        return habit.model_copy(update={"column": None if habit.nested is None else True})

    def write_head(self, system: str | None, specs: list[ToolSpec], habit: HeadHabit) -> RowHead:
        return super().write_head(self.join_head(system, specs), specs if habit.column else [], habit)

    def continues(self, before: Turn, turn: Turn) -> bool:
        return self.answers(before) and self.answers(turn)

    def answers(self, turn: Turn) -> bool:
        value, kind = turn.get(self.shape.text), self.kind(turn)
        return kind == "tool" or (kind == "user" and isinstance(value, str) and tagged_calls.is_results(value))

    def read_group(self, turns: list[Turn]) -> list[Message]:
        if self.answers(turns[0]):
            return [message for turn in turns for message in self.read_results(turn, tagged_calls.split_results)]
        turn = turns[0]
        role: Any = self.kind(turn)
        value, extra = self.value(turn), self.read_turn_extra(turn)
        if role != "assistant" or not isinstance(value, str):
            return [Message(role=role, content=value, extra=extra)]
        reasoning, rest = tagged_calls.split_think(value)
        text, found = self.read_text(rest) if rest is not None else (None, [])
        return [Message(role=role, content=text, reasoning=reasoning, calls=found, extra=extra)]

    def span(self, messages: list[Message], at: int) -> int:
        """Results in a row share a turn, unless a later one has fields of its own."""
        end = at + 1
        if messages[at].role == "tool" and not isinstance(messages[at].content, list):
            while end < len(messages) and messages[end].role == "tool" and not take_carried(messages[end].extra, ()):
                end += 1
        return end - at

    def write_group(self, messages: list[Message]) -> list[Turn]:
        m = messages[0]
        if m.role == "tool":
            return [self.turn(self.names["tool"], tagged_calls.join_results([r.text for r in messages]), m.extra)]
        flat = m.text if isinstance(m.content, list) and (m.calls or m.reasoning is not None) else m.content
        if isinstance(flat, list):
            return [self.turn(self.names[m.role], flat, m.extra)]
        text = tagged_calls.join_think(m.reasoning, self.write_text(flat, m.calls))
        return [self.turn(self.names[m.role], text, m.extra)]

    # -- overridden by a dialect with the same turns and other text --------------------------------------------------

    def split_head(self, text: str) -> tuple[str | None, list[ToolSpec] | None]:
        return split_system(text)

    def join_head(self, system: str | None, specs: list[ToolSpec]) -> str | None:
        return join_system(system, specs)

    def read_text(self, text: str) -> tuple[str | None, list[ToolCall]]:
        return tagged_calls.read_tagged(text, python=True)

    def write_text(self, content: str | None, calls: list[ToolCall]) -> str | None:
        return tagged_calls.write_tagged(content, calls)


def split_system(text: str) -> tuple[str | None, list[ToolSpec] | None]:
    """(system text, tools) of a system turn; tools is None when the text lists none."""
    if text.endswith(OUTRO) and INTRO in text:
        before, _, block = text.removesuffix(OUTRO).rpartition(INTRO)
        if not before or before.endswith("\n\n"):
            return (before[:-2] if before else None), read_block(block)
    start = text.find("<tools>")
    while start >= 0 and (end := text.find("</tools>", start)) >= 0:
        block = text[start + len("<tools>") : end].strip()
        if block[:1] in ("[", "{"):
            around = f"{text[:start].rstrip()}\n\n{text[end + len('</tools>') :].lstrip()}".strip()
            return around or None, read_block(block)
        start = text.find("<tools>", end)
    return text, None


def join_system(system: str | None, specs: list[ToolSpec]) -> str | None:
    if not specs:
        return system
    listed = "\n".join(
        tagged_calls.escape_closing_tags(dump_json(row_tools.write_tool(spec, nested=True))) for spec in specs
    )
    section = f"{INTRO}{listed}{OUTRO}"
    return section if system is None else f"{system}\n\n{section}"


def read_block(block: str) -> list[ToolSpec]:
    """The tools between the tags: a list, or one object after the other."""
    decoder, at, found = json.JSONDecoder(), 0, list[Any]()
    while at < len(block):
        try:
            value, at = decoder.raw_decode(block, at)
        except (ValueError, RecursionError) as error:
            raise RowError(Code.BAD_TOOLS, f"the <tools> block is not JSON: {error}") from None
        found += value if isinstance(value, list) else [value]
        blank = BETWEEN.match(block, at)
        at = blank.end() if blank else at
    if why := find_fault(found):
        raise RowError(Code.BAD_TOOLS, why.detail)
    return [row_tools.read_tool(item) for item in found]
