"""What several checks read of a trajectory, made once: its texts, the same in lower case, its arguments as JSON.

At thousands of trajectories a second the checks' time is the time of walking strings; walking each once is what halves it.
"""

from __future__ import annotations

import orjson

from simia.trajectory import ToolCall, Trajectory


class View:
    """Made for one check of an unchanged trajectory, and thrown away.

    `texts`, `lows` and `arguments` (JSON, keys sorted) are parallel to `t.messages`. `raw` is all that is said and called, as
    UTF-8; `style` all that the model's own style shows in, in lower case: no results, save those that hold chat markup.
    """

    __slots__ = ("arguments", "lows", "raw", "style", "t", "texts")

    def __init__(self, t: Trajectory) -> None:
        self.t = t
        self.texts: list[str] = []
        self.lows: list[str] = []
        self.arguments: list[list[bytes]] = []
        said: list[str] = []
        style: list[str] = []
        for message in t.messages:
            content, role = message.content, message.role
            text = content if type(content) is str else message.text
            low = text.lower()
            self.texts.append(text)
            self.lows.append(low)
            if message.calls:
                given = [arguments_text(call) for call in message.calls]
                self.arguments.append(given)
                called = [part.decode() for part in given]
                style += [part.lower() for part in called]
            else:
                self.arguments.append(NONE)
                called = []
            if role == "system":
                continue
            said += (role, text)
            for call, part in zip(message.calls, called, strict=True):
                said += (call.name, part)
            if message.reasoning:
                style.append(message.reasoning.lower())
            if role != "tool" or "<|" in text:
                style.append(low)
        self.raw = SEPARATOR.join(said).encode()
        self.style = "\n".join(style)


NONE: list[bytes] = []
SEPARATOR = "\x1f"  # stands in no text that a person or a model writes


def arguments_text(call: ToolCall) -> bytes:
    if call.arguments is None:
        return (call.raw or "").encode()
    return orjson.dumps(call.arguments, option=orjson.OPT_SORT_KEYS)
