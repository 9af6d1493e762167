"""The base of dialects in which a call is written as the text of an action: AgentInstruct's and OfficeBench's.

Such rows have two roles. The agent's turns hold a thought and one action; the user's turns hold the task and then the
observation of each action. An `ActionStyle` defines how thoughts, actions and observations are written. This module converts
turns to messages with native calls, so that all suites share the parser, the schemas and the checks.

These dialects can express only trajectories of their own suite: a writer reads its row again, and raises `UntrainableError` if
that gives another trajectory. Turns that were read and not edited are written back unchanged (see `simia.formats.dialect`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from simia.errors import Code
from simia.formats.dialect import MEMO, RowError, is_same_json, read_memory, take_carried, take_unknown
from simia.formats.llamafactory import UntrainableError
from simia.formats.turn_dialect import RowShape, Turn, add_call_ids, dump_tools
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory


class InexpressibleTurn(ValueError):  # noqa: N818 - a finding on the data, not a fault
    """The text form cannot express this message; the error message says why."""


class ActionStyle(ABC):
    """The text form of thoughts, actions, observations and tasks in one kind of environment."""

    tools: Sequence[ToolSpec]
    loose: re.Pattern[str]
    """Finds an action anywhere in a text."""
    acknowledged: str | None = None
    """The agent's answer to the system text, if the system text is a turn of its own."""

    @abstractmethod
    def read_agent(self, text: str) -> Message:
        """An assistant message with one call, or with the text that closes the episode; any other text as it is."""

    @abstractmethod
    def write_agent(self, message: Message) -> str:
        """Write the message as text. Raises `InexpressibleTurn` with the reason if the text form cannot express it."""

    def acts(self, text: str) -> bool:
        """Whether the agent's text holds an action."""
        return self.loose.search(text) is not None

    def read_result(self, text: str) -> str:
        return text

    def write_result(self, text: str) -> str:
        return text

    def split(self, text: str) -> tuple[str | None, str]:
        """Split the turn that states the task into (system text, task). The turn begins with the system text."""
        return None, text

    def join(self, system: str | None, task: str) -> str:
        if system is not None:
            raise InexpressibleTurn("the row has no place for a system text")
        return task

    def starts(self, turn: str, masked: bool) -> bool:
        """Does a task start with this turn? `masked`: the agent's turn before it is not trained on."""
        return False

    def closes(self, message: Message) -> bool:
        """Whether the agent ends the episode with this message, even if a turn of the environment follows."""
        return not message.calls

    def finish(self, message: Message) -> list[Message]:
        """Convert a last action without an observation to messages."""
        return [message]

    def unfinish(self, messages: list[Message]) -> list[Message]:
        """Reverse `finish`: keep the messages that are written as turns."""
        return messages


def make_tool(name: str, description: str, **properties: dict[str, Any]) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name=name, description=description, parameters={**parameters, "additionalProperties": False})


def text_schema(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, **more, "description": description}


def make_action(name: str, reasoning: str | None, **arguments: str) -> Message:
    call = ToolCall(id="", name=name, arguments=dict(arguments))
    return Message(role="assistant", reasoning=reasoning, calls=[call])


def take_only_call(m: Message) -> tuple[str, dict[str, str]]:
    """Return name and arguments of a message's only call. Raises `InexpressibleTurn` unless all arguments are text."""
    if m.content or len(m.calls) != 1:
        raise InexpressibleTurn("a turn can hold only one action and no other text")
    arguments = m.calls[0].arguments
    if arguments is None or not all(isinstance(value, str) for value in arguments.values()):
        raise InexpressibleTurn("the action's arguments are not text")
    return m.calls[0].name, arguments


def take_closing_text(m: Message) -> str:
    if not isinstance(m.content, str):
        raise InexpressibleTurn("its content is not text")
    return m.content


