"""The JSON Schema that a simulated trajectory must obey, for endpoints that can constrain a reply to one.

`free`: any sequence of turns, each call one branch of an `anyOf` over the tools. `seed`: the seed's own sequence of
roles and tools, results with the keys of the seed's results. A model of half a billion parameters needs the second;
a strong one is better left free. The checks apply to every reply, constrained or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import orjson

from simia.json_schema import SHORT_TEXT, build_strict_object
from simia.tool import ToolSpec
from simia.trajectory import Message, Trajectory

Shape = Literal["free", "seed"]


def build_trajectory_schema(
    tools: Sequence[ToolSpec], seed: Trajectory, shape: Shape, *, reasoning: bool | Literal["required"]
) -> dict[str, Any]:
    """Build the schema of `{"messages": [...]}`. `reasoning`: whether a turn may hold a thought; `required`: a turn with calls must."""
    if shape == "seed":
        used = {tool.name: tool for tool in tools}
        turns = [build_turn_schema(message, used) for message in seed.messages if message.role != "system"]
        messages = {"type": "array", "prefixItems": turns, "minItems": len(turns), "maxItems": len(turns)}
    else:
        messages = {"type": "array", "items": {"anyOf": build_free_turns(tools, reasoning=reasoning)}, "minItems": 2}
    return build_strict_object({"messages": messages})


def build_free_turns(tools: Sequence[ToolSpec], *, reasoning: bool | Literal["required"]) -> list[dict[str, Any]]:
    calls = {"type": "array", "minItems": 1, "items": {"anyOf": [build_call_schema(tool) for tool in tools]}}
    text = {"type": "string", "minLength": 1}
    thought: dict[str, Any] = {"reasoning": {"type": "string"}} if reasoning else {}
    turns = [
        build_strict_object({"role": {"const": "user"}, "content": text}),
        build_strict_object({"role": {"const": "assistant"}, **thought, "content": text}, optional=("reasoning",)),
        build_strict_object({"role": {"const": "tool"}, "content": {"type": ["object", "array", "string"]}}),
    ]
    if tools:
        content = {"type": ["string", "null"]}
        turns.append(
            build_strict_object(
                {"role": {"const": "assistant"}, **thought, "content": content, "calls": calls},
                optional=("content",) if reasoning == "required" else ("reasoning", "content"),
            )
        )
    return turns


def build_turn_schema(message: Message, tools: dict[str, ToolSpec]) -> dict[str, Any]:
    """Build the schema of a turn of the same kind as the seed's."""
    role = {"const": message.role}
    if message.role == "tool":
        return build_strict_object({"role": role, "content": build_result_schema(message.text)})
    if not message.calls:
        return build_strict_object({"role": role, "content": SHORT_TEXT})
    calls = [build_call_schema(tools[call.name]) for call in message.calls if call.name in tools]
    fields = {"calls": {"type": "array", "prefixItems": calls, "minItems": len(calls), "maxItems": len(calls)}}
    return build_strict_object({"role": role, **({"content": SHORT_TEXT} if message.text else {}), **fields})


def build_call_schema(tool: ToolSpec) -> dict[str, Any]:
    return build_strict_object({"name": {"const": tool.name}, "arguments": tool.parameters})


def build_result_schema(content: str) -> dict[str, Any]:
    """Build the schema of a result with the same keys and types."""
    try:
        return build_value_schema(orjson.loads(content))
    except orjson.JSONDecodeError:
        return SHORT_TEXT


def build_value_schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return build_strict_object({str(k): build_value_schema(v) for k, v in value.items()})
    if isinstance(value, list):
        if len({type(item) for item in value}) > 1:  # a row of a table: each cell has its own type
            cells = [build_value_schema(item) for item in value]
            return {"type": "array", "prefixItems": cells, "minItems": len(cells), "maxItems": len(cells)}
        items = build_value_schema(value[0]) if value else SHORT_TEXT
        return {"type": "array", "items": items, "minItems": min(len(value), 1), "maxItems": max(len(value), 2)}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0, "maximum": 999999} if value >= 0 else {"type": "integer"}
    if isinstance(value, float):
        return {"type": "number"}
    return {"type": "null"} if value is None else build_string_schema(str(value))


def build_string_schema(text: str) -> dict[str, Any]:
    """Keep the form of a code (ORD-20417 → the same three letters, five digits) and of a date."""
    if len(text) == 10 and text[4] == text[7] == "-" and text.replace("-", "").isdigit():
        return {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"}
    prefix, dash, number = text.partition("-")
    if dash and prefix.isascii() and prefix.isupper() and prefix.isalpha() and number.isdigit():
        return {"type": "string", "pattern": f"^{prefix}-[0-9]{{{len(number)}}}$"}
    return SHORT_TEXT
