"""Processes that read and check replies beside the one that talks to the endpoint.

Reading and checking a long reply takes half of what it costs this machine. In one process that bounds a fast endpoint; and
a reply that takes a check a minute would hold up every other. Each checker is a child of its own that knows the run's
config and seeds (from the run itself) and gives for a reply what `Simulator.judge` gives, so results are the same with
any number of them, none included. One that dies or does not answer is replaced; what it was at is tried once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import struct
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from simia.errors import Code, Issue
from simia.jobs import Item
from simia.llm.types import Reply
from simia.trajectory import Usage

SECONDS = 60.0  # for one reply: ten thousand times what it takes
TRIES = 2
SIZES = struct.Struct("<II")


@dataclass(slots=True)
class Checked:
    """A result as the checker gave it: verdict, what selection needs, and the body that is stored."""

    issues: list[Issue]
    content_hash: str | None = None
    head: str | None = None
    signature: bytes | None = None
    tools: list[str] = field(default_factory=list)
    body: bytes = b""


@dataclass(slots=True)
class Task:
    frame: bytes
    item: str
    done: asyncio.Future[Checked]
    tries: int = 0


class Checkers:
    """`async with Checkers(folder, job, count)`; then `await check(...)` any number at once."""

    def __init__(self, folder: Path, job: dict[str, Any], count: int) -> None:
        self._start = [str(folder), job]
        self._hands = [Hand(self._start) for _ in range(count)]

    async def __aenter__(self) -> Checkers:
        await asyncio.gather(*(hand.start() for hand in self._hands))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(hand.stop() for hand in self._hands))

    async def check(self, item: Item, reply: Reply, keys: list[str], files: dict[str, str], model: str) -> Checked:
        usage = {name: value for name, value in reply.usage.__dict__.items() if value is not None}
        asked = {
            "item": [item.id, item.ord, item.spec],
            "reply": [reply.text, reply.reasoning, reply.finish, usage],
            "keys": keys,
            "files": files,
            "model": model,
        }
        task = Task(orjson.dumps(asked), item.id, asyncio.get_running_loop().create_future())
        min(self._hands, key=lambda hand: len(hand.waiting)).give(task)
        return await task.done


class Hand:
    """One child, and the replies that it has been given, in order."""

    def __init__(self, start: list[Any]) -> None:
        self._start = start
        self.waiting: deque[Task] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    async def start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "simia.amplification.checkers"),  # -P: import nothing from the current folder
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which then closes the pipe
        )
        self._process = process
        self._send(orjson.dumps(self._start))
        for task in self.waiting:
            self._send(task.frame)
        self._reader = asyncio.create_task(self._read(process))

    def give(self, task: Task) -> None:
        self.waiting.append(task)
        self._send(task.frame)
        if self._timer is None:
            self._watch()

    async def stop(self) -> None:
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._reader is not None:
            self._reader.cancel()
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it holds nothing that is not on disk here
            await self._process.wait()

    def _send(self, frame: bytes) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(SIZES.pack(len(frame), 0) + frame)

    def _watch(self) -> None:
        """The first reply that waits gets its time from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SECONDS, self._too_long) if self.waiting else None

    def _too_long(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # the reader sees the end of the pipe

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while True:
                head, body = SIZES.unpack(await process.stdout.readexactly(SIZES.size))
                facts = orjson.loads(await process.stdout.readexactly(head))
                result = await process.stdout.readexactly(body)
                task = self.waiting.popleft()
                self._watch()
                if not task.done.done():
                    task.done.set_result(read_checked(facts, result))
        except (asyncio.IncompleteReadError, ConnectionError):
            if not self._closing:
                await self._replace(process)

    async def _replace(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if self.waiting:
            first = self.waiting[0]
            first.tries += 1
            if first.tries >= TRIES:
                self.waiting.popleft()
                detail = f"a checker died or took {SECONDS:.0f} s over it, {TRIES} times"
                issue = Issue(code=Code.INTERNAL, where=first.item, detail=detail)
                first.done.set_result(
                    Checked(
                        [issue],
                        body=orjson.dumps(
                            {"trajectory": None, "issues": [issue.model_dump(mode="json")], "repairs": []}
                        ),
                    )
                )
        await self.start()
        self._watch()


def read_checked(facts: dict[str, Any], body: bytes) -> Checked:
    signature = facts["signature"]
    return Checked(
        issues=[Issue.model_validate(issue) for issue in facts["issues"]],
        content_hash=facts["content_hash"],
        head=facts["head"],
        signature=bytes.fromhex(signature) if signature else None,
        tools=facts["tools"],
        body=body,
    )


def main() -> None:
    """The child: frames in, frames out, until the pipe is closed."""
    from simia.amplification.collector import seldom
    from simia.amplification.session import checking_simulator

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    folder, job = orjson.loads(read_frame(source) or b"[]")
    connection = sqlite3.connect(f"file:{Path(folder) / 'ledger.db'}?mode=ro", uri=True)
    simulator = checking_simulator(connection, job)
    connection.close()
    with seldom():
        while (frame := read_frame(source)) is not None:
            asked = orjson.loads(frame)
            text, reasoning, finish, usage = asked["reply"]
            reply = Reply(text=text, reasoning=reasoning, finish=finish, usage=Usage(**usage))
            item = Item(*asked["item"])
            result = simulator.judge(item, reply, model=asked["model"], keys=asked["keys"], files=asked["files"])
            facts = {
                "issues": [issue.model_dump(mode="json") for issue in result.issues],
                "content_hash": result.content_hash,
                "head": result.head,
                "signature": result.signature.hex() if result.signature else None,
                "tools": result.tools,
            }
            head, body = orjson.dumps(facts), result.body()
            sink.write(SIZES.pack(len(head), len(body)) + head + body)
            sink.flush()


def read_frame(source: BinaryIO) -> bytes | None:
    sizes = source.read(SIZES.size)
    return source.read(SIZES.unpack(sizes)[0]) if len(sizes) == SIZES.size else None


if __name__ == "__main__":
    main()
