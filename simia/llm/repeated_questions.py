"""Ask again for a reply that could not be read: the first question, the reply, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BEFORE = "This reply cannot be used: "
AFTER = "\nReply again, in the form that was asked for."


def repeat_question(first: dict[str, Any], reply: str, fault: str) -> list[dict[str, Any]]:
    """Return the messages that ask again. `first`: the question's message; `fault`: what was wrong with the reply."""
    return [
        first,
        {"role": "assistant", "content": reply},
        {"role": "user", "content": f"{BEFORE}{fault}{AFTER}"},
    ]


def read_repeated(messages: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the reply that could not be read and what was wrong with it; None for a question that is asked for the first time."""
    if len(messages) != 3:
        return None
    _, reply, again = (message.get("content") for message in messages)
    if not isinstance(reply, str) or not isinstance(again, str):
        return None
    if not again.startswith(BEFORE) or not again.endswith(AFTER):
        return None
    return reply, again.removeprefix(BEFORE).removesuffix(AFTER)
