"""Parse a stored reply into messages, or say why it cannot be parsed. It is a pure function, so `recheck` can parse old replies again.

The requested form is read as written; known errors are repaired and named; an ambiguous reply is refused.
The authors' parser split at any line that began with `A:` and lost indentation and blank lines. Here only tags on their
own lines separate turns. Role words separate turns only if there is no tag at all and they cannot be content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from simia.errors import Code, Issue
from simia.formats.reply.dialect_json import UnknownRole, read_json_reply
from simia.formats.reply.dialect_plain import read_plain_reply
from simia.formats.reply.dialect_tagged import read_tagged_reply
from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.message_assembly import Reading, assemble_messages
from simia.formats.reply.well_formed import read_well_formed
from simia.trajectory import Message

Form = Literal["json", "tagged", "auto"]
FENCE_OPEN = re.compile(r"\s*```[\w+-]*[ \t]*\n")
FENCE_CLOSE = re.compile(r"\n[ \t]*```\s*\Z")
OWN_THOUGHT = re.compile(r"\s*<think(?:ing)?>(.*?)</think(?:ing)?>\s*", re.S | re.I)
REFUSAL = re.compile(
    r"\b(?:i['’]?m sorry|i am sorry|sorry,? (?:but )?i|i apologi[sz]e|i (?:can['’]?t|cannot|won['’]?t)\b|"
    r"i['’]?m (?:unable|not able)|i am (?:unable|not able)|as an ai\b)",
    re.I,
)
HEAD = 300
MESSAGES = TypeAdapter(list[Message])  # one validation of all messages costs half as much as one by one


@dataclass(slots=True)
class ParsedReply:
    """Messages of a reply. `issues` is empty if and only if the messages can be used; `repairs`: the repairs in order."""

    messages: list[Message] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] | None = field(default=None, compare=False)
    """The messages as they are stored, if the parser has them; changing a message drops them."""


def parse_reply(text: str, reasoning: str | None = None, *, form: Form = "auto") -> ParsedReply:
    """Read a reply. `reasoning` is the endpoint's separate channel: the model's own reasoning, never a trajectory."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    body = text.strip("\ufeff \t\n")
    if not body:
        detail = "everything went into the reasoning channel" if reasoning and reasoning.strip() else ""
        return ParsedReply(issues=[Issue(code=Code.EMPTY_REPLY, detail=detail)])
    if form == "auto":
        inner = strip_fence(body)
        if found := read_well_formed(inner):
            rows, mended = found
            repairs = mended if inner is body else ["code_fence", *mended]
            return ParsedReply(MESSAGES.validate_python(rows), repairs=repairs, rows=rows)
    repairs = []
    try:
        content = strip_own_reasoning(text, repairs)
        reading = read_form(content, form, repairs)
        if reading is None or not reading.turns:
            raise Unreadable("no turns were found")
        reading.repairs = dict.fromkeys([*repairs, *reading.repairs])
        rows, issues = assemble_messages(reading)
    except UnknownRole as error:
        return ParsedReply(issues=[Issue(code=Code.UNKNOWN_ROLE, detail=str(error))], repairs=repairs)
    except Unreadable as error:
        return ParsedReply(issues=[classify_failure(body, str(error))], repairs=repairs)
    return ParsedReply(MESSAGES.validate_python(rows), issues, list(reading.repairs), rows)


def read_form(text: str, form: Form, repairs: list[str]) -> Reading | None:
    inner = strip_fence(text)
    starts_json = inner.lstrip("\ufeff \t\n").startswith(("{", "["))
    if form == "json" or (form == "auto" and starts_json):
        return read_json_reply(text)
    if inner is not text:
        repairs.append("code_fence")
    tagged = read_tagged_reply(inner)
    if tagged is not None:
        return tagged
    if starts_json or '"messages"' in inner or '"conversations"' in inner:
        return read_json_reply(text)
    return read_plain_reply(inner)


def strip_fence(text: str) -> str:
    """Return the inside of a fence around everything, also of one that is never closed."""
    if not (opened := FENCE_OPEN.match(text)):
        return text
    closed = FENCE_CLOSE.search(text, opened.end())
    return text[opened.end() : closed.start() if closed else len(text)]


def strip_own_reasoning(text: str, repairs: list[str]) -> str:
    """Drop the reasoning at the start of a reply; drafts in it are not turns."""
    if "think" not in text:
        return text
    if own := OWN_THOUGHT.match(text):
        repairs.append("dropped_thought")
        return text[own.end() :]
    if text.lstrip().startswith("<think"):
        raise Unreadable("the model never left its own thinking")
    # Some chat templates put `<think>` into the prompt, so that the reply holds only `</think>`.
    end = text.find("</think>")
    if end >= 0 and "<think>" not in text[:end]:
        repairs.append("dropped_thought")
        return text[end + len("</think>") :]
    return text


def classify_failure(body: str, detail: str) -> Issue:
    """Classify an unreadable reply: if the model declined, the reply begins with a refusal and has no turns."""
    if body[0] not in "{[<`" and len(body) < 4 * HEAD and REFUSAL.search(body[:HEAD]):
        return Issue(code=Code.REFUSAL, detail=body[:120])
    return Issue(code=Code.UNPARSABLE, detail=detail)
