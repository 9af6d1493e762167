"""Rows as they are found in the wild, for property tests: unknown fields everywhere, odd JSON spelling, odd turns."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Draw = st.DrawFn

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
NUMBERS = st.one_of(
    st.integers(), st.sampled_from([2**64, -(2**70), 10**30]), st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
NAMES = st.sampled_from(["find_book", "cancel_order", "größe"])
UNKNOWN = st.dictionaries(st.sampled_from(["loss", "id", "weight", "größe", "x-y"]), JSON, max_size=2)
SPELLINGS: list[dict[str, Any]] = [
    {},
    {"ensure_ascii": False},
    {"ensure_ascii": False, "separators": (",", ":")},
    {"indent": 2},
    {"separators": (" ,\t", " :\n")},
]
NUMERALS = [
    '{"a": 1.0}',
    '{"a": 1e3}',
    '{"a": 1E+2, "b": 1.50}',
    '{"a": 1, "a": 2}',
    '{"a": 123456789012345678901234567890}',
]


def spelled(value: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """A JSON value as text, in one of the ways in which files have it."""
    return st.builds(
        lambda v, how, pad: pad + json.dumps(v, **how),
        value,
        st.sampled_from(SPELLINGS),
        st.sampled_from(["", " ", "\n"]),
    )


@st.composite
def tool(draw: Draw, *, closed: bool = False) -> dict[str, Any]:
    flat: dict[str, Any] = {"name": draw(NAMES), **draw(UNKNOWN)}
    if draw(st.booleans()):
        flat["description"] = draw(st.one_of(TEXT, st.none(), st.just("ends </tools> here")))
    if draw(st.booleans()):
        flat["parameters"] = draw(OBJECTS)
    if draw(st.booleans()):
        return flat
    return {"type": "function", "function": flat, **draw(UNKNOWN)}


TOOL_LISTS = st.lists(tool(), max_size=2)
TOOLS = st.one_of(TOOL_LISTS, spelled(TOOL_LISTS), st.none(), st.just(""), tool())

CALL = st.builds(
    lambda name, arguments, unknown: {"name": name, "arguments": arguments, **unknown},
    NAMES,
    st.one_of(OBJECTS, spelled(OBJECTS), spelled(spelled(OBJECTS)), JSON, st.sampled_from(['{"a": ', "", *NUMERALS])),
    UNKNOWN,
)
CALL_TEXTS = st.one_of(
    spelled(CALL),
    spelled(st.lists(CALL, max_size=3)),
    st.sampled_from([f'{{"name": "find_book", "arguments": {a}}}' for a in NUMERALS]),
    st.sampled_from(['{"name": "find_book", "arguments": {', "find_book()", "{}", '"text"', "null"]),
)
THOUGHTS = st.sampled_from(
    ["", "<think>\nhm\n</think>\n\n", "<think>hm</think>", "<think>\n\n</think>\n\n", " <think>\n a \n</think>\n"]
)
RESULTS = st.one_of(spelled(JSON), TEXT)
JOINED = st.lists(RESULTS, min_size=1, max_size=3).map("\n</tool_response>\n<tool_response>\n".join)


@st.composite
def apigen_row(draw: Draw) -> dict[str, Any]:
    turns = []
    for kind in draw(
        st.lists(st.sampled_from(["human", "gpt", "function_call", "observation", "system", "tool"]), max_size=6)
    ):
        value: Any
        if kind == "function_call":
            value = draw(st.one_of(st.builds(str.__add__, THOUGHTS, CALL_TEXTS), CALL))
        elif kind in ("observation", "tool"):
            value = draw(st.one_of(RESULTS, JOINED, OBJECTS, st.none()))
        else:
            value = draw(st.builds(str.__add__, THOUGHTS, TEXT))
        turns.append({"from": kind, "value": value, **draw(UNKNOWN)})
    row: dict[str, Any] = {"conversations": turns, **draw(UNKNOWN)}
    if draw(st.booleans()):
        row["tools"] = draw(TOOLS)
    if draw(st.booleans()):
        row["system"] = draw(st.one_of(TEXT, st.none()))
    return row


PARTS = st.lists(
    st.one_of(
        st.builds(
            lambda kind, text: {"type": kind, "text": text},
            st.sampled_from(["text", "input_text", "output_text"]),
            TEXT,
        ),
        st.builds(lambda text, unknown: {"type": "refusal", "refusal": text, **unknown}, TEXT, UNKNOWN),
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def openai_row(draw: Draw) -> dict[str, Any]:
    messages = []
    for role in draw(
        st.lists(st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]), max_size=6)
    ):
        turn: dict[str, Any] = {"role": role, **draw(UNKNOWN)}
        if role != "assistant" or draw(st.booleans()):
            turn["content"] = draw(st.one_of(TEXT, st.none(), PARTS))
        if role == "assistant":
            if draw(st.booleans()):
                turn["tool_calls"] = draw(st.lists(openai_call(), max_size=3))
            if draw(st.booleans()):
                turn[draw(st.sampled_from(["reasoning_content", "reasoning"]))] = draw(st.one_of(TEXT, st.none()))
            if draw(st.booleans()):
                turn["function_call"] = {"name": "find_book", "arguments": draw(spelled(OBJECTS))}
        if role in ("tool", "function"):
            turn |= draw(st.sampled_from([{}, {"tool_call_id": "a"}, {"tool_call_id": ""}, {"tool_call_id": None}]))
            turn |= draw(st.sampled_from([{}, {"name": "find_book"}, {"name": None}]))
        messages.append(turn)
    row: dict[str, Any] = {"messages": messages, **draw(UNKNOWN)}
    if draw(st.booleans()):
        row["tools"] = draw(TOOLS)
    return row


@st.composite
def openai_call(draw: Draw) -> Any:
    call = draw(CALL)
    arguments = draw(st.one_of(st.just(call["arguments"]), CALL_TEXTS))
    outer = draw(st.sampled_from([{}, {"id": "a"}, {"id": ""}, {"id": None}, {"id": 7}, {"id": "b", "index": 0}]))
    kind = draw(st.sampled_from([{}, {"type": "function"}, {"type": "custom"}]))
    return {**outer, **kind, "function": {**call, "arguments": arguments}}


TAGGED = st.builds(
    lambda blocks: "\n".join(f"<tool_call>\n{b}\n</tool_call>" for b in blocks),
    st.lists(CALL_TEXTS, min_size=1, max_size=3),
)
AGENT = st.builds(
    lambda thought, text, calls, after: thought + text + calls + after,
    THOUGHTS,
    st.sampled_from(["", "\n", "  ", "I look.\n", "I look.", "größe\n\n"]),
    st.one_of(TAGGED, TAGGED.map(lambda s: s.replace("\n</tool_call>", "")), st.just(""), TEXT),
    st.sampled_from(["", "\n", " and then"]),
)
ANSWERS = st.lists(RESULTS, min_size=1, max_size=3).map(
    lambda rs: "\n".join(f"<tool_response>\n{r}\n</tool_response>" for r in rs)
)
SYSTEMS = st.one_of(
    TEXT,
    spelled(TOOL_LISTS).map(
        lambda t: f"Functions within <tools> </tools> tags: <tools> {t.replace('</', '<|')} </tools> Use them."
    ),
    st.none(),
)


@st.composite
def hermes_row(draw: Draw) -> dict[str, Any]:
    chat = draw(st.booleans())
    names = {"human": "user", "gpt": "assistant"} if chat else {}
    role, text = ("role", "content") if chat else ("from", "value")
    turns = []
    for kind in draw(st.lists(st.sampled_from(["human", "gpt", "tool", "system"]), max_size=6)):
        if kind == "gpt":
            value = draw(AGENT)
        elif kind == "tool" or (kind == "human" and draw(st.booleans())):
            value = draw(st.builds(str.__add__, ANSWERS, st.sampled_from(["", "\n", " x"])))
        else:
            value = draw(SYSTEMS if kind == "system" else TEXT)
        turns.append({role: names.get(kind, kind), text: value, **draw(UNKNOWN)})
    row: dict[str, Any] = {"messages" if chat else "conversations": turns, **draw(UNKNOWN)}
    if draw(st.booleans()):
        row["tools"] = draw(TOOLS)
    return row


@st.composite
def v1_row(draw: Draw) -> dict[str, Any]:
    messages = []
    for role in draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=6)):
        text = st.builds(lambda value: {"type": "text", "value": value}, RESULTS if role == "tool" else TEXT)
        calls = st.builds(lambda value: {"type": "tool_call", "value": value}, CALL_TEXTS)
        thoughts = st.builds(lambda value: {"type": "reasoning", "value": value}, TEXT)
        kinds = st.one_of(text, calls, thoughts) if role == "assistant" else text
        weight = draw(st.sampled_from([{}, {"loss_weight": 0.0}, {"loss_weight": 1}, {"loss_weight": 0.5}]))
        messages.append({"role": role, "content": draw(st.lists(kinds, max_size=3)), **draw(UNKNOWN), **weight})
    row: dict[str, Any] = {"messages": messages, **draw(UNKNOWN)}
    if draw(st.booleans()):
        row["tools"] = draw(TOOLS)
    return row


MARKED_CALL = st.builds(
    lambda name, key, arguments, unknown: {"name": name, key: arguments, **unknown},
    NAMES,
    st.sampled_from(["parameters", "arguments"]),
    st.one_of(OBJECTS, spelled(OBJECTS), JSON),
    UNKNOWN,
)
MARKED = st.one_of(
    spelled(st.lists(MARKED_CALL, min_size=1, max_size=3)),
    spelled(MARKED_CALL),
    CALL_TEXTS,
    st.sampled_from(
        ['[{"name": "find_book"', "", '[{"name": "find_book", "parameters": {"a": "<|FunctionCallEnd|>"}}]']
    ),
).map(lambda text: f"<|FunctionCallBegin|>{text}<|FunctionCallEnd|>")
LISTINGS = st.sampled_from(
    [
        "",
        'Function:\ndef Observe():\n    """\n    See it.\n    Args:\n        None\n    Returns:\n        str: all\n    """',
        'Function:\ndef Push(index: int, on: List[str] = None):\n    """\n    Push.\n    Args:\n        index (int): Where.\n    """\n',
        "Function:\ndef",
        'Function:\ndef f(x\n    """\n    Definition: 7\n    """',
    ]
)


@st.composite
def codegym_row(draw: Draw) -> dict[str, Any]:
    turns = [{"role": "system", "content": draw(st.one_of(LISTINGS, TEXT))}] if draw(st.booleans()) else []
    for role in draw(st.lists(st.sampled_from(["user", "assistant", "tool"]), max_size=6)):
        value: Any = draw(TEXT)
        if role == "assistant":
            value = draw(THOUGHTS) + value + "".join(draw(st.lists(MARKED, max_size=2)))
        elif draw(st.booleans()):
            value = f"<tool_response>\n{draw(JOINED)}\n</tool_response>"
        turns.append({"role": role, "content": value, **draw(UNKNOWN)})
    return {"messages": turns, **draw(UNKNOWN)}


ROWS = {
    "apigen": apigen_row(),
    "openai": openai_row(),
    "hermes": hermes_row(),
    "llamafactory-v1": v1_row(),
    "codegym": codegym_row(),
}
