"""The two SQLite files of a run and the one thread that writes them.

Every write of a run passes through this thread: it gathers waiting writes, commits them together and only then wakes the
waiters, so that "done" means "on disk". The replies' file is committed first and synced fully, since replies were paid
for; the ledger can be derived again. Waiters of one event loop are woken by one call, which keeps the thread cheap at a
thousand replies a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import zstandard

from simia.errors import UserError
from simia.jobs.tables import (
    READ_ERRORS,
    SIGNED,
    File,
    checksum,
    has_log,
    is_disk_full,
    make_damage_error,
    prepare,
    refuse_empty,
)

FILES: tuple[File, ...] = ("replies", "ledger")  # in the order in which they are committed
BATCH = 256
LEVEL = 3  # of zstandard
CACHE_KB = 512
PATIENCE = 0.002  # seconds that the first write of a batch waits for others
Statement = tuple[File, str, Sequence[Any]]
BEGIN: Statement = ("ledger", "BEGIN IMMEDIATE", ())
COMMIT: Statement = ("ledger", "COMMIT", ())
ROLLBACK: Statement = ("ledger", "ROLLBACK", ())
ENDS = (COMMIT[1], ROLLBACK[1])


class Packed:
    """Bytes to be stored compressed. The writer's thread compresses them, without holding the interpreter lock.

    They are copied, because the result of `orjson.dumps` occupies ten times its length until it is freed.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = bytes(memoryview(raw))


@dataclass(slots=True)
class WriteJob:
    """Statements of one writer, and the future of an event loop or of a thread that waits for them."""

    statements: tuple[Statement, ...]
    waiter: asyncio.Future[None] | Future[None] | None = None


