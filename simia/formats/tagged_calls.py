"""Calls and reasoning inside text, for all dialects that write them so, such as `apigen` and `hermes`.

A call is JSON `{"name", "arguments"}` or Python: alone, in a list, or between `<tool_call>` tags. Reasoning is a leading `<think>`
block. An unreadable call is still a call: its text goes to `raw` and the checks judge it later. The separators are exactly those
of Qwen's chat template, so that a text is written back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from simia.formats.dialect import dump_json, parse_json, take_carried, take_unknown
from simia.formats.python_calls import parse_python, parse_python_calls
from simia.trajectory import Message, ToolCall

THINK = re.compile(r"\A\s*<think>\n?(.*?)\n?</think>(\n{0,2})(.*)\Z", re.DOTALL)
TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
FUNCTION = re.compile(r"\A<function=([^>\n]+)>(.*?)(?:</function>)?\Z", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
NAME = re.compile(r"""["']name["']\s*:\s*["']([^"'\\]+)["']""")
JOINT = re.compile(r"\n?</tool_response>\s*<tool_response>\n?")
TAGS = re.compile(r"<tool_call>|<tool_response>|<tools>|<\|FunctionCallBegin\|>")
MARKS = re.compile(r"<\|FunctionCallBegin\|>")  # of `codegym`
CALL_FIELDS = ("name", "arguments")
Schemas = Mapping[str, Mapping[str, Any]]


def read_arguments(value: Any, *, python: bool = False) -> tuple[dict[str, Any] | None, str | None]:
    """Read (arguments, raw) of an object, of its JSON text, or of that text encoded as a JSON string again.

    `python`: read Python literals too, and an empty text as no arguments. This is used for files, not for the output of a policy.
    """
    if python and isinstance(value, str) and not value.strip():
        return {}, None
    text = value if isinstance(value, str) else dump_json(value)
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = parse_json(value)
        except ValueError:
            if python and value.lstrip().startswith("{"):
                with suppress(ValueError):
                    value = parse_python(value)
            break
    return (value, None) if isinstance(value, dict) else (None, text)


def read_tagged_call(item: Any, *, python: bool = False) -> ToolCall | None:
    """The call in a JSON object; None when it names no tool."""
    if not isinstance(item, dict):
        return None
    inner, outer = item, {}
    if "name" not in item and isinstance(item.get("function"), dict):
        inner, outer = item["function"], take_unknown(item, ("type", "function"))
    name = inner.get("name")
    if not isinstance(name, str):
        return None
    key = "parameters" if "arguments" not in inner and isinstance(inner.get("parameters"), dict) else "arguments"
    arguments, raw = read_arguments(inner[key], python=python) if key in inner else (None, "")
    extra = {**outer, **take_unknown(inner, ("name", key))}
    return ToolCall(id="", name=name, arguments=arguments, raw=raw, extra=extra)


def read_calls(text: str, *, python: bool = False, prepare: Callable[[Any], Any] = lambda item: item) -> list[ToolCall]:
    """Read the calls of a JSON text, one object or a list; at least one, which is an unreadable call if nothing else can be read.
    `python`: see `read_arguments`; `prepare`: changes each object before it is read."""
    try:
        value = parse_json(text)
    except ValueError:
        if not python:
            return [make_unreadable_call(text)]
        try:
            value = parse_python(text)
        except ValueError:
            found = parse_python_calls(text) or []
            calls = [ToolCall(id="", name=name, arguments=arguments) for name, arguments in found]
            return calls or [make_unreadable_call(text)]
    items = value if isinstance(value, list) and value else [value]
    return [
        read_tagged_call(prepare(item), python=python)
        or make_unreadable_call(text if items == [value] else dump_json(item))
        for item in items
    ]


def make_unreadable_call(text: str) -> ToolCall:
    """Make a call from a text that cannot be read as one; its name if the text shows one."""
    found = NAME.search(text)
    return ToolCall(id="", name=found[1] if found else "", raw=text)


def write_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw or "" if call.arguments is None else call.arguments
    return {"name": call.name, "arguments": arguments, **take_carried(call.extra, CALL_FIELDS)}


def read_function(text: str, tools: Schemas) -> ToolCall | None:
    """Read a call whose arguments have tags of their own, as Qwen3.5 and Nemotron write it; None for any other text.

    In this form strings are written unquoted and all other values as JSON, so the tool's schema decides which of them a value is.
    """
    found = FUNCTION.match(text)
    if not found:
        return None
    name, body = found[1].strip(), found[2]
    if PARAMETER.sub("", body).strip():
        return ToolCall(id="", name=name, raw=text)
    known = tools.get(name, {}).get("properties", {})
    given = [(key.strip(), value) for key, value in PARAMETER.findall(body)]
    arguments = {key: convert_argument(value, known.get(key, {})) for key, value in given}
    return ToolCall(id="", name=name, arguments=arguments)


def convert_argument(value: str, schema: Any) -> Any:
    """Convert a text to the value that the schema asks for. It stays text if the schema asks for a string or says nothing, or if it
    is not JSON."""
    kinds = schema.get("type", "string") if isinstance(schema, dict) else "string"
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds == ["string"]:
        return value
    try:
        read = parse_json({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        return value
    return value if "string" in kinds and isinstance(read, int | float) else read


def read_tagged(text: str, tools: Schemas | None = None, *, python: bool = False) -> tuple[str | None, list[ToolCall]]:
    """Read (content, calls) of assistant text with `<tool_call>` blocks. With `tools` (name → JSON Schema of its arguments), calls
    with tagged arguments (`read_function`) are read too."""
    blocks = list(TAGGED.finditer(text))
    if not blocks:
        return text, []
    calls = []
    for block in blocks:
        function = None if tools is None else read_function(block[1].strip(), tools)
        calls += read_calls(block[1].strip(), python=python) if function is None else [function]
    before = text[: blocks[0].start()]
    between = [text[a.end() : b.start()] for a, b in pairwise(blocks)]
    after = [piece.strip() for piece in (*between, text[blocks[-1].end() :]) if piece.strip()]
    content = before.removesuffix("\n") if before.strip() or before == "\n" else None
    return ("\n".join([content, *after] if content else after) if after else content), calls


def read_message(
    text: str,
    ids: str = "call",
    tools: Schemas | None = None,
    read: Callable[[str], tuple[str | None, list[ToolCall]]] | None = None,
) -> Message:
    """Read a policy's turn in Hermes text as a message; its calls are numbered `{ids}_0`, `{ids}_1`, … `read`: reads content and
    calls of another dialect instead.

    Text before `</think>` is reasoning, even if `<think>` is in the prompt and not in the turn. If `<think>` is never closed, the
    whole turn is reasoning. Calls in reasoning are not made.
    """
    closed, opened = "</think>" in text, text.lstrip().startswith("<think>")
    if opened and not closed:
        text += "\n</think>"
    elif closed and not opened:
        text = f"<think>\n{text}"
    reasoning, rest = split_think(text)
    take_apart = read or (lambda given: read_tagged(given, tools))
    content, calls = take_apart(rest) if rest is not None else (None, [])
    numbered = [call.model_copy(update={"id": f"{ids}_{i}"}) for i, call in enumerate(calls)]
    return Message(role="assistant", content=content, reasoning=reasoning, calls=numbered)


def write_tagged(content: str | None, calls: list[ToolCall]) -> str | None:
    """Reverse `read_tagged`; None for a turn without text and calls."""
    blocks = [f"<tool_call>\n{escape_closing_tags(dump_json(write_call(call)))}\n</tool_call>" for call in calls]
    pieces = [*([] if content is None else [content]), *blocks]
    return "\n".join(pieces) if pieces else None


def escape_closing_tags(json_text: str) -> str:
    """JSON in which no string can close the tag around it: `\\/` is JSON's other spelling of `/`."""
    return json_text.replace("</", "<\\/")


def split_think(text: str) -> tuple[str | None, str | None]:
    """(reasoning, rest) of assistant text. The rest is None when nothing follows the block, not even a line break."""
    found = THINK.match(text)
    if not found:
        return None, text
    return found[1], (found[3] if found[2] or found[3] else None)


def join_think(reasoning: str | None, rest: str | None) -> str | None:
    if reasoning is None:
        return rest
    block = f"<think>\n{reasoning}\n</think>"
    return block if rest is None else f"{block}\n\n{rest}"


def split_results(text: str) -> list[str] | None:
    """Return the contents of a turn's `<tool_response>` blocks; None if the turn holds anything else."""
    if not is_results(text):
        return None
    inner = text.strip().removeprefix("<tool_response>").removesuffix("</tool_response>")
    return JOINT.split(inner.removeprefix("\n").removesuffix("\n"))


def is_results(text: str) -> bool:
    body = text.strip()
    tags = len("<tool_response></tool_response>")
    return len(body) >= tags and body.startswith("<tool_response>") and body.endswith("</tool_response>")


def join_results(contents: list[str]) -> str:
    return "\n".join(f"<tool_response>\n{content}\n</tool_response>" for content in contents)


def holds_marks(row: Mapping[str, Any]) -> bool:
    """Whether a turn of this row holds CodeGym's marks."""
    return holds_tags(row, MARKS)


def holds_tags(row: Mapping[str, Any], tags: re.Pattern[str] = TAGS) -> bool:
    """Whether a turn of this row holds calls, results or tools between tags."""
    turns = row.get("conversations", row.get("messages"))
    texts = [v for t in turns if isinstance(t, dict) for v in t.values()] if isinstance(turns, list) else []
    return any(isinstance(v, str) and tags.search(v) for v in texts)
