"""`openai`: rows of chat messages in the form of the chat completions API, with `tool_calls` and a `tools` list.

Arguments are JSON text; a text that is not JSON stays as it is (`ToolCall.raw`). Variants of published data are read too:
arguments as an object or encoded twice, calls and results without ids, the old `function_call` and role `function`,
`reasoning` for `reasoning_content`, role `developer`, flat tools, tools as JSON text, the old `functions` for `tools`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simia.errors import Code
from simia.formats import row_tools
from simia.formats.dialect import RowError, dump_json, parse_json, read_optional_text, take_carried, take_unknown
from simia.formats.llamafactory_v1 import holds_values
from simia.formats.tagged_calls import holds_tags, make_unreadable_call, read_arguments
from simia.formats.turn_dialect import RowHead, RowShape, Turn, TurnDialect, find_roles, read_content
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall

SHAPE = RowShape(
    rows="messages",
    role="role",
    text="content",
    roles={
        "system": "system",
        "user": "user",
        "assistant": "assistant",
        "tool": "tool",
        "developer": "system",
        "function": "tool",
    },
)
FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "function_call")
CALL_FIELDS = ("id", "function")


class OpenAIDialect(TurnDialect):
    """OpenAI chat rows."""

    name = "openai"
    shape = SHAPE
    head_fields = ("tools", "functions")
    tools_text, tools_nested = False, True
    says_ids = True

    def sniff(self, row: Mapping[str, Any]) -> bool:
        if find_roles(row, SHAPE) is None or any(holds_values(turn.get("content")) for turn in row["messages"]):
            return False
        return any("tool_calls" in turn for turn in row["messages"]) or not holds_tags(row)

    def read_head(self, head: RowHead) -> tuple[str | None, list[ToolSpec]]:
        system = Message(role="system", content=self.value(head.turns[0])).text if head.turns else None
        if head.turns and head.turns[0]["content"] is None:
            system = None
        tools, old = head.fields.get("tools"), head.fields.get("functions")
        return system, row_tools.read_tools(old if not tools and lists_functions(old) else tools)

    def read_group(self, turns: list[Turn]) -> list[Message]:
        turn = turns[0]
        role: Any = self.kind(turn)
        if role != "assistant" and "content" not in turn:
            raise RowError(Code.BAD_ROW, "the message has no 'content'")
        vllm = "reasoning_content" not in turn and isinstance(turn.get("reasoning"), str)
        thought = "reasoning" if vllm else "reasoning_content"
        call_id = turn.get("tool_call_id")
        message = Message(
            role=role,
            content=read_content(turn.get("content"), result=role == "tool"),
            reasoning=read_optional_text(turn, thought),
            calls=read_openai_calls(turn),
            call_id=read_id(call_id) or ("" if role == "tool" else None),
            name=read_optional_text(turn, "name"),
            train=False if role == "assistant" and turn.get("weight") == 0 else None,
            extra=take_unknown(turn, (*FIELDS, thought)),
        )
        return [message]

    def write_group(self, messages: list[Message]) -> list[Turn]:
        return [write_message(message) for message in messages]


def lists_functions(value: Any) -> bool:
    """Whether a column `functions` lists tools, as the API had it before `tools`; else it is a column that simia does not know."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            return False
    return isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value)


def read_openai_calls(turn: Turn) -> list[ToolCall]:
    """The calls of a message, old style and new."""
    listed = turn.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise RowError(Code.BAD_ROW, "'tool_calls' is not a list")
    calls = [read_openai_call(item) for item in listed or []]
    old = turn.get("function_call")
    return [*calls, read_openai_call({"function": old})] if old is not None else calls


def read_openai_call(item: Any) -> ToolCall:
    if not isinstance(item, dict):
        return make_unreadable_call(dump_json(item))
    inner = item.get("function")
    outer = take_unknown(item, (*CALL_FIELDS, "type") if item.get("type") == "function" else CALL_FIELDS)
    if not isinstance(inner, dict):
        inner, outer = outer, {}
    if not isinstance(inner.get("name"), str):
        return make_unreadable_call(dump_json(item))
    arguments, raw = read_arguments(inner["arguments"], python=True) if "arguments" in inner else (None, "")
    return ToolCall(
        id=read_id(item.get("id")) or "",
        name=inner["name"],
        arguments=arguments,
        raw=raw,
        extra={**outer, **take_unknown(inner, ("name", "arguments"))},
    )


def read_id(given: Any) -> str | None:
    """The id of a call, which some files write as an integer; None for no id."""
    return given if isinstance(given, str) else str(given) if type(given) is int else None


def write_message(m: Message) -> Turn:
    turn: Turn = {"role": m.role, "content": m.content}
    if m.reasoning is not None:
        turn["reasoning_content"] = m.reasoning
    if m.calls:
        turn["tool_calls"] = [write_openai_call(call) for call in m.calls]
    if m.call_id is not None:
        turn["tool_call_id"] = m.call_id
    if m.name is not None:
        turn["name"] = m.name
    return {**turn, **take_carried(m.extra, FIELDS)}


def write_openai_call(call: ToolCall) -> dict[str, Any]:
    arguments = (call.raw or "") if call.arguments is None else dump_json(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function, **take_carried(call.extra, CALL_FIELDS)}
