"""A store of replies for processes that make no run: trainers, whose workers come and go.

Each process writes to a numbered folder of its own (one writer a file) and reads those of the others, so that a restarted
job, or another worker, finds what was paid for. Two that come to the same question at the same time ask it once (`claims.py`).
"""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import IO

from simia.errors import UserError
from simia.jobs.database import Database
from simia.jobs.integrity import refuse_lost_replies
from simia.jobs.ledger import Ledger
from simia.jobs.request_claims import RequestClaims
from simia.jobs.run import InUse, take_lock
from simia.jobs.shared_spending import Spent
from simia.jobs.tables import Damaged, count_columns, is_sound, refuse_empty, unpack
from simia.llm.types import LLMFault, Reply, Request


class Store:
    """An engine's journal. Use `open`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str], claims: RequestClaims) -> None:
        self.folder = folder
        self._lock = lock
        refuse_lost_replies(folder)
        self._database = Database(folder)
        self._own = Ledger(self._database)
        self._spent: Spent | None = None
        self._claims = claims
        self._others: dict[Path, sqlite3.Connection] = {}

    @classmethod
    def open(cls, root: Path) -> Store:
        """Take the first folder that no living process holds. Raises `UserError` where nothing can be written."""
        for number in itertools.count():
            folder = root / str(number)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = take_lock(folder)
                claims = RequestClaims(root / "0" / "claims")  # folder 0 is there before any other
            except InUse:
                continue
            except OSError as error:
                raise UserError(f"cannot keep replies in {folder}: {error.strerror}; name another store") from None
            return cls(folder, lock, claims)
        raise AssertionError

    def open_shared_budget(self) -> Spent:
        """Where all that have this store count together what they spend, for a budget that holds for all of them. Raises
        `UserError` where that cannot be kept."""
        if self._spent is None:
            self._spent = Spent(self.folder.parent, self.folder.name)
        return self._spent

    def recall(self, key: str) -> Reply | None:
        found = self._own.recall(key)
        for other in self._siblings() if found is None else ():
            try:
                row = other.execute("SELECT * FROM reply WHERE key = ?", (key,)).fetchone()
                if row and row[0] == key and (len(row) == count_columns("replies", "reply") or is_sound("reply", row)):
                    return Reply.model_validate_json(unpack(row[3]))
            except (sqlite3.Error, ValueError):  # its disk, not ours: the reply is asked for again
                continue
        return found

    async def claim(self, key: str) -> None:
        await self._claims.claim(key)

    def release(self, key: str) -> None:
        self._claims.release(key)

    def _siblings(self) -> list[sqlite3.Connection]:
        """The other processes' replies; of one that began after us too, once it has a file."""
        for path in sorted(self.folder.parent.glob("*/replies.db")):
            if path not in self._others and path.parent != self.folder and (found := readable(path)) is not None:
                self._others[path] = found
        return list(self._others.values())

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        await self._own.asked(key, item, draw, request)

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        await self._own.answered(key, item, reply)

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        await self._own.failed(key, item, fault)

    def close(self) -> None:
        if self._spent is not None:
            self._spent.close()
        self._database.close()
        for other in self._others.values():
            other.close()
        self._claims.close()
        self._lock.close()


def readable(path: Path) -> sqlite3.Connection | None:
    """Another process's replies; None for a file that was killed or ran out of disk before it held any, or that is damaged."""
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
