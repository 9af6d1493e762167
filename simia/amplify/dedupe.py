"""Exact duplicates: the same conversation, whatever its call ids, spacing and letter-case."""

from __future__ import annotations

from typing import Any

import orjson

from simia.trajectory import Message, Trajectory, digest


def content_hash(t: Trajectory) -> str:
    """Hash of what is said and called. Reasoning, system text and tools do not make a conversation a different one."""
    return digest([normal_message(message) for message in t.messages if message.role != "system"])


def normal_message(message: Message) -> list[Any]:
    calls = [[call.name, normal_arguments(call.arguments) or normal_text(call.raw or "")] for call in message.calls]
    text = message.text
    # Between JSON's tokens any space is void, so in results none counts.
    return [message.role, "".join(text.lower().split()) if message.role == "tool" else normal_text(text), calls]


def normal_text(text: str) -> str:
    return " ".join(text.lower().split())


def normal_arguments(arguments: dict[str, Any] | None) -> str:
    if arguments is None:
        return ""
    return normal_text(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode().replace("\\n", " "))
