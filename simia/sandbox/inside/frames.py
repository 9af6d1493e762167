"""Length-prefixed JSON over a socket, and the passing of one descriptor with a frame. Used on both sides of the wall."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEAD = struct.Struct("!I")
MOST = 256 * 1024 * 1024


def refuse(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


try:
    import orjson

    def pack(value: Any) -> bytes:
        try:
            return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # an integer beyond 64 bits: a space before it says so
            return b" " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def unpack(body: bytes) -> Any:
        # orjson would round such integers to floats without a word
        return json.loads(body, parse_constant=refuse) if body[:1] == b" " else orjson.loads(body)

except ImportError:  # an imported world's own interpreter

    def pack(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def unpack(body: bytes) -> Any:
        return json.loads(body)


def frame(value: Any) -> bytes:
    body = pack(value)
    return HEAD.pack(len(body)) + body


class Closed(Exception):  # noqa: N818 - an ending
    """The other side is gone."""


class Reader:
    """Frames out of a blocking socket, with the descriptors that came along."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = bytearray()
        self.descriptors: list[int] = []

    def next(self) -> Any:
        held = self._held
        while len(held) < HEAD.size or len(held) < HEAD.size + HEAD.unpack_from(held)[0]:
            chunk, descriptors, _, _ = socket.recv_fds(self._sock, 1 << 18, 4)
            self.descriptors += descriptors
            if not chunk:
                raise Closed
            held += chunk
            if len(held) >= HEAD.size and HEAD.unpack_from(held)[0] > MOST:
                raise ValueError("a frame larger than any that is sent")
        size = HEAD.unpack_from(held)[0]
        body = bytes(held[HEAD.size : HEAD.size + size])
        del held[: HEAD.size + size]
        return unpack(body)