def connect(path: Path, *, durable: bool, read_only: bool = False) -> sqlite3.Connection:
    at = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(at, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise UserError(
            f"{path.parent}: this file system cannot hold a run (no write-ahead log); choose a local folder"
        )
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")  # of four connections; what is written is not read again soon
    return connection


def get_error_code(error: sqlite3.Error) -> int:
    """The primary result code of SQLite; Python itself refuses some damaged files, without a code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


class Database:
    """Writes through one thread; reads use a connection of their own."""

    def __init__(self, folder: Path, *, create: bool = True, read_only: bool = False) -> None:
        """`create`: create missing files. `read_only`: do not change write-ahead logs of a killed process: a part that SQLite cannot read would
        be lost when the log is copied into its file. Raises `UserError`; `Damaged` for a file that is missing, empty or no database.
        """
        self.folder = folder
        self.left_log = read_only and any(has_log(folder / f"{file}.db") for file in FILES)
        try:
            try:
                self._open(create)
            except sqlite3.OperationalError as error:
                if get_error_code(error) != sqlite3.SQLITE_READONLY:
                    raise
                self.left_log = False  # files of simia 0.1.0 need new columns: open them for writing
                self._open(create)
        except sqlite3.Error as error:
            raise UserError(f"cannot open the run in {folder}: {error}") from None
        self._queue: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.failure: Exception | None = None
        self._held: Literal["no", "open", "broken"] = "no"  # the state of a `transaction`
        self._thread = threading.Thread(target=self._work, name="simia-writer", daemon=True)
        self._thread.start()

    def _open(self, create: bool) -> None:
        """Open each file twice: for the writer and for reads. Raises `UserError`, and `sqlite3.Error` if a file cannot be reached."""
        opened: list[sqlite3.Connection] = []
        try:
            for file in FILES:
                path = self.folder / f"{file}.db"
                if not create and not path.exists():
                    raise make_damage_error(self.folder, file, "it is missing")
                for part in ("", "-wal", "-shm"):
                    if (at := path.with_name(f"{path.name}{part}")).is_dir():
                        raise make_damage_error(self.folder, file, f"{at.name} is a directory")
                refuse_empty(path, file)
                try:
                    for _ in range(2):
                        opened.append(connect(path, durable=file == "replies", read_only=self.left_log))
                    prepare(opened[-2], self.folder, file, create=create)
                except READ_ERRORS as error:
                    damages = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
                    if isinstance(error, sqlite3.Error) and get_error_code(error) not in damages:
                        raise
                    raise make_damage_error(self.folder, file, error) from None
        except BaseException:
            for connection in opened:
                connection.close()
            raise
        replies_writer, self.replies, ledger_writer, self.ledger = opened
        self._writers: dict[File, sqlite3.Connection] = {"replies": replies_writer, "ledger": ledger_writer}

    def put(self, file: File, sql: str, values: Sequence[Any] = ()) -> None:
        """Write without waiting; an error of the disk is stored in `failure`."""
        self.put_all((file, sql, values))

    def put_all(self, *statements: Statement) -> None:
        """Write several statements in one commit, without waiting."""
        self._queue.put(WriteJob(statements))

    def write(self, file: File, sql: str, values: Sequence[Any] = ()) -> Future[None]:
        """For threads: the future resolves after the commit."""
        future: Future[None] = Future()
        self._queue.put(WriteJob(((file, sql, values),), future))
        return future

    async def commit(self, *statements: Statement) -> None:
        """For coroutines: handed over at once, before anything can be cancelled; returns after the commit."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(WriteJob(statements, waiter))
        await waiter

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes to the ledger in this block together, or none of them if it raises or the process dies. Writes of other threads
        in the meantime become part of the transaction, so use it while only one thread writes."""
        self.put_all(BEGIN)
        try:
            yield
        except BaseException:
            self.write(*ROLLBACK).exception()
            raise
        self.write(*COMMIT).result()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        for connection in (self.replies, self.ledger, *self._writers.values()):
            connection.close()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            batch = [job]
            if self._queue.empty():
                time.sleep(PATIENCE)
            while len(batch) < BATCH and not self._queue.empty():
                if (more := self._queue.get()) is None:
                    self._queue.put(None)  # stop after this batch
                    break
                batch.append(more)
            self._commit(batch)

    def _commit(self, batch: list[WriteJob]) -> None:
        try:
            if not (self.folder / "replies.db").exists():
                raise sqlite3.OperationalError("its files are gone")  # SQLite would keep writing to a deleted file
            for file in FILES:
                rows = [statement[1:] for job in batch for statement in job.statements if statement[0] == file]
                if rows:
                    self._transact(self._writers[file], [self._pack_row(*row) for row in rows])
        except sqlite3.Error as error:
            # A full disk or a vanished folder: no caller may assume that its row is safe.
            todo = "free disk space" if is_disk_full(error) else "fix this"
            self.failure = UserError(f"cannot write the run in {self.folder}: {error}; {todo} and resume")
        except Exception as error:  # such as a value that no column takes; if the thread ended, all waiters would hang
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            self.failure = UserError(f"cannot write the run in {self.folder}: {what}; please report this")
        wake_waiters(batch, self.failure)

    def _pack_row(self, sql: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Compress the values, and add the row's checksum if the statement writes a whole row."""
        ready = [self._compressor.compress(v.raw) if type(v) is Packed else v for v in values]
        if (table := SIGNED.get(sql)) is not None:
            ready.append(checksum(table, ready))
        return sql, ready

    def _transact(self, connection: sqlite3.Connection, statements: list[tuple[str, list[Any]]]) -> None:
        """Run a batch with one commit, or with none while a `transaction` is open. A failed statement undoes the batch or the transaction."""
        done = 0
        try:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                done += 1
                if sql == BEGIN[1]:
                    connection.execute("COMMIT")
                    connection.execute(sql)
                    self._held = "open"
                elif sql in ENDS:
                    if self._held == "broken" and sql == COMMIT[1]:
                        raise sqlite3.OperationalError("an earlier write failed")
                    self._held = "no"
                    connection.execute(sql)
                    connection.execute("BEGIN IMMEDIATE")
                elif self._held != "broken":
                    connection.execute(sql, values)
            if self._held != "open" or connection is not self._writers["ledger"]:
                connection.execute("COMMIT")
        except Exception:
            if self._held != "no" and connection is self._writers["ledger"]:
                self._held = "no" if any(sql in ENDS for sql, _ in statements[max(0, done - 1) :]) else "broken"
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def wake_waiters(batch: list[WriteJob], failure: Exception | None) -> None:
    """Wake all waiters of this batch: once for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for waiter in [job.waiter for job in batch if job.waiter is not None]:
        if isinstance(waiter, asyncio.Future):
            loops[waiter.get_loop()].append(waiter)
        else:
            resolve_waiters([waiter], failure)
    for loop, waiters in loops.items():
        try:
            loop.call_soon_threadsafe(resolve_waiters, waiters, failure)
        except RuntimeError:  # the loop was closed meanwhile: its rows are written, there is no waiter left
            continue


def resolve_waiters(waiters: Sequence[asyncio.Future[None] | Future[None]], failure: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():  # cancelled (Ctrl-C); its row is written all the same
            continue
        waiter.set_exception(failure) if failure else waiter.set_result(None)