class ActionDialect(ABC):
    """Reads and writes rows of one or several styles."""

    name: str
    shapes: tuple[RowShape, ...]
    losses = False  # turns have a `loss` that says whether they are trained on
    named = False  # rows have an `id`

    @abstractmethod
    def style_of(self, row: Mapping[str, Any], turns: Sequence[Turn], shape: RowShape) -> ActionStyle | None:
        """The style of a row; None for a row of something else."""

    @abstractmethod
    def style_for(self, t: Trajectory) -> ActionStyle | None:
        """The style whose tools a trajectory has; None if no style has them."""

    @abstractmethod
    def stranger(self, row: Mapping[str, Any]) -> str:
        """Why a row without a style is not read."""

    def sniff(self, row: Mapping[str, Any]) -> bool:
        shape = self.find_shape(row)
        try:
            return self.style_of(row, self.read_turns(row, shape), shape) is not None
        except RowError:
            return False

    def read(self, row: Mapping[str, Any]) -> Trajectory:
        shape = self.find_shape(row)
        turns = self.read_turns(row, shape)
        style = self.style_of(row, turns, shape)
        if style is None:
            raise RowError(Code.BAD_ROW, self.stranger(row))
        memo: dict[str, Any] = {} if shape is self.shapes[0] else {"container": shape.rows}
        named = self.named and isinstance(row.get("id"), str)
        t = Trajectory(tools=list(style.tools), extra=take_unknown(row, (shape.rows, "id") if named else (shape.rows,)))
        t.task_id = row["id"] if named else None
        if turn_role(turns[0], shape) == "system":
            t.system = turns[0][shape.text]
            memo |= {} if is_same_json(turns[0], make_system_turn(shape, t.system)) else {"head": turns[0]}
            turns = turns[1:]
        if not turns or turn_role(turns[0], shape) != "user":
            raise RowError(Code.BAD_ROW, f"{shape.rows} does not start with a task")
        joined: str | None = None
        headed = "system" in shape.roles.values()
        if not headed and (shown := count_demonstration_turns(turns, shape, style)):
            t.system = read_system_text(turns[0], shape, style)
            if not is_same_json(turns[:shown], self.make_acknowledgement(t.system, shape, style)):
                memo["opening"] = turns[:shown]
            turns = turns[shown:]
        elif not headed:
            joined = t.system = style.split(turns[0][shape.text])[0]
        if not any(turn_role(turn, shape) == "assistant" for turn in turns):
            raise RowError(Code.BAD_ROW, "the agent has no turn")
        if has_turn_after_end(turns, shape, style):
            turns, memo["tail"] = turns[:-1], turns[-1:]
        self.read_body(t, turns, shape, style, joined)
        if memo:
            t.extra[MEMO] = {self.name: memo}
        add_call_ids(t.messages)
        return t

    def read_body(
        self, t: Trajectory, turns: list[Turn], shape: RowShape, style: ActionStyle, joined: str | None
    ) -> None:
        for at, turn in enumerate(turns):
            message = self.read_turn(turn, shape, style, bool(at and t.messages[-1].calls), joined, first=at == 0)
            t.messages += style.finish(message) if message.calls and at == len(turns) - 1 else [message]
            try:
                fresh = self.write_turn(t.messages[at], shape, style, joined, first=at == 0)
            except InexpressibleTurn:
                fresh = {}
            if not is_same_json(fresh, turn):
                t.messages[at].extra[MEMO] = {self.name: {"turn": turn}}

    def write(self, t: Trajectory) -> dict[str, Any]:
        memo = read_memory(t.extra, self.name)
        shape = next((shape for shape in self.shapes if shape.rows == memo.get("container")), self.shapes[0])
        style = self.style_for(t)
        if style is None:
            raise UntrainableError(Code.UNEXPRESSIBLE, "tools", f"{self.name} rows have no place for these tools")
        turns: list[Turn] = []
        joined: str | None = None
        if "system" in shape.roles.values():
            turns = [] if t.system is None else [self.head(memo, t.system, shape)]
        elif t.system is not None:
            turns = self.opening(memo, t.system, shape, style)
            joined = None if turns else t.system
        for at, message in enumerate(style.unfinish(t.messages)):
            try:
                kept = self.kept(message, shape, style, joined, first=at == 0)
                turns.append(kept or self.write_turn(message, shape, style, joined, first=at == 0))
            except InexpressibleTurn as error:
                raise UntrainableError(Code.UNEXPRESSIBLE, f"messages[{at}]", f"{self.name}: {error}") from None
        turns += self.valid(memo.get("tail"), shape)
        named = {"id": t.task_id} if self.named and t.task_id is not None else {}
        row = {**named, shape.rows: turns, **take_carried(t.extra, (shape.rows, *named))}
        self.verify(t, row)
        return row

    def verify(self, t: Trajectory, row: Mapping[str, Any]) -> None:
        """Read the row again. Raises `UntrainableError` if it differs from the trajectory, since it would corrupt the training data."""
        try:
            again = self.read(row)
        except RowError as error:
            raise UntrainableError(Code.UNEXPRESSIBLE, "messages", f"{self.name}: {error}") from None
        if again.system != t.system or not is_same_json(dump_tools(again.tools), dump_tools(t.tools)):
            detail = f"{self.name} rows cannot express this system text with these tools"
            raise UntrainableError(Code.UNEXPRESSIBLE, "system", detail)
        mine, theirs = [visible_content(m) for m in t.messages], [visible_content(m) for m in again.messages]
        for at in range(max(len(mine), len(theirs))):
            if not is_same_json(mine[at : at + 1], theirs[at : at + 1]):
                detail = f"{self.name} rows cannot express this turn here"
                raise UntrainableError(Code.UNEXPRESSIBLE, f"messages[{at}]", detail)

    def find_shape(self, row: Mapping[str, Any]) -> RowShape:
        return next((shape for shape in self.shapes if shape.rows in row), self.shapes[0])

    def read_turns(self, row: Mapping[str, Any], shape: RowShape) -> list[Turn]:
        turns = row.get(shape.rows)
        if not isinstance(turns, list) or not turns:
            raise RowError(Code.BAD_ROW, f"the row has no list {shape.rows!r} of turns")
        for i, turn in enumerate(turns):
            where = f"{shape.rows}[{i}]"
            if not isinstance(turn, dict) or not isinstance(turn.get(shape.text), str):
                raise RowError(Code.BAD_ROW, f"{where} is not an object with a text {shape.text!r}")
            role = turn.get(shape.role)
            if not isinstance(role, str) or role not in shape.roles or (i and shape.roles[role] == "system"):
                raise RowError(
                    Code.UNKNOWN_ROLE, f"{where} is from {role!r}; {self.name} knows {', '.join(shape.roles)}"
                )
            if self.losses and not isinstance(turn.get("loss"), bool | None):
                raise RowError(Code.BAD_ROW, f"{where}: loss is neither true nor false nor null")
        return turns

    def valid(self, turns: Any, shape: RowShape) -> list[Turn]:
        """Return remembered turns; none if they are malformed, since a row from another source may hold anything."""
        try:
            return self.read_turns({shape.rows: turns}, shape) if isinstance(turns, list) else []
        except RowError:
            return []

    def head(self, memo: Mapping[str, Any], system: str, shape: RowShape) -> Turn:
        kept = self.valid([memo.get("head")], shape)
        return {**(kept[0] if kept else {}), **make_system_turn(shape, system)}

    def opening(self, memo: Mapping[str, Any], system: str, shape: RowShape, style: ActionStyle) -> list[Turn]:
        """Return the turns before the task, with the present system text: the turns that were read, or else those of the style."""
        kept = self.valid(memo.get("opening"), shape)
        if not kept:
            return self.make_acknowledgement(system, shape, style)
        text = kept[0][shape.text]
        return [{**kept[0], shape.text: system + text[len(read_system_text(kept[0], shape, style)) :]}, *kept[1:]]

    def make_acknowledgement(self, system: str, shape: RowShape, style: ActionStyle) -> list[Turn]:
        if style.acknowledged is None:
            return []
        pairs = zip(("user", "assistant"), (system, style.acknowledged), (None, False), strict=True)
        return [self.turn(shape, role, text, loss, {}) for role, text, loss in pairs]

    def kept(self, m: Message, shape: RowShape, style: ActionStyle, joined: str | None, *, first: bool) -> Turn | None:
        """Return the turn as it was read; None if the message was edited since."""
        found = self.valid([read_memory(m.extra, self.name).get("turn")], shape)
        if not found or (first and joined is not None and style.split(found[0][shape.text])[0] != joined):
            return None
        read = self.read_turn(found[0], shape, style, m.role == "tool", joined, first=first)
        was = [read, *style.finish(read)[:1]] if read.calls else [read]
        now = [visible_content(m), m.train, take_carried(m.extra, ())]
        same = any(is_same_json([visible_content(w), w.train, take_carried(w.extra, ())], now) for w in was)
        return found[0] if same else None

    def read_turn(
        self, turn: Turn, shape: RowShape, style: ActionStyle, after_call: bool, joined: str | None, *, first: bool
    ) -> Message:
        """The turn as a message. `joined`: the system text that the first turn begins with."""
        text, role = turn[shape.text], turn_role(turn, shape)
        if role == "assistant":
            message = style.read_agent(text)
        elif after_call:
            message = Message(role="tool", content=style.read_result(text))
        else:
            system, task = style.split(text) if first else (None, text)
            # If the system text is in another turn, text of its form here is a part of the task.
            message = Message(role="user", content=task if system == joined else text)
        message.train = turn.get("loss") if self.losses else None
        message.extra = take_unknown(turn, self.fields(shape))
        return message

    def write_turn(self, m: Message, shape: RowShape, style: ActionStyle, joined: str | None, *, first: bool) -> Turn:
        if m.role == "assistant":
            return self.turn(shape, m.role, style.write_agent(m), True if m.train is None else m.train, m.extra)
        if not isinstance(m.content, str):
            raise InexpressibleTurn("its content is not text")
        text = style.write_result(m.content) if m.role == "tool" else m.content
        return self.turn(shape, "user", style.join(joined, text) if first else text, m.train, m.extra)

    def turn(self, shape: RowShape, role: str, text: str, loss: bool | None, extra: Mapping[str, Any]) -> Turn:
        name = next(name for name, known in shape.roles.items() if known == role)
        middle = {"loss": loss} if self.losses else {}
        return {shape.role: name, **middle, shape.text: text, **take_carried(extra, self.fields(shape))}

    def fields(self, shape: RowShape) -> tuple[str, ...]:
        return (shape.role, shape.text, "loss") if self.losses else (shape.role, shape.text)


