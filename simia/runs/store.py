"""A store of replies for processes that make no run: trainers, whose workers come and go.

Each process writes to a numbered folder of its own (one writer a file) and reads those of the others, so that a restarted
job, or another worker, finds what was paid for before it began.
"""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import IO

import zstandard

from simia.errors import UserError
from simia.llm.types import LLMFault, Reply, Request
from simia.runs.database import Database
from simia.runs.ledger import Ledger
from simia.runs.run import InUse, take_lock


class Store:
    """An engine's journal. Use `open`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str], others: list[Path]) -> None:
        self.folder = folder
        self._lock = lock
        self._database = Database(folder)
        self._own = Ledger(self._database)
        self._others = [found for path in others if (found := readable(path)) is not None]

    @classmethod
    def open(cls, root: Path) -> Store:
        """Take the first folder that no living process holds. Raises `UserError` where nothing can be written."""
        for number in itertools.count():
            folder = root / str(number)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = take_lock(folder)
            except InUse:
                continue
            except OSError as error:
                raise UserError(f"cannot keep replies in {folder}: {error.strerror}; name another store") from None
            others = [path for path in sorted(root.glob("*/replies.db")) if path.parent != folder]
            return cls(folder, lock, others)
        raise AssertionError

    def recall(self, key: str) -> Reply | None:
        found = self._own.recall(key)
        for other in self._others if found is None else ():
            try:
                row = other.execute("SELECT body FROM reply WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error:  # its disk, not ours: the reply is asked for again
                continue
            if row:
                return Reply.model_validate_json(zstandard.decompress(row[0]))
        return found

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        await self._own.asked(key, item, draw, request)

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        await self._own.answered(key, item, reply)

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        await self._own.failed(key, item, fault)

    def close(self) -> None:
        self._database.close()
        for other in self._others:
            other.close()
        self._lock.close()


def readable(path: Path) -> sqlite3.Connection | None:
    """Another process's replies; None for a file that was killed or ran out of disk before it held any."""
    found = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
    try:
        found.execute("SELECT body FROM reply LIMIT 1").fetchone()
    except sqlite3.Error:
        found.close()
        return None
    return found
