"""Count the spending of all processes of one store, for a shared budget that also holds after a restart.

`spent.db` in the store's root has two rows for each numbered folder: the spending of its present process, and that of all earlier ones.
The row of a dead process keeps its reservations for calls in flight and for tries that timed out. On opening, spending that a folder's ledger records beyond its rows is
added (the process had no cap, or `spent.db` was lost). The file therefore needs no syncing, and without a cap none is made.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from simia.errors import UserError
from simia.jobs.tables import COST, build_token_sum, open_read_only, refuse_empty
from simia.llm.budget import Spending

PATIENCE = 10.0  # seconds for another process's turn, which takes a tenth of a millisecond
BEFORE, NOW = 0, 1
COLUMNS = ("sent", "answered", "tokens", "cost", "held_tokens", "held_cost", "blind")
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS spent (
  folder TEXT NOT NULL, now INTEGER NOT NULL, {", ".join(f"{name} NUMERIC NOT NULL DEFAULT 0" for name in COLUMNS)},
  PRIMARY KEY (folder, now)) WITHOUT ROWID
"""
SUMS = ", ".join(f"COALESCE(SUM({name}), 0)" for name in COLUMNS)
WRITE = f"UPDATE spent SET {', '.join(f'{name} = ?' for name in COLUMNS)} WHERE folder = ? AND now = ?"


class Spent:
    """One process's access to the budget that a store shares. A `simia.llm.budget.SharedBudget`."""

    def __init__(self, root: Path, folder: str) -> None:
        """`folder`: the numbered one whose lock this process holds. Raises `UserError` if nothing can be read or written."""
        self.name = str(root)
        self._path, self._folder = root / "spent.db", folder
        known = {path.parent.name: in_ledger(path) for path in sorted(root.glob("*/ledger.db"))}
        try:
            with contextlib.ExitStack() as stack:
                self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=PATIENCE)
                stack.callback(self._db.close)
                for statement in ("PRAGMA synchronous=OFF", "PRAGMA journal_mode=PERSIST", "BEGIN IMMEDIATE", SCHEMA):
                    self._db.execute(statement)
                self._begin(known)
                self._db.execute("COMMIT")
                self._file = os.stat(self._path).st_ino
                stack.pop_all()
        except (sqlite3.Error, OSError) as error:
            raise self._refused(error) from None

    def turn(self, mine: Callable[[Spending], Spending | None]) -> None:
        """Read and write in one exclusive transaction; see `SharedBudget`."""
        try:
            if os.stat(self._path).st_ino != self._file:
                raise FileNotFoundError(0, "another file has replaced it")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                asked = f"SELECT {SUMS} FROM spent WHERE NOT (folder = ? AND now = ?)"
                tally = mine(Spending(*self._db.execute(asked, (self._folder, NOW)).fetchone()))
                if tally is not None:
                    self._write(self._folder, NOW, tally)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            raise self._refused(error) from None

    def close(self) -> None:
        self._db.close()

    def _begin(self, known: dict[str, Spending]) -> None:
        """Add the spending and reservations of the folder's last process, which is dead, to those of earlier ones."""
        past = self._sum("folder = ?", self._folder)
        for now in (BEFORE, NOW):
            self._db.execute("INSERT OR IGNORE INTO spent (folder, now) VALUES (?, ?)", (self._folder, now))
        self._write(self._folder, BEFORE, past)
        self._write(self._folder, NOW, Spending())
        for folder, ledger in known.items():
            rows = self._sum("folder = ?", folder)
            beyond = [max(0, getattr(ledger, name) - getattr(rows, name)) for name in COLUMNS]
            self._db.execute("INSERT OR IGNORE INTO spent (folder, now) VALUES (?, ?)", (folder, BEFORE))
            added = ", ".join(f"{name} = {name} + ?" for name in COLUMNS)
            self._db.execute(f"UPDATE spent SET {added} WHERE folder = ? AND now = ?", (*beyond, folder, BEFORE))

    def _sum(self, where: str, *values: str) -> Spending:
        return Spending(*self._db.execute(f"SELECT {SUMS} FROM spent WHERE {where}", values).fetchone())

    def _write(self, folder: str, now: int, tally: Spending) -> None:
        self._db.execute(WRITE, (*(getattr(tally, name) for name in COLUMNS), folder, now))

    def _refused(self, error: Exception) -> UserError:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return UserError(
            f"cannot record in {self._path} what is spent ({why}), so the cap cannot be enforced: make that file writable, or name "
            "another store"
        )


def in_ledger(path: Path) -> Spending:
    """The spending in a folder's own ledger. Raises `UserError` for one that cannot be read."""
    refuse_empty(path, "ledger")
    try:
        with open_read_only(path) as ledger:
            if not ledger.execute("SELECT 1 FROM sqlite_master WHERE name = 'attempt'").fetchone():
                return Spending()  # killed before it held anything
            row = ledger.execute(
                "SELECT COUNT(*), COUNT(CASE WHEN status = 'got' THEN 1 END),"
                f" {build_token_sum('prompt')} + {build_token_sum('completion')}, COALESCE({COST}, 0) FROM attempt"
            ).fetchone()
            return Spending(*row)
    except sqlite3.Error as error:
        raise UserError(
            f"cannot read what {path.parent} has spent ({error}), so the cap cannot be enforced: repair or remove that folder"
        ) from None
