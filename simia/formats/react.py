"""`react`: a thought, then one action as JSON, or an answer to the user (ReAct, Yao et al. 2023), for models without tool calls.

    Thought: The order must be looked up first.
    Action: {"name": "get_order", "arguments": {"order_id": "#W1"}}

The result follows as an observation. The thought before an action is the message's text, which the user does not see, so that later
turns have it; the thought before an answer is the message's reasoning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from simia.formats.dialect import dump_json
from simia.formats.tagged_calls import make_unreadable_call, read_tagged_call, split_think, write_call
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall

MARK = re.compile(r"^[ \t]*\**(Thought|Action|Answer)\**:\**[ \t]*", re.M | re.I)
OBSERVATION = "Observation:"
RULES = """

# How to act

Write each message in one of these two forms. To use a tool:

Thought: what you know and what is missing
Action: {"name": "tool_name", "arguments": {"key": "value"}}

Make one action in a message and stop after it. Its result follows as an observation. To speak to the user, or to end the task:

Thought: what you know
Answer: your words for the user"""
DECODER = json.JSONDecoder()


def join_react_tools(system: str | None, specs: Sequence[ToolSpec]) -> str | None:
    """Append the tools and the two forms to the system text. Without tools, return it unchanged."""
    if not specs:
        return system
    listed = "\n".join(spec.write_json() for spec in specs)
    section = f"# Tools\n\nEach line is a tool, with the JSON Schema of its arguments.\n{listed}{RULES}"
    return section if system is None else f"{system}\n\n{section}"


def read_react_message(text: str, ids: str = "call") -> Message:
    """Read a policy's turn as a message. A text without marks is an answer; an action that cannot be read is an unreadable call."""
    reasoning, rest = split_think(text)
    parts = split_parts(rest or "")
    thought, action, answer = (parts.get(name) for name in ("thought", "action", "answer"))
    if action is not None:
        call = read_action(action).model_copy(update={"id": f"{ids}_0"})
        return Message(role="assistant", content=thought or None, reasoning=reasoning, calls=[call])
    said = answer if answer is not None else thought if thought is not None else (rest or "").strip()
    thoughts = [each for each in (reasoning, thought if answer is not None else None) if each]
    return Message(role="assistant", content=said or None, reasoning="\n".join(thoughts) or None)


def split_parts(text: str) -> dict[str, str]:
    """Return the first part of each kind, by its mark. Text after the first action or answer is left out."""
    marks = [*MARK.finditer(text.partition(f"\n{OBSERVATION}")[0])]
    found: dict[str, str] = {}
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(text.partition(f"\n{OBSERVATION}")[0])
        name = mark[1].lower()
        found.setdefault(name, text[mark.end() : end].strip())
        if name != "thought":
            break
    return found


def read_action(text: str) -> ToolCall:
    """The call of an action: its first JSON object."""
    start = text.find("{")
    try:
        value, _ = DECODER.raw_decode(text, start) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        value = None
    return read_tagged_call(value) or make_unreadable_call(text)


def write_react(content: str | None, calls: list[ToolCall]) -> str | None:
    """A turn in the form that `read_react_message` reads; None for a turn without text and calls."""
    if calls:
        thought = [] if content is None else [f"Thought: {content}"]
        return "\n".join([*thought, *(f"Action: {dump_json(write_call(call))}" for call in calls)])
    return None if content is None else f"Answer: {content}"


def write_observations(contents: Sequence[str]) -> str:
    """Results as the user turn that follows an action."""
    return "\n".join(f"{OBSERVATION} {content}" for content in contents)
