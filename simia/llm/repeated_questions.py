"""Ask again for a reply that could not be used: the question, the reply, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNUSABLE = "This reply cannot be used: {why}\nReply again, in the form that was asked for."
UNREADABLE_VERDICT = (
    "That could not be read as a verdict: {why}. "
    "Answer once more, with one JSON object in the form described, each point once, `pass` true or false."
)
UNREADABLE_ANSWERS = (
    "That could not be read: {why}. Answer all calls once more, with one JSON object in the form described."
)
FAULTY_ANSWERS = (
    "That answer cannot stand: {why}. Answer all calls once more, in the same form, so that this is mended."
)
COMPLAINTS = tuple(form.split("{why}") for form in (UNUSABLE, UNREADABLE_VERDICT, UNREADABLE_ANSWERS, FAULTY_ANSWERS))


def repeat_question(first: dict[str, Any], reply: str, fault: str) -> list[dict[str, Any]]:
    """Return the messages that ask again. `first`: the question's message; `fault`: what was wrong with the reply."""
    return [
        first,
        {"role": "assistant", "content": reply},
        {"role": "user", "content": UNUSABLE.format(why=fault)},
    ]


def read_repeated(messages: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the reply that could not be used and what was wrong with it; None for a question that is asked for the first time.

    The last two messages are the reply and the complaint; those before them are the question as it was asked first.
    """
    if len(messages) < 3 or messages[-2].get("role") != "assistant":
        return None
    reply, again = (message.get("content") for message in messages[-2:])
    if not isinstance(reply, str) or not isinstance(again, str):
        return None
    for before, after in COMPLAINTS:
        if again.startswith(before) and again.endswith(after):
            return reply, again.removeprefix(before).removesuffix(after)
    return None