def turn_role(turn: Turn, shape: RowShape) -> str:
    return shape.roles[turn[shape.role]]


def make_system_turn(shape: RowShape, text: str) -> Turn:
    return {shape.role: "system", shape.text: text}


def read_system_text(turn: Turn, shape: RowShape, style: ActionStyle) -> str:
    """The system text of a turn before the task: all of it, unless a demonstration's task follows."""
    text: str = turn[shape.text]
    return style.split(text)[0] or text


def count_demonstration_turns(turns: Sequence[Turn], shape: RowShape, style: ActionStyle) -> int:
    """Count the turns before the task: instructions that the agent acknowledges, or tasks shown as examples."""
    shown = 0
    for at in range(2, len(turns)):
        before, turn = turns[at - 1], turns[at]
        if turn_role(before, shape) != "assistant":
            continue
        if before.get("loss") is True:
            break
        polite = at == 2 and not style.acts(before[shape.text])
        if turn_role(turn, shape) == "user" and (polite or style.starts(turn[shape.text], before.get("loss") is False)):
            shown = at
    return shown


def has_turn_after_end(turns: Sequence[Turn], shape: RowShape, style: ActionStyle) -> bool:
    """Whether a turn of the environment follows the agent's closing action at the end of the row."""
    if len(turns) < 2 or turn_role(turns[-1], shape) != "user" or turn_role(turns[-2], shape) != "assistant":
        return False
    text = turns[-2][shape.text]
    return style.acts(text) and style.closes(style.read_agent(text))


def visible_content(m: Message) -> list[Any]:
    """Return the visible parts of a message, for comparison. Empty text of a message with calls counts as no text."""
    content = (m.content or None) if m.calls else m.content
    return [m.role, content, m.reasoning or None, [[call.name, call.arguments, call.raw] for call in m.calls]]
