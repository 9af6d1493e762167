"""Continue a reply that was cut at its token limit, once, and join the two halves into one text.

Most of a cut reply is already paid for. The model gets its own text and is asked for the rest. The rest often repeats the last
words, or begins with a new code fence or a line of apology. Such a beginning is removed only if it is unambiguous, and each
removal is named in the joined reply's `body["seam"]`; otherwise the halves are joined unchanged and the parser decides. One error
is accepted: a sentence that the model meant to write twice in a row, once on each side of the seam, is taken for an overlap.
"""

from __future__ import annotations

import re

from simia.llm.types import Reply, Request

ASK = (
    "Your reply was cut off at its length limit. Write only the rest: begin with the very next character after your last "
    "one, repeat nothing, add no comment and no code fence."
)
LEAST_OVERLAP = 20
LEAST_LETTERS = 8  # different ones; a line of dashes or an indentation is no evidence of an overlap
FENCE_OPEN = re.compile(r"\s*```([\w+-]*)[ \t]*\n")
FENCE_CLOSE = re.compile(r"\n?[ \t]*```\s*\Z")
FENCE_LINE = re.compile(r"^[ \t]*```", re.M)
PREAMBLE = re.compile(
    r"\s*(?:(?:i['’]?m |i am )?(?:so |very )?sorry\b|(?:my )?apolog(?:y|ies|i[sz]e)\b|i apologi[sz]e\b|(?:sure|certainly|of course|"
    r"okay|ok|understood|right)\b[,.!]|(?:here(?:['’]s| is)|this is) the (?:rest|remainder|continuation)\b|continu(?:ing|ation|ed)\b|"
    r"picking up\b)[^\n\"{}\[\]<>]{0,160}\n+",
    re.I,
)


def can_continue(reply: Reply) -> bool:
    """Return whether the reply can be continued: truncated, and not entirely spent on reasoning."""
    return reply.truncated and bool(reply.text.strip())


def build_continuation(request: Request, reply: Reply) -> Request:
    """Build the request for the rest. No `response_format`: half a JSON document matches no schema."""
    asked = [
        *request.messages,
        {"role": "assistant", "content": reply.text},
        {"role": "user", "content": ASK},
    ]
    return request.model_copy(update={"messages": asked, "response_format": None})


def join_replies(first: Reply, second: Reply) -> Reply:
    """Join both halves into one reply: usage summed, finish reason of the second."""
    text, seam = splice(first.text, second.text)
    thoughts = [thought for thought in (first.reasoning, second.reasoning) if thought]
    return Reply(
        text=text,
        reasoning="\n".join(thoughts) or None,
        finish=second.finish,
        usage=first.usage + second.usage,
        model=second.model or first.model,
        body={"seam": seam},
    )


def splice(before: str, after: str) -> tuple[str, list[str]]:
    """Return the whole text, and what was removed at the seam."""
    if found := PREAMBLE.match(after):
        rest = after[found.end() :]
        inner, fence = strip_reopened_fence(before, rest)
        # It is a preamble only if a fence or an overlap follows, or if the reply is JSON, which allows no such line.
        if fence or find_overlap(before, inner)[0] or starts_as_json(before):
            text, seam = splice_without_preamble(before, rest)
            return text, ["preamble", *seam]
    return splice_without_preamble(before, after)


def splice_without_preamble(before: str, after: str) -> tuple[str, list[str]]:
    inner, fence = after, False
    repeated, skipped = find_overlap(before, after)
    if not repeated:  # else a fence at its start belongs to the overlap: it repeats the reply's own first line
        inner, fence = strip_reopened_fence(before, after)
        repeated, skipped = find_overlap(before, inner)
    seam = (["fence"] if fence else []) + ([f"overlap of {repeated}"] if repeated else [])
    return before + inner[skipped + repeated :], seam


def find_overlap(before: str, after: str) -> tuple[int, int]:
    """Return (length, white space to skip first) of the longest end of `before` that `after` begins with; 0 if too short."""
    for skipped in dict.fromkeys((0, len(after) - len(after.lstrip()))):
        head = after[skipped : skipped + LEAST_OVERLAP]
        if len(head) < LEAST_OVERLAP or len(set(head)) < LEAST_LETTERS:
            continue
        at = before.find(head)
        while at >= 0:
            if after.startswith(before[at:], skipped):
                return len(before) - at, skipped
            at = before.find(head, at + 1)
    return 0, 0


def strip_reopened_fence(before: str, after: str) -> tuple[str, bool]:
    """Return `after` without a code fence that was reopened around the rest, and whether there was one.

    A fence in a turn's own text looks the same. Counting tells them apart, since fences come in pairs over `before` and `after`.
    """
    opened = FENCE_OPEN.match(after)
    if opened is None or not after[opened.end() :].strip():
        return after, False
    fences = len(FENCE_LINE.findall(after))
    whole = FENCE_OPEN.match(before) is not None
    if (len(FENCE_LINE.findall(before)) - whole) % 2:
        return after, False  # the cut was inside a fence of a turn's text, and this fence closes it
    if whole:  # the reply's own fence is open: the one at the end, if there is one, closes it
        again = fences % 2 == 0 or (fences == 1 and bool(opened[1]))
        return (after[opened.end() :], True) if again else (after, False)
    inner = after[opened.end() :]
    if fences % 2:
        return inner, True
    closed = FENCE_CLOSE.search(inner)
    return (inner[: closed.start()], True) if closed else (after, False)


def starts_as_json(text: str) -> bool:
    opened = FENCE_OPEN.match(text)
    return text[opened.end() if opened else 0 :].lstrip("\ufeff \t\n").startswith(("{", "["))
