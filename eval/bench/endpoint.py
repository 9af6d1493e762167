"""A fake chat-completions endpoint for load, in a process of its own: as cheap as Python allows, so that the client is what is measured.

Raw HTTP/1.1 on an asyncio protocol. It reads a request to its Content-Length, waits `--latency` seconds and sends one of the
prepared replies; beyond `--admit` requests at once it answers 429. `--replies FILE` (JSON lines of texts) takes replies from a
file, in turn; else every reply is `--bytes` of text. It prints its port, and on SIGTERM a line of JSON with its counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
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

    def __init__(self, counts: Counts, replies: list[bytes], latency: float, admit: int) -> None:
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
            del self.buffer[: end + 4 + length]
            self.serve()

    def serve(self) -> None:
        counts = self.counts
        counts.requests += 1
        if counts.now >= self.admit:
            counts.refused += 1
            self.send(b"HTTP/1.1 429 Too Many Requests", REFUSAL)
            return
        counts.now += 1
        counts.most = max(counts.most, counts.now)
        reply = self.replies[counts.requests % len(self.replies)]
        self.loop.call_later(self.latency, self.answer, reply)

    def answer(self, reply: bytes) -> None:
        self.counts.now -= 1
        self.counts.answered += 1
        self.send(b"HTTP/1.1 200 OK", reply)

    def send(self, status: bytes, body: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            head = status + b"\r\nContent-Type: application/json\r\nContent-Length: " + str(len(body)).encode()
            self.transport.write(head + b"\r\n\r\n" + body)


def completion(text: str, prompt: int = 1000) -> bytes:
    return orjson.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "bench",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": len(text) // 4,
                "total_tokens": prompt + len(text) // 4,
            },
        }
    )


async def serve(args: argparse.Namespace) -> None:
    if args.replies:
        replies = [completion(orjson.loads(line)) for line in args.replies.read_bytes().splitlines()]
    else:
        replies = [completion("lorem ipsum " * (args.bytes // 12))]
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
    args = parser.parse_args()
    if uvloop is not None:
        uvloop.run(serve(args))
    else:
        asyncio.run(serve(args))


if __name__ == "__main__":
    main()
