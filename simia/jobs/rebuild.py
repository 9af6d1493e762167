"""Make both files of a run again from the rows that can still be read.

The files are first copied to a new folder and read there; the new files replace them when they are complete. A process that dies in
between leaves the copies, and the next attempt reads them too. Readable rows of the ledger that replies cannot give are kept: verdicts
without a reply, failed calls. Rows that can be derived from the replies are left to the caller (`simia runs rebuild`).
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simia.errors import UserError
from simia.jobs.database import FILES
from simia.jobs.integrity import FREED, REBUILT, RUN, TRAINING, are_mixed, mixed_files_error
from simia.jobs.run import find_run, saved_config, take_lock
from simia.jobs.sqlite_pages import recover_rows
from simia.jobs.tables import (
    COLUMNS,
    MOST,
    PAGE_SIZE,
    PUT,
    READ_ERRORS,
    File,
    checksum,
    count_columns,
    has_log,
    is_disk_full,
    is_empty,
    is_readable,
    is_sound,
    open_read_only,
    prepare,
    unpack,
)
from simia.llm.types import Reply
from simia.terminal import write_count

PARTS = ("", "-wal")
STOPPED = ("stopped", '{"kind":"rebuilt","detail":""}')
KEYS = {"attempt": 2}  # columns of a table's key, where it is not the first one alone
OF_ITEM = re.compile(r"i(\d{6,})\.")
AGAIN = re.compile(r"\.again\d+$")  # a synthesis asks again for a reply that it cannot read
Rows = dict[tuple[Any, ...], tuple[Any, ...]]


@dataclass(slots=True)
class Salvaged:
    """The result of reading damaged files. `planned`: in an amplification, one more than the place of the last item with a reply or a row."""

    folder: Path
    backup: Path
    rollout: bool = False
    training: bool = False
    planned: int = 0
    replies: int = 0
    lost_replies: int = 0
    changed: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[str]:
        yield f"{write_count(self.replies, 'reply')} read"
        if self.lost_replies:
            yield f"{write_count(self.lost_replies, 'reply')} of the ledger lost"
        for table, count in self.changed.items():
            yield f"{write_count(count, 'damaged row')} of table {table} left out"


def salvage(root: Path, name: str) -> Salvaged:
    """Replace both files by new ones with all that can be read. Raises `UserError` if the run is in use or the disk refuses."""
    folder = find_run(root, name)
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"{folder / 'config.yaml'} is missing: restore it, since nothing can be derived without the run's config"
        )
    try:
        with take_lock(folder):
            copies = [*sorted(folder.glob("rebuilding-*")), copy_run_files(folder)]
            found = Salvaged(folder, choose_free_name(folder, "damaged"))
            replies, ledger = (
                {table: read_salvaged_rows(copies, file, table, found) for table in COLUMNS[file]} for file in FILES
            )
            one, other = (tables["meta"].get((RUN,), (RUN, None))[1] for tables in (ledger, replies))
            if are_mixed(one, other):
                shutil.rmtree(copies[-1])  # else a later attempt would read it too
                raise mixed_files_error(folder)
            kind = saved_config(folder).get("kind")
            found.rollout, found.training = kind == "rollout", kind == TRAINING
            found.replies = len(replies["reply"])
            complete_tables(ledger, replies, found)
            put_aside_directories(folder, copies[-1])
            for file, tables in zip(FILES, (replies, ledger), strict=True):
                write_database(folder, file, tables)
            for file in FILES:
                for part in ("-wal", "-shm"):
                    (folder / f"{file}.db{part}").unlink(missing_ok=True)
                (folder / f"{file}.db.new").replace(folder / f"{file}.db")
            copies[-1].replace(found.backup)
            for older in copies[:-1]:
                older.replace(choose_free_name(folder, "damaged"))
            return found
    except (OSError, sqlite3.Error) as error:
        todo = f"fix this, then: simia runs rebuild {folder}"
        if is_disk_full(error):
            todo = "it needs free disk space of twice the run's size"
        raise UserError(f"cannot rebuild {folder}: {error}; {todo}") from None


def choose_free_name(folder: Path, kind: str) -> Path:
    return next(path for i in range(1, 1_000_000) if not (path := folder / f"{kind}-{i:03}").exists())


def copy_run_files(folder: Path) -> Path:
    place = choose_free_name(folder, "rebuilding")
    aside = place.with_name(f".{place.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for file in FILES:
        for part in PARTS:
            if (source := folder / f"{file}.db{part}").is_file():
                shutil.copyfile(source, aside / source.name)
        if is_empty(copy := aside / f"{file}.db") and has_log(copy):
            copy.write_bytes(bytes(PAGE_SIZE))  # else SQLite would remove the log
    return aside.rename(place)


def put_aside_directories(folder: Path, backup: Path) -> None:
    """Move directories with the name of a file of the run to the backup."""
    for file in FILES:
        for part in (*PARTS, "-shm", ".new"):
            if (found := folder / f"{file}.db{part}").is_dir() and not found.is_symlink():
                found.rename(backup / f"{found.name}.directory")


def read_salvaged_rows(copies: Sequence[Path], file: File, table: str, found: Salvaged) -> Rows:
    """The sound rows of a table by their keys, the latest copy's first. Rows without a checksum get one."""
    rows: Rows = {}
    for place in reversed(copies):
        path = place / f"{file}.db"
        scanned = scan_pages(path, table) if file == "replies" else ()
        for row in itertools.chain(query_rows(path, table), scanned):
            key = row[: KEYS.get(table, 1)]
            if key in rows:
                continue
            if len(row) == count_columns(file, table):  # a file of simia 0.1.0
                row = (*row, None)
            if is_sound(table, row):
                rows[key] = (*row[:-1], checksum(table, row[:-1]))
            else:
                found.changed[table] += 1
    return rows


