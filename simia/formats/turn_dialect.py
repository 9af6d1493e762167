"""The base class of dialects with a list of turns: it splits a row, keeps its original form, pairs results, writes it back.

A row consists of a *head* (the parts with system text and tools: a leading system turn, row fields, or both), *groups* of
turns, and unknown fields. A group is the shortest run of turns that gives whole messages: consecutive results, or a text and
its calls. A dialect only defines how a head and a group are read, and how they are written canonically. The base class
keeps the original if it differs from the canonical form (see `simia.formats.dialect`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel, ValidationError

from simia.errors import Code
from simia.formats import row_tools
from simia.formats.dialect import (
    MEMO,
    RowError,
    dump_json,
    is_same_json,
    parse_json,
    read_memory,
    take_carried,
    take_unknown,
)
from simia.tool import ToolSpec
from simia.trajectory import Message, Trajectory, sort_results

Turn = dict[str, Any]
TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}  # type → field of its text
MEDIA = frozenset(  # types of parts that no tool's own JSON result has
    (
        "image",
        "image_url",
        "input_image",
        "audio",
        "audio_url",
        "input_audio",
        "video",
        "video_url",
        "file",
        "input_file",
    )
)

MEDIA_COLUMNS = ("images", "videos", "audios")  # columns of LLaMA-Factory's rows, whose texts say <image>


@dataclass(frozen=True)
class RowShape:
    """The field names of turns. `roles` maps every spelling of a role that is read to our role or to a kind of turn."""

    rows: str
    role: str
    text: str
    roles: Mapping[str, str]


@dataclass(frozen=True)
class RowHead:
    """The parts of a row that hold system text and tools."""

    turns: list[Turn] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)


class HeadHabit(BaseModel):
    """How one row's head differs from the dialect's canonical one. It is kept when the system text or the tools are edited.

    `turn`: the system turn without its text; `text` and `nested`: see `tools`; `column`: tools in a field of the row too.
    """

    turn: dict[str, Any] | None = None
    text: bool | None = None
    nested: bool | None = None
    column: bool | None = None


class TurnDialect(ABC):
    """Base class of dialects with a list of turns. Subclasses define the shape, and read and write heads and groups."""

    name: str
    shape: RowShape
    head_fields: tuple[str, ...] = ("tools",)
    tools_text: bool | None = (
        None  # canonical style of the field `tools`: JSON text, nested under `function`; None: no such field
    )
    tools_nested: bool | None = None
    says_ids: bool = False  # the dialect has ids of calls and names of results
    mark: Mapping[str, Any] = {}  # what the row's memory always holds; read only

    @abstractmethod
    def read_head(self, head: RowHead) -> tuple[str | None, list[ToolSpec]]: ...

    def write_head(self, system: str | None, specs: list[ToolSpec], habit: HeadHabit) -> RowHead:
        turn = {self.shape.role: "system", **(habit.turn or {}), self.shape.text: system}
        text = self.tools_text if habit.text is None else habit.text
        nested = self.tools_nested if habit.nested is None else habit.nested
        fields = {"tools": row_tools.write_tools(specs, text=bool(text), nested=bool(nested))} if specs else {}
        return RowHead([] if system is None else [turn], fields)

    def habit(self, head: RowHead) -> HeadHabit:
        """Return how a head that could be read differs from the canonical one."""
        turn = {key: value for key, value in head.turns[0].items() if key != self.shape.text} if head.turns else None
        text, nested = row_tools.detect_tool_style(head.fields.get("tools"))
        return HeadHabit(
            turn=None if turn == {self.shape.role: "system"} else turn,
            text=None if nested is None or text == self.tools_text else text,
            nested=None if nested == self.tools_nested else nested,
        )

    def continues(self, before: Turn, turn: Turn) -> bool:
        """Whether a turn belongs to the group of the turn before it."""
        return False

    def groups(self, turns: list[Turn]) -> Iterator[list[Turn]]:
        group: list[Turn] = []
        for turn in turns:
            if group and not self.continues(group[-1], turn):
                yield group
                group = []
            group.append(turn)
        if group:
            yield group

    @abstractmethod
    def read_group(self, turns: list[Turn]) -> list[Message]:
        """Read at least one message. Ids that the dialect does not have are left empty; `add_call_ids` makes them."""

    @abstractmethod
    def write_group(self, messages: list[Message]) -> list[Turn]: ...

    def span(self, messages: list[Message], at: int) -> int:
        """Return how many messages from `at` on are one group in the canonical form."""
        return 1

    def read(self, row: Mapping[str, Any]) -> Trajectory:
        refuse_media(row)
        turns = self.read_turns(row)
        known = (self.shape.rows, *self.head_fields)
        fields = {key: row[key] for key in self.head_fields if key in row}
        lead = int(bool(turns) and self.kind(turns[0]) == "system" and fields.get("system") is None)
        head = RowHead(turns[:lead], fields)
        extra = take_unknown(row, known)
        memo = dict(self.mark)
        try:
            system, specs = self.read_head(head)
            habit = self.habit(head)
            if habit != HeadHabit():
                memo["habit"] = habit.model_dump(exclude_none=True)
            if not is_same_json(dump_head(self.write_head(system, specs, habit)), dump_head(head)):
                memo["head"] = dump_head(head)
            messages = self.read_messages(turns[lead:], lead)
            add_call_ids(messages)
            if memo:
                extra[MEMO] = {self.name: memo}
            return Trajectory(system=system, tools=specs, messages=messages, extra=extra)
        except ValidationError as error:
            raise RowError(Code.BAD_ROW, error.errors()[0]["msg"]) from None

    def read_turns(self, row: Mapping[str, Any]) -> list[Turn]:
        """The turns, each an object with a role that the dialect knows."""
        turns = row.get(self.shape.rows)
        if not isinstance(turns, list):
            raise RowError(Code.BAD_ROW, f"the row has no list {self.shape.rows!r}")
        for i, turn in enumerate(turns):
            if not isinstance(turn, dict):
                raise RowError(Code.BAD_ROW, f"{self.shape.rows}[{i}] is not an object")
            if not isinstance(turn.get(self.shape.role), str):
                raise RowError(Code.BAD_ROW, f"{self.shape.rows}[{i}] has no {self.shape.role!r}")
            if turn[self.shape.role] not in self.shape.roles:
                said = f"{self.shape.rows}[{i}] is from {turn[self.shape.role]!r}"
                raise RowError(Code.UNKNOWN_ROLE, f"{said}; {self.name} knows {', '.join(self.shape.roles)}")
        return turns

    def read_messages(self, turns: list[Turn], lead: int) -> list[Message]:
        messages: list[Message] = []
        at = lead
        groups = list(self.groups(turns))
        for group, following in zip_longest(groups, groups[1:]):
            try:
                part = self.read_group(group)
            except RowError as error:
                raise RowError(error.code, f"{self.shape.rows}[{at}]: {error.detail}") from None
            if messages and (following is None or self.kind(following[0]) != "tool"):
                part = split_listed_result(part, len(messages[-1].calls))
            if not is_same_json(self.write_group(part), group) or (self.says_ids and lacks_ids(part)):
                part[0].extra[MEMO] = {self.name: {"turns": group, "span": len(part)}}
            messages += part
            at += len(group)
        return messages

    def write(self, t: Trajectory) -> dict[str, Any]:
        memo = read_memory(t.extra, self.name)
        head = self.find_kept_head(memo, t) or self.write_head(t.system, t.tools, read_remembered_habit(memo))
        turns, at = list(head.turns), 0
        messages = t.messages if self.says_ids else sort_results(t.messages)
        while at < len(messages):
            kept, span = self.find_kept_turns(messages, at)
            span = span or self.span(messages, at)
            turns += kept or self.write_group(messages[at : at + span])
            at += span
        known = (self.shape.rows, *self.head_fields)
        return {self.shape.rows: turns, **head.fields, **take_carried(t.extra, known)}

    def find_kept_head(self, memo: Mapping[str, Any], t: Trajectory) -> RowHead | None:
        """Return the head as it was read; None if the system text or the tools were edited since."""
        kept = memo.get("head")
        if not isinstance(kept, dict) or not isinstance(kept.get("fields"), dict):
            return None
        try:
            head = RowHead(self.read_turns({self.shape.rows: kept.get("turns")}), kept["fields"])
            system, specs = self.read_head(head)
        except RowError:
            return None
        return head if is_same_json([system, dump_tools(specs)], [t.system, dump_tools(t.tools)]) else None

    def find_kept_turns(self, messages: list[Message], at: int) -> tuple[list[Turn] | None, int]:
        """Return (turns, number of messages) as they were read; (None, 0) if these messages were edited since."""
        memo = read_memory(messages[at].extra, self.name)
        turns, span = memo.get("turns"), memo.get("span")
        if not turns or not isinstance(span, int) or span < 1:
            return None, 0
        try:
            turns = self.read_turns({self.shape.rows: turns})
            reread = split_listed_result(self.read_group(turns), span)
        except RowError:
            return None, 0
        present = messages[at : at + span]
        return (turns, span) if is_same_json(self.seen(reread, present), self.seen(present, present)) else (None, 0)

    def seen(self, messages: list[Message], present: list[Message]) -> list[Any]:
        """Return the parts of messages that the dialect can express, for comparison. Missing ids are taken from `present`."""
        said: list[Any] = []
        for i, m in enumerate(messages):
            now = present[i] if i < len(present) else m
            calls = []
            for j, call in enumerate(m.calls):
                made = now.calls[j].id if j < len(now.calls) else ""
                calls.append(
                    [(call.id or made) if self.says_ids else "", call.name, call.arguments, call.raw, call.extra]
                )
            ids = [m.call_id or now.call_id, m.name] if self.says_ids else []
            said.append([m.role, m.content, m.reasoning, calls, ids, take_carried(m.extra, ())])
        return said

    def kind(self, turn: Turn) -> str:
        return self.shape.roles[turn[self.shape.role]]

    def value(self, turn: Turn) -> str | None:
        """Return the content of a turn: text, the joined text of parts, or None."""
        if self.shape.text not in turn:
            raise RowError(Code.BAD_ROW, f"the turn has no {self.shape.text!r}")
        return read_content(turn[self.shape.text], result=self.kind(turn) == "tool")

    def read_results(self, turn: Turn, split: Callable[[str], list[str] | None]) -> list[Message]:
        """The results that one turn holds. `split` takes its text apart; None: the text is one result."""
        value, extra = self.value(turn), self.read_turn_extra(turn)
        contents: list[Any] = (split(value) if isinstance(value, str) else None) or [value]
        first = Message(role="tool", content=contents[0], extra=extra)
        return [first, *(Message(role="tool", content=each) for each in contents[1:])]

    def turn(self, role: str, value: Any, extra: Mapping[str, Any] | None = None) -> Turn:
        known = (self.shape.role, self.shape.text)
        return {self.shape.role: role, self.shape.text: value, **take_carried(extra or {}, known)}

    def read_turn_extra(self, turn: Turn) -> dict[str, Any]:
        return take_unknown(turn, (self.shape.role, self.shape.text))


def find_roles(row: Mapping[str, Any], shape: RowShape) -> set[str] | None:
    """Return the role names in a row's turns; None if the row has another shape."""
    turns = row.get(shape.rows)
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return None
    found = {turn.get(shape.role) for turn in turns if isinstance(turn.get(shape.role), str | None)}
    return found if found and None not in found else None


