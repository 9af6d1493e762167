"""A fake chat-completions endpoint for load tests, in a process of its own. It is as cheap as possible, so that the client is measured.

It is raw HTTP/1.1 on an asyncio protocol: it reads a request up to its Content-Length, waits `--latency` seconds and sends a
prepared reply; beyond `--admit` concurrent requests it answers 429. `--replies FILE` (JSON lines, `{"pack": …, "pieces": […]}`)
takes replies from a file, in turn: those of the pack that the request names, or else of the first pack. For each list among the pieces,
one of its members is chosen at random. Without a file, every reply is `--bytes` of text. It prints its port, and on SIGTERM a line of
JSON with its counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

REFUSAL = b'{"error":{"message":"too many requests at once","type":"rate_limit_error"}}'


class Counts:
    def __init__(self) -> None:
        self.requests = self.answered = self.refused = self.now = self.most = 0


class Connection(asyncio.Protocol):
    """One client connection, requests one after the other (or pipelined)."""

    def __init__(self, counts: Counts, replies: Replies, latency: float, admit: int) -> None:
        self.counts, self.replies, self.latency, self.admit = counts, replies, latency, admit
        self.buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end]).lower()
            at = head.find(b"content-length:")
            stop = head.find(b"\r\n", at)
            length = int(head[at + 15 : stop if stop >= 0 else None]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            self.serve(body)

    def serve(self, body: bytes) -> None:
        counts = self.counts
        counts.requests += 1
        if counts.now >= self.admit:
            counts.refused += 1
            self.send(b"HTTP/1.1 429 Too Many Requests", REFUSAL)
            return
        counts.now += 1
        counts.most = max(counts.most, counts.now)
        self.loop.call_later(self.latency, self.answer, self.replies.next(body))

    def answer(self, reply: bytes) -> None:
        self.counts.now -= 1
        self.counts.answered += 1
        self.send(b"HTTP/1.1 200 OK", reply)

    def send(self, status: bytes, body: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            head = status + b"\r\nContent-Type: application/json\r\nContent-Length: " + str(len(body)).encode()
            self.transport.write(head + b"\r\n\r\n" + body)


class Replies:
    """Chooses the next reply."""

    def __init__(self, path: Path | None, size: int, malformed: float) -> None:
        self.malformed = malformed
        self.random = random.Random(0)
        self.at = 0
        self.fixed = completion(b"lorem ipsum " * (size // 12))
        self.pools: dict[bytes, list[list[bytes | list[bytes]]]] = {}
        for line in path.read_bytes().splitlines() if path else ():
            row = orjson.loads(line)
            pieces = [escaped(p) if isinstance(p, str) else [escaped(v) for v in p] for p in row["pieces"]]
            self.pools.setdefault(row["pack"].encode(), []).append(pieces)

    def next(self, request: bytes) -> bytes:
        if not self.pools:
            return self.fixed
        self.at += 1
        pool = next((pool for name, pool in self.pools.items() if name in request), None) or next(
            iter(self.pools.values())
        )
        choose = self.random.random
        text = b"".join([p if type(p) is bytes else p[int(choose() * len(p))] for p in pool[self.at % len(pool)]])
        return completion(self.spoilt(text) if choose() < self.malformed else text)

    def spoilt(self, text: bytes) -> bytes:
        """Corrupt a reply, in turn in ways that can be repaired and in ways that cannot."""
        slip = self.at % 5
        if slip == 0:
            return text[: len(text) * 2 // 3].rstrip(b"\\")  # cut
        if slip == 1:
            return text.replace(b'\\"name\\":\\"', b'\\"name\\":\\"no_such_', 1)
        if slip == 2:
            return text.removesuffix(b"]}") + b",]}"
        return b"```json\\n" + text + b"\\n```" if slip == 3 else text.removesuffix(b"}")


def escaped(text: str) -> bytes:
    return orjson.dumps(text)[1:-1]


def completion(text: bytes, prompt: int = 3000) -> bytes:
    """`text`: the inside of a JSON string."""
    tokens = len(text) // 4
    return (
        b'{"id":"chatcmpl-bench","object":"chat.completion","created":1760000000,"model":"bench","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":2048}}}'
        % (text, prompt, tokens, prompt + tokens)
    )


async def serve(args: argparse.Namespace) -> None:
    replies = Replies(args.replies, args.bytes, args.malformed)
    counts = Counts()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    server = await loop.create_server(
        lambda: Connection(counts, replies, args.latency, args.admit), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    print(json.dumps(vars(counts)), flush=True)
    os._exit(0)


@contextmanager
def endpoint(**options: Any) -> Iterator[tuple[str, dict[str, int]]]:
    """A server in its own process: (base_url, its counts, filled when the block ends)."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    child = subprocess.Popen([sys.executable, str(Path(__file__)), *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    counts: dict[str, int] = {}
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1", counts
    finally:
        child.terminate()
        counts.update(json.loads(child.stdout.readline() or "{}"))
        child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.5)
    parser.add_argument("--bytes", type=int, default=6000)
    parser.add_argument("--admit", type=int, default=1_000_000)
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--malformed", type=float, default=0.0, help="share of --replies that is spoilt")
    args = parser.parse_args()
    if uvloop is not None:
        uvloop.run(serve(args))
    else:
        asyncio.run(serve(args))


if __name__ == "__main__":
    main()
