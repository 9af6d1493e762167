"""Measure the contents of a run's folder, and free the space of data that can be derived again (`simia runs gc`).

Replies were paid for: they are removed only with `replies`, and only those of rejected items. The rest of what is removed can be made again
by `simia runs recheck` or `simia report`: the bodies of rejected results and the report page. Episodes of rollouts are kept, since nothing
can play them again; of a training, only superseded ones are removed. The two files are compacted. A run without a reply and without a
decided item is removed. Reasons, attempts and costs stay; the report then counts fewer tools in rejected results and fewer repairs.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from simia.errors import UserError
from simia.jobs.database import Database, connect
from simia.jobs.integrity import FREED, SYNTHESIS, TRAINING, refuse_mixed, verify_files
from simia.jobs.ledger import Ledger
from simia.jobs.run import FILES, folders, last_use, saved_config, take_lock
from simia.jobs.tables import PUT, READ_ERRORS, checksum, is_disk_full, open_read_only, refuse_empty
from simia.terminal import write_count

PARTS = ("", "-wal", "-shm")
PAGE = "report.html"
KEPT_BODIES = ("rollout", SYNTHESIS)  # kinds of runs: results are episodes, or small ones whose figures are in packs
SETTLED = 3600.0  # seconds without a change, after which an empty run counts as abandoned
DERIVED = "SELECT result.rowid FROM result JOIN item ON item.id = result.item WHERE item.status = 'rejected'"
# Of rejected items alone: a reply that gave an accepted, open or failed item is still needed to resume or check again.
SPENT = """
SELECT DISTINCT reply_key FROM attempt JOIN item ON item.id = attempt.item WHERE item.status = 'rejected'
EXCEPT SELECT reply_key FROM attempt JOIN item ON item.id = attempt.item WHERE item.status <> 'rejected'
"""
DECIDED = """
SELECT COUNT(*) FROM item LEFT JOIN result ON result.item = item.id
WHERE result.item IS NOT NULL OR status IN ('passed', 'rejected')
"""


@dataclass(slots=True)
class Findings:
    """One run: its sizes in bytes, and what can be freed."""

    folder: Path
    ledger: int = 0
    replies: int = 0
    other: int = 0
    reply_count: int = 0
    accepted: int = 0
    rejected_bodies: int = 0
    bodies_size: int = 0
    slack: int = 0  # bytes of the files that no row uses
    spent_replies: int = 0
    spent_size: int = 0
    empty: bool = False
    problem: str = ""  # why nothing may be freed: in use, or unreadable

    @property
    def size(self) -> int:
        return self.ledger + self.replies + self.other

    def freeable(self, *, replies: bool) -> int:
        """About how many bytes can be freed; SQLite's own share is known only afterwards."""
        if self.problem or self.empty:
            return 0 if self.problem else self.size
        return self.bodies_size + self.slack + self.page_size() + (self.spent_size if replies else 0)

    def page_size(self) -> int:
        return size_of(self.folder / PAGE)


@dataclass(slots=True)
class Freed:
    """What was done to one run."""

    folder: Path
    before: int
    after: int = 0
    done: list[str] = field(default_factory=list)


def survey(root: Path) -> Iterator[Findings]:
    """Measure every run of the folder. Changes nothing, and holds each run's lock meanwhile."""
    for folder in folders(root):
        yield look(folder)


def look(folder: Path) -> Findings:
    found = sizes(folder)
    try:
        with untouched_lock(folder):
            count(found)
    except READ_ERRORS as error:
        found.problem = f"{folder.name} cannot be read: {error}"
    except UserError as error:
        found.problem = str(error)
    return found


def sizes(folder: Path) -> Findings:
    ledger, replies = (sum(size_of(folder / f"{file}{part}") for part in PARTS) for file in FILES)
    everything = sum(size_of(path) for path in folder.rglob("*"))
    return Findings(folder, ledger, replies, everything - ledger - replies)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() and not path.is_symlink() else 0