def refuse_media(row: Mapping[str, Any]) -> None:
    """Raise `RowError` for a row with a column of images, videos or audios that is not empty."""
    for column in MEDIA_COLUMNS:
        value = row.get(column)
        if any(value) if isinstance(value, list) else value:
            raise RowError(Code.UNKNOWN_PART, f"the row has {column}; simia reads text alone")


def read_content(value: Any, *, result: bool) -> str | None:
    """The text of a content: text, a list of text parts, or null. A tool's result that is any other JSON value is taken as its text.

    Raises `RowError` for a part that is not text.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in value):
        texts = [read_text_part(part) for part in value]
        if None not in texts:
            return "".join(text for text in texts if text is not None)
        if not result or any(part["type"] in MEDIA for part in value):
            kinds = ", ".join(dict.fromkeys(p["type"] for p, text in zip(value, texts, strict=True) if text is None))
            raise RowError(Code.UNKNOWN_PART, f"the content has parts of type {kinds:.100}; simia reads text alone")
    if result:
        return dump_json(value)
    raise RowError(Code.BAD_ROW, f"the content is {type(value).__name__}, neither text nor a list of parts")


def read_text_part(part: Mapping[str, Any]) -> str | None:
    """The text of a part; None for a part that holds no text."""
    text = part.get(TEXT_PARTS.get(part["type"], ""))
    return text if isinstance(text, str) else None


def split_listed_result(messages: list[Message], calls: int) -> list[Message]:
    """Split a single result that is a JSON list of as many elements as there are calls: LLaMA-Factory's rows allow one observation."""
    first = messages[0]
    if calls < 2 or len(messages) > 1 or first.role != "tool" or first.call_id or not first.text.startswith("["):
        return messages
    try:
        values = parse_json(first.text)
    except ValueError:
        return messages
    if not isinstance(values, list) or len(values) != calls:
        return messages
    contents = [value if isinstance(value, str) else dump_json(value) for value in values]
    rest = [Message(role="tool", content=each, call_id=first.call_id, name=first.name) for each in contents[1:]]
    return [first.model_copy(update={"content": contents[0]}), *rest]


