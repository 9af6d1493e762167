"""Texts, lower-case texts and JSON arguments of a trajectory, computed once for all checks.

At thousands of trajectories per second the checks take as long as reading their strings; reading each once halves the time.
"""

from __future__ import annotations

import json

import orjson

from simia.trajectory import ToolCall, Trajectory


class TrajectoryView:
    """The view of one unchanged trajectory.

    `texts`, `lows` and `arguments` (JSON, keys sorted) are parallel to `t.messages`. `raw`: all texts and calls as UTF-8.
    `style`: texts, reasoning and arguments of user and assistant, in lower case, and those tool results that contain chat markup.
    """

    __slots__ = ("arguments", "lows", "raw", "style", "t", "texts")

    texts: list[str]
    lows: list[str]
    arguments: list[list[bytes]]

    def __init__(self, t: Trajectory) -> None:
        self.t = t
        self.texts = texts = []
        self.lows = lows = []
        self.arguments = arguments = []
        said: list[str] = []
        style: list[str] = []
        for message in t.messages:
            content, role, calls = message.content, message.role, message.calls
            text = content if type(content) is str else message.text
            low = text.lower()
            texts.append(text)
            lows.append(low)
            arguments.append([encode_arguments(call) for call in calls] if calls else NONE)
            if role == "system":
                continue
            said.append(role)
            said.append(
                text if type(content) is not list else json.dumps(content, sort_keys=True)
            )  # other parts count too
            if role == "tool":
                if "<|" in text:
                    style.append(low)
                continue
            style.append(low)
            if message.reasoning:
                style.append(message.reasoning.lower())
            if calls:
                for call, given in zip(calls, arguments[-1], strict=True):
                    part = given.decode()
                    said.append(call.name)
                    said.append(part)
                    style.append(part.lower())
        self.raw = SEPARATOR.join(said).encode()
        self.style = "\n".join(style)


NONE: list[bytes] = []
SEPARATOR = "\x1f"  # occurs in no text of a person or a model


def encode_arguments(call: ToolCall) -> bytes:
    """Return a call's arguments as JSON with sorted keys, or its raw text if they could not be parsed."""
    if call.arguments is None:
        return (call.raw or "").encode("utf-8", "replace")
    try:
        return orjson.dumps(call.arguments, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        return json.dumps(call.arguments, sort_keys=True).encode()
