"""Two SQLite files and the one thread that writes them.

Every write of a run passes through this thread: it gathers what is waiting, commits it together and only then tells those
who wait, so that "done" means "on disk". The replies' file is committed first and synced fully, since replies are what was
paid for; the ledger can be derived again. Waiters of one event loop are woken by one call, which at a thousand replies a
second is what keeps the thread cheap.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import zstandard

from simia.errors import UserError

BATCH = 256
LEVEL = 3  # of zstandard
CACHE_KB = 512
PATIENCE = 0.002  # seconds that a first write waits for company
File = Literal["replies", "ledger"]
Statement = tuple[File, str, Sequence[Any]]

LEDGER_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS item (
  id TEXT PRIMARY KEY, stage TEXT NOT NULL, ord INTEGER NOT NULL, spec TEXT NOT NULL,
  status TEXT NOT NULL, reason TEXT, detail TEXT, UNIQUE (stage, ord));
CREATE TABLE IF NOT EXISTS attempt (
  item TEXT NOT NULL, n INTEGER NOT NULL, reply_key TEXT NOT NULL, status TEXT NOT NULL, code TEXT,
  prompt INTEGER, completion INTEGER, cached INTEGER, cost REAL, asked_at REAL NOT NULL, got_at REAL,
  PRIMARY KEY (item, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS result (item TEXT PRIMARY KEY, content_hash TEXT, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS seed (ord INTEGER PRIMARY KEY, id TEXT NOT NULL, head TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS trait (item TEXT PRIMARY KEY, tools TEXT NOT NULL, signature BLOB);
CREATE TABLE IF NOT EXISTS head (hash TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS accepted (ord INTEGER PRIMARY KEY, item TEXT NOT NULL, content_hash TEXT NOT NULL UNIQUE);
"""
REPLIES_SCHEMA = """
CREATE TABLE IF NOT EXISTS reply (
  key TEXT PRIMARY KEY, draw TEXT NOT NULL, request BLOB NOT NULL, body BLOB NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS text (hash TEXT PRIMARY KEY, body BLOB NOT NULL);
"""


class Packed:
    """Bytes that are stored compressed: by the writer's thread, since compressing needs no interpreter lock."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


@dataclass(slots=True, frozen=True)
class Job:
    """Statements of one writer, and who is told: a future of an event loop, one of a thread, or nobody."""

    statements: tuple[Statement, ...]
    loop: asyncio.AbstractEventLoop | None = None
    waiter: asyncio.Future[None] | None = None
    future: Future[None] | None = None


def connect(path: Path, *, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise UserError(
            f"{path.parent}: this file system cannot hold a run (no write-ahead log); choose a local folder"
        )
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")  # of four connections; what is written is not read again soon
    return connection


class Database:
    """Writes through one thread; reads use a connection of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._writers: dict[File, sqlite3.Connection] = {
                "replies": connect(folder / "replies.db", durable=True),
                "ledger": connect(folder / "ledger.db", durable=False),
            }
            self._writers["replies"].executescript(REPLIES_SCHEMA)
            self._writers["ledger"].executescript(LEDGER_SCHEMA)
        except sqlite3.Error as error:
            raise UserError(f"cannot open the run in {folder}: {error}") from None
        self.replies = connect(folder / "replies.db", durable=True)
        self.ledger = connect(folder / "ledger.db", durable=False)
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._pack = zstandard.ZstdCompressor(level=LEVEL)
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="simia-writer", daemon=True)
        self._thread.start()

    def put(self, file: File, sql: str, values: Sequence[Any] = ()) -> None:
        """Nobody waits for this one; a refusal of the disk shows in `failure`."""
        self._queue.put(Job(((file, sql, values),)))

    def write(self, file: File, sql: str, values: Sequence[Any] = ()) -> Future[None]:
        """For threads: the future resolves after the commit."""
        future: Future[None] = Future()
        self._queue.put(Job(((file, sql, values),), future=future))
        return future

    async def commit(self, *statements: Statement) -> None:
        """For coroutines: handed over at once, before anything can be cancelled; returns after the commit."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._queue.put(Job(statements, loop=loop, waiter=waiter))
        await waiter

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        for connection in (self.replies, self.ledger, *self._writers.values()):
            connection.close()

    def _work(self) -> None:
        last = False
        while not last:
            job = self._queue.get()
            if job is None:
                return
            batch = [job]
            if self._queue.empty():
                time.sleep(PATIENCE)
            while len(batch) < BATCH:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                batch.append(more)
            self._commit(batch)

    def _commit(self, batch: list[Job]) -> None:
        try:
            if not (self.folder / "replies.db").exists():
                raise sqlite3.OperationalError("its files are gone")  # SQLite would write on into nowhere
            for file in ("replies", "ledger"):
                mine = [
                    (sql, [self._pack.compress(v.raw) if type(v) is Packed else v for v in values])
                    for job in batch
                    for in_file, sql, values in job.statements
                    if in_file == file
                ]
                if mine:
                    self._transact(self._writers[file], mine)
        except sqlite3.Error as error:
            # A full disk or a vanished folder: nobody may believe that their row is safe.
            self.failure = UserError(f"cannot write the run in {self.folder}: {error}; free the disk and resume")
        tell(batch, self.failure)

    @staticmethod
    def _transact(connection: sqlite3.Connection, statements: list[tuple[str, list[Any]]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in statements:
                connection.execute(sql, values)
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def tell(batch: list[Job], failure: Exception | None) -> None:
    """Wake everyone who waits for this batch: once for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for job in batch:
        if job.loop is not None and job.waiter is not None:
            loops[job.loop].append(job.waiter)
        elif job.future is not None:
            job.future.set_exception(failure) if failure else job.future.set_result(None)
    for loop, waiters in loops.items():
        try:
            loop.call_soon_threadsafe(resolve, waiters, failure)
        except RuntimeError:  # the loop was closed meanwhile: its rows are written, nobody is left to hear of it
            continue


def resolve(waiters: list[asyncio.Future[None]], failure: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():  # cancelled (Ctrl-C); its row is written all the same
            continue
        waiter.set_exception(failure) if failure else waiter.set_result(None)