def add_call_ids(messages: list[Message]) -> None:
    """Add missing ids: call_1, call_2, … to calls; results get the ids of the last calls before them.

    A result gets the first open call with its name, if it has one, else the first open call.
    """
    taken = {call.id for message in messages for call in message.calls if call.id}
    number = 0
    waiting: dict[str, str] = {}
    for message in messages:
        if message.calls:
            waiting = {}
        for call in message.calls:
            while not call.id:
                number += 1
                if f"call_{number}" not in taken:
                    call.id = f"call_{number}"
            waiting[call.id] = call.name
        if message.role == "tool":
            if not message.call_id:
                first = next(iter(waiting), None)
                message.call_id = next((call_id for call_id, name in waiting.items() if name == message.name), first)
            waiting.pop(message.call_id or "", None)


def lacks_ids(messages: list[Message]) -> bool:
    return any(m.call_id == "" or any(not call.id for call in m.calls) for m in messages)


def read_remembered_habit(memo: Mapping[str, Any]) -> HeadHabit:
    """Return the habit that a reader stored; the default if it is malformed, since a row from another source may hold anything."""
    try:
        return HeadHabit.model_validate(memo.get("habit", {}))
    except ValidationError:
        return HeadHabit()


def dump_head(head: RowHead) -> dict[str, Any]:
    return {"turns": head.turns, "fields": head.fields}


def dump_tools(specs: list[ToolSpec]) -> list[dict[str, Any]]:
    return [spec.model_dump(exclude={"identifiers"}) for spec in specs]
