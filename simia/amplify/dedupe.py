"""Exact duplicates: the same conversation, whatever its call ids, spacing and letter-case."""

from __future__ import annotations

from typing import Any

import orjson

from simia.amplify.view import View
from simia.trajectory import Message, Trajectory, digest


def content_hash(t: Trajectory, view: View | None = None) -> str:
    """Hash of what is said and called. Reasoning, system text and tools do not make a conversation a different one."""
    lows = view.lows if view else [message.text.lower() for message in t.messages]
    turns = [normal_message(m, low) for m, low in zip(t.messages, lows, strict=True) if m.role != "system"]
    return digest(turns)


def normal_message(message: Message, low: str) -> list[Any]:
    calls = [[call.name, normal_arguments(call.arguments) or normal_text(call.raw or "")] for call in message.calls]
    # Between JSON's tokens any space is void, so in results none counts.
    return [message.role, "".join(low.split()) if message.role == "tool" else " ".join(low.split()), calls]


def normal_text(text: str) -> str:
    return " ".join(text.lower().split())


def normal_arguments(arguments: dict[str, Any] | None) -> str:
    if arguments is None:
        return ""
    return normal_text(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode().replace("\\n", " "))
