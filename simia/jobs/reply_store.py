"""A store of replies for processes that make no run: trainers, whose workers start and end at any time.

Each process writes to a numbered folder of its own (one writer for each file) and reads those of the others, so that a restarted
job, or another worker, finds the replies that were paid for. Two processes that ask the same question at the same time send it once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import sqlite3
import time
from pathlib import Path
from typing import IO, Any

from simia.errors import UserError
from simia.jobs.database import Database
from simia.jobs.integrity import refuse_lost_replies
from simia.jobs.journal import Journal
from simia.jobs.run import InUse, take_lock
from simia.jobs.shared_spending import Spent
from simia.jobs.tables import Damaged, count_columns, is_sound, refuse_empty, unpack
from simia.llm.types import Reply

FIRST_WAIT, LONGEST_WAIT = 0.01, 0.25  # seconds between two tries to claim a key
SETTLED = 2.0  # seconds; a modification time older than this shows every later change


class RequestClaims:
    """Coalesce identical requests across processes that share a store: later processes wait and recall the first one's reply.

    Two ranks of a trainer with the same group would otherwise both pay for the simulator's next answer, and get two different ones. A
    claim is a locked byte of one file, at an offset computed from the key; the kernel releases it when the process ends. If two keys have
    the same offset, which is improbable, one waits without need. Claims of one process do not exclude each other: use one event loop.
    """

    def __init__(self, path: Path) -> None:
        """Raises `OSError` if the file cannot be written."""
        self._file = path.open("a+b")

    async def claim(self, key: str) -> None:
        """Wait until no other process has this key. On a file system without locks, return at once."""
        wait = FIRST_WAIT
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place(key))
                return
            except (BlockingIOError, PermissionError):
                await asyncio.sleep(wait)
                wait = min(LONGEST_WAIT, 2 * wait)
            except OSError:
                return

    def release(self, key: str) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place(key))

    def close(self) -> None:
        self._file.close()


def place(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest())


class Store:
    """An engine's journal. Use `open`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str], claims: RequestClaims) -> None:
        self.folder = folder
        self._lock = lock
        refuse_lost_replies(folder)
        self._database = Database(folder)
        self._own = Journal(self._database)
        self.asked, self.answered, self.failed = self._own.asked, self._own.answered, self._own.failed
        self.claim, self.release = claims.claim, claims.release
        self._spent: Spent | None = None
        self._claims = claims
        self._others: dict[Path, sqlite3.Connection] = {}
        self._listed_at: int | None = None  # the root's time of change when all folders in it had been opened

    @classmethod
    def open(cls, root: Path) -> Store:
        """Take the first folder that no living process holds. Raises `UserError` if nothing can be written."""
        for number in itertools.count():
            folder = root / str(number)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = take_lock(folder)
                claims = RequestClaims(root / "0" / "claims")  # folder 0 is created first
            except InUse:
                continue
            except OSError as error:
                raise UserError(f"cannot keep replies in {folder}: {error.strerror}; name another store") from None
            return cls(folder, lock, claims)
        raise AssertionError

    def open_shared_budget(self) -> Spent:
        """Open the record of the spending of all processes of this store, for a budget that they share. Raises `UserError`."""
        if self._spent is None:
            self._spent = Spent(self.folder.parent, self.folder.name)
        return self._spent

    def recall(self, key: str) -> Reply | None:
        return self._own.recall(key) or self.recall_from_others(key)

    def recall_from_others(self, key: str) -> Reply | None:
        """The reply that another process stored."""
        for other in self._siblings():
            try:
                row = other.execute("SELECT * FROM reply WHERE key = ?", (key,)).fetchone()
                if row and row[0] == key and (len(row) == count_columns("replies", "reply") or is_sound("reply", row)):
                    return Reply.model_validate_json(unpack(row[3]))
            except (sqlite3.Error, ValueError):  # the other's file cannot be read: the reply is asked for again
                continue
        return None

    def list_keys(self) -> list[str]:
        """The keys of the replies that this store's own folder holds."""
        return [key for (key,) in self._database.replies.execute("SELECT key FROM reply ORDER BY at")]

    def fetch(self, key: str) -> dict[str, Any] | None:
        """A reply of this store's own folder with its request, its sample (`draw`) and the item (`item`) that it was asked for."""
        reply, request = self._own.recall(key), self._own.recall_request(key)
        if reply is None or request is None:
            return None
        (draw,) = self._database.replies.execute("SELECT draw FROM reply WHERE key = ?", (key,)).fetchone()
        asked = self._database.ledger.execute("SELECT item FROM attempt WHERE reply_key = ?", (key,)).fetchone()
        return {
            "key": key, "draw": draw, "request": request.canonical(), "reply": reply.stored(), "item": asked[0] if asked else None,
        }  # fmt: skip

    def _siblings(self) -> list[sqlite3.Connection]:
        """Connections to the other processes' replies, later processes included. Folders are listed again when one was added, and until each
        has a file that can be read."""
        root = self.folder.parent
        with contextlib.suppress(OSError):  # the root is gone, which the next write reports
            changed_at = root.stat().st_mtime_ns
            if changed_at != self._listed_at:
                folders = {each for each in root.iterdir() if each.name.isdecimal() and each != self.folder}
                for path in sorted(folder / "replies.db" for folder in folders):
                    if path not in self._others and path.exists() and (found := readable(path)) is not None:
                        self._others[path] = found
                settled = time.time_ns() - changed_at > SETTLED * 1e9
                self._listed_at = changed_at if settled and len(self._others) >= len(folders) else None
        return list(self._others.values())

    def close(self) -> None:
        if self._spent is not None:
            self._spent.close()
        self._database.close()
        for other in self._others.values():
            other.close()
        self._claims.close()
        self._lock.close()


def readable(path: Path) -> sqlite3.Connection | None:
    """A connection to another process's replies; None for a damaged file, or one whose process was killed before it wrote any."""
    try:
        refuse_empty(path, "replies")
    except Damaged:
        return None
    found = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
    try:
        found.execute("SELECT body FROM reply LIMIT 1").fetchone()
    except sqlite3.Error:
        found.close()
        return None
    return found
