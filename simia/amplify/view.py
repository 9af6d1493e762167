"""What several checks read of a trajectory, made once: its texts, the same in lower case, its arguments as JSON.

At thousands of trajectories a second the checks' time is the time of walking strings; walking each once is what halves it.
"""

from __future__ import annotations

import orjson

from simia.trajectory import ToolCall, Trajectory


class View:
    """Lists parallel to `t.messages`. Made for one check of an unchanged trajectory, and thrown away."""

    __slots__ = ("arguments", "lows", "t", "texts")

    def __init__(self, t: Trajectory) -> None:
        self.t = t
        self.texts = [m.content if isinstance(m.content, str) else m.text for m in t.messages]
        self.lows = [text.lower() for text in self.texts]
        self.arguments = [[arguments_text(call) for call in m.calls] if m.calls else NONE for m in t.messages]


NONE: list[bytes] = []


def arguments_text(call: ToolCall) -> bytes:
    return orjson.dumps(call.arguments) if call.arguments is not None else (call.raw or "").encode()