def query_rows(path: Path, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows that SQLite reads, from both ends. The copy is not changed: its log may hold more than SQLite reads."""
    if not path.is_file():
        return
    order = "item {0}, n {0}" if table == "attempt" else "rowid {0}"
    with contextlib.suppress(*READ_ERRORS), open_read_only(path) as connection:
        for direction in ("ASC", "DESC"):
            with contextlib.suppress(*READ_ERRORS):
                yield from connection.execute(f"SELECT * FROM {table} ORDER BY {order.format(direction)}")
                return


def scan_pages(path: Path, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table in the pages themselves: those with its checksum or, in files without checksums, those with its columns."""
    count = count_columns("replies", table)
    for row in recover_rows(path):
        summed = len(row) == count + 1 and isinstance(row[-1], int) and checksum(table, row[:-1]) == row[-1]
        old = table == "reply" and (len(row) == count or (len(row) == count + 1 and row[-1] is None))
        if summed or (old and isinstance(row[2], bytes) and isinstance(row[3], bytes) and is_readable(table, row)):
            yield row


def complete_tables(ledger: dict[str, Rows], replies: dict[str, Rows], found: Salvaged) -> None:
    """Add to each file the rows that follow from the other one."""
    for (name,), row in replies["meta"].items():
        if name != FREED:
            set_row(ledger, "meta", (name, row[1]), replace=False)
    if (RUN,) in ledger["meta"]:
        set_row(replies, "meta", (RUN, ledger["meta"][RUN,][1]))
    set_row(ledger, "meta", (REBUILT, "true"))
    heads = ledger["head"]
    for key, row in list(ledger["result"].items()):
        named = orjson.loads(unpack(row[2])).get("head")
        if named is not None and (named,) not in heads:
            del ledger["result"][key]
    record_lost_replies(ledger, replies, found)
    attempts = sorted(ledger["attempt"].values(), key=lambda row: row[9])
    known = {row[2] for row in attempts}
    answered = {row[2] for row in attempts if row[3] == "got"}
    unanswered = {row[2]: row for row in attempts if row[3] == "sent" and row[2] not in answered}
    counts = Counter(item for item, _ in ledger["attempt"])
    for (key,), (_, draw, _, body, at, _) in sorted(replies["reply"].items(), key=lambda pair: pair[1][4]):
        if key not in known or key in unanswered:
            item = AGAIN.sub("", draw).rpartition(".")[0] or draw
            used = Reply.model_validate_json(unpack(body)).usage
            while (item, counts[item]) in ledger["attempt"]:
                counts[item] += 1
            n, asked_at = counts[item], at
            if key in unanswered:
                item, n, *_, asked_at, _, _ = unanswered[key]
            spent = (*(min(count, MOST) for count in (used.prompt, used.completion, used.cached)), used.cost)
            set_row(ledger, "attempt", (item, n, key, "got", None, *spent, asked_at, at))
    if found.training:
        drop_lost_episodes(ledger)
    elif found.rollout:
        accept_episodes(ledger)
    else:
        set_row(ledger, "meta", STOPPED)  # until everything is derived again
        of_items = [int(match[1]) for row in replies["reply"].values() if (match := OF_ITEM.match(row[1]))]
        found.planned = 1 + max([*of_items, *(row[2] for row in ledger["item"].values())], default=-1)


def record_lost_replies(ledger: dict[str, Rows], replies: dict[str, Rows], found: Salvaged) -> None:
    """Mark attempts whose reply is missing as lost, unless as many replies of rejected items were removed on request."""
    statuses = {id_: row[4] for (id_,), row in ledger["item"].items()}
    gone = [row for row in ledger["attempt"].values() if row[3] == "got" and (row[2],) not in replies["reply"]]
    rejected = [row for row in gone if statuses.get(row[0]) == "rejected"]
    recent = (RUN,) in ledger["meta"] or ("identity",) in replies["meta"]
    freed = int(replies["meta"].get((FREED,), (FREED, "0"))[1]) if recent else len(rejected)
    found.lost_replies = len(gone) - min(freed, len(rejected))
    if len(rejected) <= freed:
        gone = [row for row in gone if statuses.get(row[0]) != "rejected"]
    else:  # which of them were removed is not known, and none is expected from now on
        replies["meta"].pop((FREED,), None)
    for row in gone:
        set_row(ledger, "attempt", (*row[:3], "lost", *row[4:-1]))


def accept_episodes(ledger: dict[str, Rows]) -> None:
    """Mark episodes without a result as open and accept the others that passed; of equal ones only the first, as the job does."""
    ledger["accepted"].clear()
    seen: set[str] = set()
    for row in sorted(ledger["item"].values(), key=lambda row: row[2]):
        result = ledger["result"].get((row[0],))
        if row[4] in ("passed", "rejected") and result is None:
            set_row(ledger, "item", (*row[:4], "open", None, None))
            set_row(ledger, "meta", STOPPED)
        elif row[4] == "passed" and result is not None and result[1] not in seen:
            seen.add(result[1])
            set_row(ledger, "accepted", (row[2], row[0], result[1]))


def drop_lost_episodes(ledger: dict[str, Rows]) -> None:
    """Leave out the episodes of a training whose record is lost, since they cannot be played again, and renumber the others."""
    kept = sorted((row for row in ledger["item"].values() if (row[0],) in ledger["result"]), key=lambda row: row[2])
    ledger["item"].clear()
    for ord_, row in enumerate(kept):
        set_row(ledger, "item", (*row[:2], ord_, *row[3:-1]))


def set_row(tables: dict[str, Rows], table: str, values: tuple[Any, ...], *, replace: bool = True) -> None:
    key = values[: KEYS.get(table, 1)]
    if replace or key not in tables[table]:
        tables[table][key] = (*values, checksum(table, values))


def write_database(folder: Path, file: File, tables: dict[str, Rows]) -> None:
    """Write a new file next to the old one; it is on disk before it replaces the old one."""
    path = folder / f"{file}.db.new"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        prepare(connection, folder, file, create=True)
        connection.execute("BEGIN")
        for table, rows in tables.items():
            order = sorted(rows.values(), key=lambda row: row[2]) if table == "item" else rows.values()
            connection.executemany(PUT[file, table], order)
        connection.execute("COMMIT")
