"""`officebench`: rows of an agent that works through office applications, one action a turn.

The agent writes `<think>…</think>` and `<answer> {"app": …, "action": …, …} </answer>`; observations are user turns. An
action becomes a call of the tool `app.action` with the other fields as its arguments. `finish_task` is not a tool: its
answer is the closing message (in OfficeBench, the answer is "None" if a task asks no question).
officebench_tools.json lists the actions as tools. Rows have `conversations` or chat `messages`, with or without a system turn; new rows
have `conversations`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from simia.formats.action_dialect import ActionDialect, ActionStyle, InexpressibleTurn, make_tool, take_closing_text
from simia.formats.dialect import dump_json, find_fault
from simia.formats.turn_dialect import RowShape, Turn
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

SHAREGPT = RowShape(
    "conversations",
    "from",
    "value",
    {"human": "user", "gpt": "assistant", "system": "system", "user": "user", "assistant": "assistant"},
)
CHAT = RowShape("messages", "role", "content", {"user": "user", "assistant": "assistant", "system": "system"})
NOTHING = "None"
TOOLS: tuple[ToolSpec, ...] = tuple(
    map(ToolSpec.model_validate, json.loads(Path(__file__).with_name("officebench_tools.json").read_text("utf-8")))
)
APPS: tuple[str, ...] = tuple(dict.fromkeys(spec.name.partition(".")[0] for spec in TOOLS))
SWITCH = make_tool(
    "system.switch_app",
    "Open an app. Its actions can be used from then on, until another app is opened.",
    target_app={"type": "string", "enum": list(APPS), "description": "The app."},
)


class OfficeStyle(ActionStyle):
    """One JSON object a turn, after a thought."""

    tools = (SWITCH, *TOOLS)
    form = re.compile(r"(?:<think>(.*?)</think>\n)?<answer> (\{.*\}) </answer>", re.DOTALL)
    loose = re.compile(r"<answer>(?:(?!<answer>).)*?(\{.*\})\s*(?:</answer>|\Z)", re.DOTALL)
    thought = re.compile(r"<think>(.*?)</think>", re.DOTALL)
    name = re.compile(r"""["'](app|action)["']\s*:\s*["']([\w ]+)["']""")
    own: ClassVar = {"app", "action"}

    def acts(self, text: str) -> bool:
        return "<answer>" in text and all(f"{q}app{q}" in text for q in "\"'" if f"{q}action{q}" in text)

    def read_agent(self, text: str) -> Message:
        found = self.form.fullmatch(text)
        if found:
            reasoning, action = found[1], found[2]
        elif found := self.loose.search(text):
            thoughts = self.thought.findall(text[: found.start()])
            reasoning, action = ("\n".join(thoughts).strip() or None), found[1]
        else:
            return Message(role="assistant", content=text)
        fields = read_object(action)
        if fields is None or not all(isinstance(fields.get(key), str) for key in self.own):
            named = dict(self.name.findall(action))
            name = f"{named['app']}.{named['action']}" if len(named) == len(self.own) else ""
            return Message(role="assistant", reasoning=reasoning, calls=[ToolCall(id="", name=name, raw=action)])
        name = f"{fields['app']}.{fields['action']}"
        if name == "system.finish_task":
            answer = fields.get("answer", NOTHING)
            said = answer if isinstance(answer, str) else NOTHING if answer is None else dump_json(answer)
            return Message(role="assistant", reasoning=reasoning, content=said)
        arguments = {key: value for key, value in fields.items() if key not in self.own}
        return Message(role="assistant", reasoning=reasoning, calls=[ToolCall(id="", name=name, arguments=arguments)])

    def write_agent(self, message: Message) -> str:
        thought = f"<think>{message.reasoning}</think>\n" if message.reasoning else ""
        if not message.calls:
            fields = {"app": "system", "action": "finish_task", "answer": take_closing_text(message)}
            return f"{thought}<answer> {dump_json(fields)} </answer>"
        call = message.calls[0]
        app, dot, action = call.name.partition(".")
        if message.content or len(message.calls) != 1:
            raise InexpressibleTurn("a turn can hold only one action and no other text")
        if call.arguments is None or not dot or self.own & call.arguments.keys():
            raise InexpressibleTurn(f"{call.name!r} with these arguments is not an action of an app")
        return f"{thought}<answer> {dump_json({'app': app, 'action': action, **call.arguments})} </answer>"


OFFICE = OfficeStyle()


class OfficeBenchDialect(ActionDialect):
    """OfficeBench rows in either container."""

    name = "officebench"
    shapes = (SHAREGPT, CHAT)

    def style_of(self, row: Mapping[str, Any], turns: Sequence[Turn], shape: RowShape) -> ActionStyle | None:
        said = [turn[shape.text] for turn in turns if shape.roles[turn[shape.role]] == "assistant"]
        return OFFICE if any(OFFICE.acts(text) for text in said) else None

    def style_for(self, t: Trajectory) -> ActionStyle | None:
        return OFFICE if [spec.name for spec in t.tools] == [spec.name for spec in OFFICE.tools] else None

    def stranger(self, row: Mapping[str, Any]) -> str:
        return 'no turn of the agent holds an action <answer> {"app": …, "action": …} </answer>'


def read_object(text: str) -> dict[str, Any] | None:
    """The action's fields: JSON, or a Python literal as OfficeBench's own prompts show it."""
    value: Any = None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return value if is_json_object(value) else None


def is_json_object(value: Any) -> bool:
    """A Python literal may hold what JSON does not: sets, bytes, complex numbers, keys that are no text."""
    if not isinstance(value, dict) or find_fault(value) is not None:
        return False
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
