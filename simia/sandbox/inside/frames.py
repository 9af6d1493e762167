"""Frames of length-prefixed JSON over a socket, with descriptors passed along. Used inside and outside of the sandbox."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

HEAD = struct.Struct("!I")
MOST = 256 * 1024 * 1024
MOST_LEVELS = 100  # nested lists and objects of a value: orjson cannot write more than 254 levels
ENVELOPE = 3  # levels that a frame adds: [[number, [status, value]], …]


def refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


try:
    import orjson

    def pack_json(value: Any) -> bytes:
        try:
            return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # an integer beyond 64 bits: a leading space marks such a text
            return b" " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def unpack_json(body: bytes) -> Any:
        # orjson would silently round such integers to floats
        return json.loads(body, parse_constant=refuse_constant) if body[:1] == b" " else orjson.loads(body)

except ImportError:  # an imported world's own interpreter

    def pack_json(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def unpack_json(body: bytes) -> Any:
        return json.loads(body)


def make_frame(value: Any) -> bytes:
    body = pack_json(value)
    return HEAD.pack(len(body)) + body


def count_values(body: bytes, most: int) -> int:
    """Return an upper bound of the JSON values in a text without parsing it: parsed lists of empty lists take 30 times their bytes.

    The bound counts commas and brackets. It leaves out strings only if those inside of them could matter.
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
    """Decode JSON with at most `most` values and `MOST_LEVELS` levels plus those of a frame. Raises `ValueError` or `RecursionError`."""
    if len(body) > most and count_values(body, most) > most:
        raise ValueError(f"a frame of more than {most:,} values")
    value = unpack_json(body)
    if body.count(b"[") + body.count(b"{") > MOST_LEVELS and nests_deeper(value, MOST_LEVELS + ENVELOPE):
        raise ValueError(f"a frame of more than {MOST_LEVELS} levels")
    if body[:1] == b" ":  # the slow reader accepts a lone Unicode surrogate, which cannot be encoded again
        json.dumps(value, ensure_ascii=False).encode()
    return value


def nests_deeper(value: Any, most: int) -> bool:
    """Check whether lists and objects within each other make more than `most` levels."""
    level = next(itertools.islice(iterate_levels(value), most, None), [])
    return any(isinstance(each, dict | list) for each in level)


def iterate_levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values in a JSON value level by level, at any depth; endless for a value that contains itself."""
    level = [value]
    while level:
        yield level
        held = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in held for inner in (each.values() if isinstance(each, dict) else each)]


def check_bounds(row: list[Any], most: int) -> None:
    """Raise `ValueError` for an answer that nests too deep (also one that contains itself), or has more characters than `most`."""
    if nests_deeper(row, MOST_LEVELS + 2):
        raise ValueError(f"it nests deeper than {MOST_LEVELS} levels")
    size = sum(len(each) for level in iterate_levels(row) for each in level if isinstance(each, str))
    if size > most:
        raise ValueError(f"it takes at least {size:,} bytes, more than {most:,}")


def join_answers(rows: list[bytes]) -> bytes:
    """Make a frame of answers. If an answer starts with a space (it needs the slow reader), so does the frame."""
    space = b" " if any(row[:1] == b" " for row in rows) else b""
    body = space + b"[" + b",".join(rows) + b"]"
    return HEAD.pack(len(body)) + body


class ChannelClosed(Exception):  # noqa: N818 - an ending
    """The other side is gone."""


class FrameReader:
    """Read frames and passed descriptors from a blocking socket.

    `most`: most bytes of a frame; `values`: most JSON values of a frame, 0 for any number; `accepts`: descriptors that a read may pass.
    """

    def __init__(self, sock: socket.socket, *, most: int = MOST, values: int = 0, accepts: int = 4) -> None:
        self._sock, self._most, self._values = sock, most, values
        self._held = bytearray()
        self.accepts = accepts
        self.descriptors: list[int] = []

    def next(self, within: float | None = None) -> Any:
        """Return the next frame. Raises `ChannelClosed`, and `TimeoutError` if it is not complete after `within` seconds."""
        held = self._held
        deadline = None if within is None else time.monotonic() + within
        while len(held) < HEAD.size or len(held) < HEAD.size + HEAD.unpack_from(held)[0]:
            if deadline is not None:  # one deadline for the whole frame: single bytes that arrive must not extend it
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._sock.settimeout(left)
            chunk = self._receive()
            if not chunk:
                raise ChannelClosed
            held += chunk
            if len(held) >= HEAD.size and HEAD.unpack_from(held)[0] > self._most:
                raise ValueError("a frame larger than any that is sent")
        size = HEAD.unpack_from(held)[0]
        body = bytes(held[HEAD.size : HEAD.size + size])
        del held[: HEAD.size + size]
        return unpack_bounded(body, self._values) if self._values else unpack_json(body)

    def _receive(self) -> bytes:
        if not self.accepts:
            return self._sock.recv(1 << 18)
        chunk, descriptors, _, _ = socket.recv_fds(self._sock, 1 << 18, self.accepts, socket.MSG_CMSG_CLOEXEC)
        self.descriptors += descriptors
        return chunk
