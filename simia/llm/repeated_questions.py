"""Ask again for a reply that could not be read: the first question, the reply, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BEFORE = "This reply cannot be used: "
AFTER = "\nReply again, in the form that was asked for."
VERDICT_BEFORE = "That could not be read as a verdict: "
VERDICT_AFTER = ". Answer once more, with one JSON object in the form described, each point once, `pass` true or false."
FORMS = ((BEFORE, AFTER), (VERDICT_BEFORE, VERDICT_AFTER))


def repeat_question(first: dict[str, Any], reply: str, fault: str) -> list[dict[str, Any]]:
    """Return the messages that ask again. `first`: the question's message; `fault`: what was wrong with the reply."""
    return [
        first,
        {"role": "assistant", "content": reply},
        {"role": "user", "content": f"{BEFORE}{fault}{AFTER}"},
    ]


def read_repeated(messages: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the reply that could not be read and what was wrong with it; None for a question that is asked for the first time."""
    if len(messages) < 3 or messages[-2].get("role") != "assistant":
        return None
    reply, again = (message.get("content") for message in messages[-2:])
    if not isinstance(reply, str) or not isinstance(again, str):
        return None
    for before, after in FORMS:
        if again.startswith(before) and again.endswith(after):
            return reply, again.removeprefix(before).removesuffix(after)
    return None
