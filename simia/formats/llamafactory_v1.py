"""`llamafactory-v1`: LLaMA-Factory's v1 rows, whose content is a list of `{"type", "value"}` parts.

Reasoning, text and calls are parts of one assistant message, in this order when written; a call is the JSON text of
`{"name", "arguments"}`. Tools are JSON text. Results are `tool` messages without ids, in the order of the calls; several results
in one message, as a JSON list of `{"name", "content"}`, are read too. A `loss_weight` of 0 excludes an assistant message from training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simia.errors import Code
from simia.formats import row_tools, tagged_calls
from simia.formats.dialect import RowError, dump_json, parse_json
from simia.formats.turn_dialect import HeadHabit, RowHead, RowShape, Turn, TurnDialect, find_roles
from simia.tool import ToolSpec
from simia.trajectory import Message

SHAPE = RowShape(
    rows="messages",
    role="role",
    text="content",
    roles={"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"},
)
RESULT_FIELDS = frozenset(("role", "tool_call_id", "name", "content"))
WEIGHT = "loss_weight"


class LlamaFactoryV1Dialect(TurnDialect):
    """LLaMA-Factory's v1 rows."""

    name = "llamafactory-v1"
    shape = SHAPE
    tools_text, tools_nested = True, True

    def sniff(self, row: Mapping[str, Any]) -> bool:
        if find_roles(row, SHAPE) is None:
            return False
        contents = [turn.get("content") for turn in row["messages"]]
        return all(isinstance(content, list) for content in contents) and any(map(holds_values, contents))

    def read_head(self, head: RowHead) -> tuple[str | None, list[ToolSpec]]:
        system = self.read_parts(head.turns[0]).content if head.turns else None
        return system if isinstance(system, str) else None, row_tools.read_tools(head.fields.get("tools"))

    def write_head(self, system: str | None, specs: list[ToolSpec], habit: HeadHabit) -> RowHead:
        head = super().write_head(system, specs, habit)
        turns = [{**turn, "content": [make_part("text", turn["content"])]} for turn in head.turns]
        return RowHead(turns, head.fields)

    def read_group(self, turns: list[Turn]) -> list[Message]:
        message = self.read_parts(turns[0])
        contents = split_listed_results(message.content) if message.role == "tool" else None
        if contents is None:
            return [message]
        message.content = contents[0]
        return [message, *(Message(role="tool", content=content) for content in contents[1:])]

    def read_parts(self, turn: Turn) -> Message:
        """The message of a turn. Raises `RowError` for a part that is neither text, reasoning nor a call."""
        parts = turn.get("content")
        if not isinstance(parts, list):
            raise RowError(Code.BAD_ROW, "the content is not a list of parts")
        role: Any = self.kind(turn)
        message = Message(role=role, extra=self.read_turn_extra(turn))
        if role == "assistant" and turn.get(WEIGHT) == 0:
            message.train = False
        for part in parts:
            kind, value = (part.get("type"), part.get("value")) if isinstance(part, dict) else (None, None)
            if kind == "tool_call" and role == "assistant":
                message.calls += tagged_calls.read_calls(
                    value if isinstance(value, str) else dump_json(value), python=True
                )
            elif kind == "text" and isinstance(value, str):
                message.content = value if message.content is None else f"{message.content}{value}"
            elif kind == "reasoning" and role == "assistant" and isinstance(value, str):
                message.reasoning = (message.reasoning or "") + value
            elif isinstance(kind, str):
                raise RowError(
                    Code.UNKNOWN_PART, f"the {role} content has a part of type {kind:.60}; simia reads text alone"
                )
            else:
                raise RowError(Code.BAD_ROW, "a part of the content has no 'type'")
        return message

    def write_group(self, messages: list[Message]) -> list[Turn]:
        return [self.write_message(message) for message in messages]

    def write_message(self, m: Message) -> Turn:
        parts = [] if m.reasoning is None else [make_part("reasoning", m.reasoning)]
        parts += [] if m.content is None else [make_part("text", m.text)]
        parts += [make_part("tool_call", dump_json(tagged_calls.write_call(call))) for call in m.calls]
        turn = self.turn(m.role, parts, m.extra)
        if m.train is not None and m.train is not (turn.get(WEIGHT) != 0):
            turn[WEIGHT] = float(m.train)
        return turn


def holds_values(content: Any) -> bool:
    """Whether a content is a list of `{"type", "value"}` parts, which other dialects do not have."""
    return isinstance(content, list) and any(
        isinstance(part, dict) and "value" in part and isinstance(part.get("type"), str) for part in content
    )


def make_part(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "value": value}


def split_listed_results(content: Any) -> list[str] | None:
    """The contents of several results that one message lists as JSON; None for any other content."""
    if not isinstance(content, str) or not content.lstrip().startswith("[") or '"content"' not in content:
        return None
    try:
        rows = parse_json(content)
    except ValueError:
        return None
    rows = rows if isinstance(rows, list) and rows else [None]
    named = [isinstance(row, dict) and {"name", "content"} <= row.keys() <= RESULT_FIELDS for row in rows]
    if not all(named) or not (len(rows) > 1 or "tool_call_id" in rows[0]):
        return None
    return [row["content"] if isinstance(row["content"], str) else dump_json(row["content"]) for row in rows]
