"""Two SQLite files and the one thread that writes them.

Every write of a run passes through this thread: it gathers what is waiting, commits it together (at most `BATCH`
statements or `PATIENCE` seconds) and only then resolves the callers' futures, so that "done" means "on disk". The
replies' file is committed first and synced fully, since replies are what was paid for; the ledger can be derived again.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

from simia.errors import UserError

BATCH = 256
PATIENCE = 0.005
File = Literal["replies", "ledger"]

LEDGER_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS item (
  id TEXT PRIMARY KEY, stage TEXT NOT NULL, ord INTEGER NOT NULL, spec TEXT NOT NULL,
  status TEXT NOT NULL, reason TEXT, detail TEXT, UNIQUE (stage, ord));
CREATE TABLE IF NOT EXISTS attempt (
  item TEXT NOT NULL, n INTEGER NOT NULL, reply_key TEXT NOT NULL, status TEXT NOT NULL, code TEXT,
  prompt INTEGER, completion INTEGER, cached INTEGER, cost REAL, asked_at REAL NOT NULL, got_at REAL,
  PRIMARY KEY (item, n));
CREATE INDEX IF NOT EXISTS attempt_key ON attempt (reply_key);
CREATE TABLE IF NOT EXISTS result (item TEXT PRIMARY KEY, content_hash TEXT, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS accepted (ord INTEGER PRIMARY KEY, item TEXT NOT NULL, content_hash TEXT NOT NULL UNIQUE);
"""
REPLIES_SCHEMA = """
CREATE TABLE IF NOT EXISTS reply (
  key TEXT PRIMARY KEY, draw TEXT NOT NULL, request BLOB NOT NULL, body BLOB NOT NULL, at REAL NOT NULL);
"""


def connect(path: Path, *, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise UserError(
            f"{path.parent}: this file system cannot hold a run (no write-ahead log); choose a local folder"
        )
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    return connection


class Database:
    """`write` queues one statement; its future resolves after the commit. Reads use a connection of their own."""

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
        self._queue: queue.SimpleQueue[tuple[File, str, Sequence[Any], Future[None]] | None] = queue.SimpleQueue()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="simia-writer", daemon=True)
        self._thread.start()

    def write(self, file: File, sql: str, values: Sequence[Any] = ()) -> Future[None]:
        future: Future[None] = Future()
        self._queue.put((file, sql, values, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        for connection in (self.replies, self.ledger, *self._writers.values()):
            connection.close()

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            batch = [job]
            last = False
            while len(batch) < BATCH:
                try:
                    more = self._queue.get(timeout=PATIENCE)
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                batch.append(more)
            self._commit(batch)
            if last:
                return

    def _commit(self, batch: list[tuple[File, str, Sequence[Any], Future[None]]]) -> None:
        # A waiter may be cancelled at any moment (Ctrl-C): its row is written all the same, only nobody is told.
        live = [job for job in batch if job[3].set_running_or_notify_cancel()]
        try:
            for file in ("replies", "ledger"):
                mine = [job for job in batch if job[0] == file]
                if not mine:
                    continue
                connection = self._writers[file]
                connection.execute("BEGIN IMMEDIATE")
                try:
                    for _, sql, values, _ in mine:
                        connection.execute(sql, values)
                    connection.execute("COMMIT")
                except sqlite3.Error:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            # A full disk or a vanished folder: nobody may believe that their row is safe.
            self.failure = UserError(f"cannot write the run in {self.folder}: {error}; free the disk and resume")
            for *_, future in live:
                future.set_exception(self.failure)
            return
        for *_, future in live:
            future.set_result(None)
