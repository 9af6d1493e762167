"""Length-prefixed JSON over a socket, and the passing of one descriptor with a frame. Used on both sides of the wall."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

HEAD = struct.Struct("!I")
MOST = 256 * 1024 * 1024
MOST_LEVELS = 100  # of lists and objects within each other: a record with more than 254 could not be written


ENVELOPE = 3  # levels of a frame itself: [[number, [status, value]], …]


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


def count_values(body: bytes, most: int) -> int:
    """An upper bound of the JSON values in a text, without parsing it: lists of empty lists take 30 times their bytes once read.

    The bound counts commas and brackets. Only where those inside of strings could matter are the strings left out.
    """
    found = body.count(b",") + body.count(b"[") + body.count(b"{")
    if found <= most:
        return found
    quotes = body.count(b'"')
    if quotes > 4 * most:
        return quotes // 4
    outside = b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{")


def unpack_bounded(body: bytes, most: int) -> Any:
    """The value, if it holds at most so many, nests no deeper than a few levels more than `MOST_LEVELS`, and is Unicode.
    Raises `ValueError`, or `RecursionError`."""
    if len(body) > most and count_values(body, most) > most:
        raise ValueError(f"a frame of more than {most:,} values")
    value = unpack(body)
    if body.count(b"[") + body.count(b"{") > MOST_LEVELS and nests_deeper(value, MOST_LEVELS + ENVELOPE):
        raise ValueError(f"a frame of more than {MOST_LEVELS} levels")
    if body[:1] == b" ":  # the slow reader takes half a Unicode character; it cannot be encoded again
        json.dumps(value, ensure_ascii=False).encode()
    return value


def nests_deeper(value: Any, most: int) -> bool:
    """Whether lists and objects within each other make more than `most` levels. Works level by level, so that no depth is too much."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        if not level:
            return False
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


class Closed(Exception):  # noqa: N818 - an ending
    """The other side is gone."""


class Reader:
    """Frames out of a blocking socket, with the descriptors that came along.

    `most`: bytes of a frame; `values`: JSON values of one, 0 for any number; `accepts`: descriptors that a read may bring.
    """

    def __init__(self, sock: socket.socket, *, most: int = MOST, values: int = 0, accepts: int = 4) -> None:
        self._sock, self._most, self._values = sock, most, values
        self._held = bytearray()
        self.accepts = accepts
        self.descriptors: list[int] = []

    def next(self, within: float | None = None) -> Any:
        """The next frame. Raises `Closed`, and `TimeoutError` when the whole of it is not there `within` so many seconds."""
        held = self._held
        deadline = None if within is None else time.monotonic() + within
        while len(held) < HEAD.size or len(held) < HEAD.size + HEAD.unpack_from(held)[0]:
            if deadline is not None:  # for the frame, not for each part of it: a byte now and then must not renew it
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._sock.settimeout(left)
            chunk = self._receive()
            if not chunk:
                raise Closed
            held += chunk
            if len(held) >= HEAD.size and HEAD.unpack_from(held)[0] > self._most:
                raise ValueError("a frame larger than any that is sent")
        size = HEAD.unpack_from(held)[0]
        body = bytes(held[HEAD.size : HEAD.size + size])
        del held[: HEAD.size + size]
        return unpack_bounded(body, self._values) if self._values else unpack(body)

    def _receive(self) -> bytes:
        if not self.accepts:
            return self._sock.recv(1 << 18)
        chunk, descriptors, _, _ = socket.recv_fds(self._sock, 1 << 18, self.accepts, socket.MSG_CMSG_CLOEXEC)
        self.descriptors += descriptors
        return chunk
