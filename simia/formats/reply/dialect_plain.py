"""Read replies without tags, with role words at line starts (`**HUMAN:**`, `### Assistant`, `User:`). This form is tried last.

Nothing marks the end of such a turn, so this reader is strict: all lines that look like a role line must have the same style.
If one has another letter case, decoration or indentation, it may be content, and the reply is refused.
"""

from __future__ import annotations

import re

from simia.formats.reply.json_scanner import Unreadable
from simia.formats.reply.message_assembly import (
    CALL_ROLES,
    ROLES,
    Reading,
    ReadTurn,
    read_assistant_turn,
    read_result_turn,
    trim_blank_lines,
)
from simia.formats.reply.reply_json import RepairError, read_call_text

# "Function" and "System" are left out: at the start of a line they are ordinary words.
NAMES = {**ROLES, **dict.fromkeys(CALL_ROLES, "call")}
KINDS = {
    spelling: kind
    for name, kind in NAMES.items()
    if kind != "system" and name != "function"
    for spelling in (name, name.replace("_", " "))
}
WORDS = "|".join(sorted(map(re.escape, KINDS), key=len, reverse=True))
ROLE_IN_JSON = re.compile(r'\{\s*"(?:role|from)"\s*:')
LINE = re.compile(
    rf"^(?P<indent>[ \t>*-]*?)(?P<before>#{{1,6}}[ \t]+|\*\*|__|\[)?(?P<word>{WORDS})"
    r"(?P<after>[ \t]*:?[ \t]*(?:\*\*|__|\])[ \t]*:?|[ \t]*:|[ \t]*$)(?P<rest>.*)$",
    re.I | re.M,
)


def read_plain_reply(text: str) -> Reading | None:
    """Read turns that begin with role words; None if no line looks like a role. Raises `Unreadable`."""
    heads = [line for line in LINE.finditer(text) if line["before"] or ":" in line["after"]]
    if not heads:
        return None
    style = describe_style(heads[0])
    for head in heads:
        if describe_style(head) != style or head["indent"]:
            number = text.count("\n", 0, head.start()) + 1
            raise Unreadable(f"line {number} may be a turn or content: {head[0].strip()[:60]!r}")
    if ROLE_IN_JSON.search(text):
        raise Unreadable("turns in words and turns in JSON stand side by side")
    if len({KINDS[head["word"].lower()] for head in heads} & {"user", "assistant"}) < 2:
        return None
    reading = Reading(repairs={"plain_roles": None})
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        body = trim_blank_lines(head["rest"].strip() + text[head.end() : end])
        reading.turns.append(read_plain_turn(KINDS[head["word"].lower()], body, reading))
    return reading


def describe_style(head: re.Match[str]) -> tuple[str, str, str]:
    word = head["word"]
    case = "upper" if word.isupper() else "lower" if word.islower() else "title"
    return (head["before"] or "").strip(), re.sub(r"\s", "", head["after"]), case


def read_plain_turn(kind: str, body: str, reading: Reading) -> ReadTurn:
    if kind == "user":
        return ReadTurn("user", body)
    if kind == "assistant":
        return read_assistant_turn(body, reading)
    if kind == "tool":
        return read_result_turn(body, reading)
    try:
        read, repairs = read_call_text(body)
    except RepairError as error:
        raise Unreadable(f"a call cannot be read: {error}") from None
    if "trailing_text" in repairs:
        raise Unreadable("text after a call")
    reading.repairs.update(dict.fromkeys(repairs))
    return ReadTurn("assistant", calls=read)