def count(found: Findings) -> None:
    for file in FILES:
        refuse_empty(found.folder / file, "ledger" if file == FILES[0] else "replies")
    with (
        open_read_only(found.folder / "ledger.db") as ledger,
        open_read_only(found.folder / "replies.db") as replies,
    ):
        (found.reply_count,) = replies.execute("SELECT COUNT(*) FROM reply").fetchone()
        (found.accepted,) = ledger.execute("SELECT COUNT(*) FROM accepted").fetchone()
        derived = "NULL" if saved_config(found.folder).get("kind") in KEPT_BODIES else DERIVED
        bodies = f"SELECT COUNT(*), COALESCE(SUM(LENGTH(body)), 0) FROM result WHERE rowid IN ({derived})"
        found.rejected_bodies, found.bodies_size = ledger.execute(bodies).fetchone()
        for connection in (ledger, replies):
            sizes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
            found.slack += math.prod(sizes)
        for (key,) in ledger.execute(SPENT):
            row = replies.execute("SELECT LENGTH(body) + LENGTH(request) FROM reply WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found.spent_replies += 1
                found.spent_size += row[0]
        (decided,) = ledger.execute(DECIDED).fetchone()
        (last,) = ledger.execute("SELECT MAX(asked_at) FROM attempt").fetchone()
    idle = time.time() - max(last or 0, (found.folder / "lock").stat().st_mtime)
    found.empty = not found.reply_count and not decided and idle > SETTLED


def clean(folder: Path, *, replies: bool = False) -> Freed:
    """Free the space that can be freed. Raises `UserError` while another process works on the run."""
    try:
        with untouched_lock(folder):
            return clean_locked(folder, replies=replies)
    except READ_ERRORS as error:
        raise UserError(f"cannot clean {folder}: {error}") from None


def clean_locked(folder: Path, *, replies: bool) -> Freed:
    found = sizes(folder)
    count(found)
    freed = Freed(folder, found.size)
    refuse_damaged(folder)
    if found.empty:
        shutil.rmtree(folder)
        freed.done.append("removed: it holds no reply and no result")
        return freed
    if found.page_size():
        (folder / PAGE).unlink()
        freed.done.append("page removed: `simia report` writes it again")
    if found.rejected_bodies:
        with closing(connect(folder / "ledger.db", durable=True)) as ledger:
            ledger.execute(f"DELETE FROM result WHERE rowid IN ({DERIVED})")
        derived = not replies and saved_config(folder).get("kind") != TRAINING
        again = ": `simia runs recheck` derives them again" if derived else ""
        freed.done.append(f"{write_count(found.rejected_bodies, 'body')} of rejected results removed{again}")
    if replies and found.spent_replies:
        remove_replies(folder)
        freed.done.append(f"{write_count(found.spent_replies, 'reply')} of rejected items removed, for good")
    if found.slack or found.rejected_bodies or (replies and found.spent_replies):
        for file in FILES:
            vacuum(folder / file)
        freed.done.append("files compacted")
    freed.after = sizes(folder).size
    return freed


def refuse_damaged(folder: Path) -> None:
    """Raise `UserError` for a damaged run: its files must not be written or removed, since the rest of them may still be readable."""
    with closing(Database(folder, create=False, read_only=True)) as database:
        ledger = Ledger(database)
        refuse_mixed(folder, ledger)
        found = verify_files(folder, ledger, saved_config(folder), locked=True)
        if found.findings:
            raise UserError(f"not cleaned: {found}")


def untouched_lock(folder: Path) -> IO[str]:
    """Take the run's lock without making the run the latest one: runs are ordered by when their lock was written."""
    at = last_use(folder)
    lock = take_lock(folder)
    os.utime(folder / "lock", ns=(at, at))
    return lock


def remove_replies(folder: Path) -> None:
    with open_read_only(folder / "ledger.db") as ledger:
        keys = ledger.execute(SPENT).fetchall()
    with closing(connect(folder / "replies.db", durable=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        removed = connection.executemany("DELETE FROM reply WHERE key = ?", keys).rowcount
        row = connection.execute("SELECT value FROM meta WHERE name = ?", (FREED,)).fetchone()
        values = (FREED, str(removed + (int(row[0]) if row else 0)))
        connection.execute(PUT["replies", "meta"], (*values, checksum("meta", values)))
        connection.execute("COMMIT")


def vacuum(path: Path) -> None:
    """Compact a file. SQLite needs room for a copy of it; without that it refuses and nothing is changed."""
    try:
        with closing(connect(path, durable=True)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        needs = (
            "; it needs as much free disk space as the file is large"
            if is_disk_full(error)
            else "; fix this and try again"
        )
        raise UserError(f"cannot compact {path}: {error}{needs}") from None
