"""The tables of a run's two files, their version, and the checksum in every row.

SQLite finds a broken page, but not a changed value. Each row therefore has a CRC-32 of its table's name and its values, computed by the
writer's thread and compared by every reader. Files of simia 0.1.0 have no version and no checksums: the columns are added when they are
opened, and their old rows keep none.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson
import zstandard

from simia.errors import UserError

VERSION = 1  # PRAGMA user_version of both files; 0: made by simia 0.1.0, or new
MOST = 1 << 53  # tokens: a float holds every integer up to here
PAGE_SIZE, LOG_HEADER = 4096, 32  # bytes; of all files that simia writes
LARGEST = 1 << 30  # bytes of one unpacked value: more can only be a damaged length
File = Literal["replies", "ledger"]
# Raised by reads of a damaged file: Python cannot decode SQLite's own message when it quotes the damage.
READ_ERRORS = (sqlite3.Error, UnicodeDecodeError)

COLUMNS: dict[File, dict[str, str]] = {
    "ledger": {
        "meta": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
        "item": "id TEXT PRIMARY KEY, stage TEXT NOT NULL, ord INTEGER NOT NULL, spec TEXT NOT NULL, status TEXT NOT NULL,"
        " reason TEXT, detail TEXT",
        "attempt": "item TEXT NOT NULL, n INTEGER NOT NULL, reply_key TEXT NOT NULL, status TEXT NOT NULL, code TEXT, prompt INTEGER,"
        " completion INTEGER, cached INTEGER, cost REAL, asked_at REAL NOT NULL, got_at REAL",
        "result": "item TEXT PRIMARY KEY, content_hash TEXT, body BLOB NOT NULL",
        "seed": "ord INTEGER PRIMARY KEY, id TEXT NOT NULL, head TEXT NOT NULL, body BLOB NOT NULL",
        "trait": "item TEXT PRIMARY KEY, tools TEXT NOT NULL, signature BLOB",
        "head": "hash TEXT PRIMARY KEY, body BLOB NOT NULL",
        "accepted": "ord INTEGER PRIMARY KEY, item TEXT NOT NULL, content_hash TEXT NOT NULL UNIQUE",
    },
    "replies": {
        "reply": "key TEXT PRIMARY KEY, draw TEXT NOT NULL, request BLOB NOT NULL, body BLOB NOT NULL, at REAL NOT NULL",
        "text": "hash TEXT PRIMARY KEY, body BLOB NOT NULL",
        "meta": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
    },
}
PACKED = {"reply": (2, 3), "text": (1,), "result": (2,), "seed": (3,), "head": (1,)}  # places of compressed values
ENDINGS = {"item": ", UNIQUE (stage, ord)", "attempt": ", PRIMARY KEY (item, n)"}
ALWAYS = {"ledger": {"meta", "item", "attempt"}, "replies": {"reply"}}  # in every file that was ever written


def count_columns(file: File, table: str) -> int:
    """How many values a row has, its checksum not counted. No type in these definitions has a comma in it."""
    return COLUMNS[file][table].count(",") + 1


def _places(file: File, table: str) -> str:
    return ", ".join("?" * (count_columns(file, table) + 1))


# Statements that write whole rows; `Database` adds the checksum to the values of these.
KEEP, PUT = (
    {
        (file, table): f"INSERT OR {verb} INTO {table} VALUES ({_places(file, table)})"
        for file, tables in COLUMNS.items()
        for table in tables
    }
    for verb in ("IGNORE", "REPLACE")
)
# Not replaced: a replaced row would move to the end of the table.
PUT["ledger", "item"] = (
    f"INSERT INTO item VALUES ({_places('ledger', 'item')}) ON CONFLICT (id) DO UPDATE SET spec = excluded.spec,"
    " status = excluded.status, reason = excluded.reason, detail = excluded.detail, sum = excluded.sum"
)
# Of equal contents the first item is accepted, in whatever order they are made.
PUT["ledger", "accepted"] = (
    f"INSERT INTO accepted VALUES ({_places('ledger', 'accepted')}) ON CONFLICT (ord) DO NOTHING ON CONFLICT (content_hash)"
    " DO UPDATE SET ord = excluded.ord, item = excluded.item, sum = excluded.sum WHERE excluded.ord < accepted.ord"
)
SIGNED = {sql: table for statements in (KEEP, PUT) for (_, table), sql in statements.items()}


def build_token_sum(column: str) -> str:
    """Return SQL for the sum of a column of counts. Endpoints may report any size and sign, with which SQLite's SUM would overflow."""
    return f"CAST(MIN(TOTAL(MAX({column}, 0)), {MOST}) AS INTEGER)"


COST = "MIN(SUM(MAX(cost, 0)), 1e15)"  # limited as in `build_token_sum`; NULL if no row has a cost


class Damaged(UserError):  # noqa: N818 - a state, not a mistake
    """A file of a run does not hold what was written to it."""


def checksum(table: str, values: Iterable[Any]) -> int:
    """CRC-32 of a row: every change of one byte, and of up to four in a row, gives another one."""
    parts = [table.encode()]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, str):
            raw = value.encode()
            parts += (b"t%d:" % len(raw), raw)
        elif isinstance(value, bytes):
            parts += (b"b%d:" % len(value), value)
        else:  # SQLite hands an integer back from a REAL column as a float
            parts += (b"r", struct.pack("<d", value))
    return zlib.crc32(b"".join(parts))


def is_sound(table: str, row: Sequence[Any]) -> bool:
    """Whether a row, its checksum last, is as it was written. Rows of simia 0.1.0 have none and must only be readable."""
    *values, expected = row
    return is_readable(table, values) if expected is None else checksum(table, values) == expected


def is_readable(table: str, row: Sequence[Any]) -> bool:
    """Whether the compressed values of a row can be unpacked: the only test for a row without a checksum."""
    try:
        for place in PACKED.get(table, ()):
            raw = unpack(row[place])
            if table != "text":
                orjson.loads(raw)
    except (ValueError, IndexError):
        return False
    return True


def unpack(packed: bytes) -> bytes:
    """Decompress a stored value. Raises `ValueError` for a damaged one."""
    try:
        if zstandard.frame_content_size(packed) > LARGEST:
            raise ValueError("its length is damaged")
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=LARGEST)
    except (zstandard.ZstdError, TypeError, MemoryError) as error:
        raise ValueError(str(error)) from None


def is_disk_full(error: Exception) -> bool:
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return full or getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def make_damage_error(folder: Path, file: File, what: object) -> Damaged:
    todo = f"move {folder} away; its replies are then requested again"
    if (folder / "config.yaml").is_file():
        todo = f"to recover what can be read: simia runs rebuild {folder}"
    return Damaged(f"{folder / f'{file}.db'} is damaged ({what}); {todo}")


def get_log_path(path: Path) -> Path:
    """A file's write-ahead log. SQLite copies it into the file and removes it when the last connection that may write is closed."""
    return path.with_name(f"{path.name}-wal")


def has_log(path: Path) -> bool:
    """Whether the file's log may hold rows."""
    return get_log_path(path).is_file() and get_log_path(path).stat().st_size > LOG_HEADER


def is_empty(path: Path) -> bool:
    """Whether SQLite considers the file empty: then it removes the log on opening, also to read."""
    return not path.is_file() or path.stat().st_size <= 1


def refuse_empty(path: Path, file: File) -> None:
    """Raise `Damaged` if only the write-ahead log of a file is left. Call it before the file is opened."""
    if is_empty(path) and has_log(path):
        raise make_damage_error(path.parent, file, f"it is empty, and {get_log_path(path).name} is not")


def open_read_only(path: Path) -> contextlib.closing[sqlite3.Connection]:
    """Open a run's file to read, as a context manager."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    return contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None))


def attach(connection: sqlite3.Connection, path: Path, schema: str) -> None:
    """Attach another file to read; its tables are named `schema.table`."""
    connection.execute(f"ATTACH ? AS {schema}", (f"{path.resolve().as_uri()}?mode=ro",))


def prepare(connection: sqlite3.Connection, folder: Path, file: File, *, create: bool) -> None:
    """Bring an opened file to the present version. Raises `UserError` for a newer one, `Damaged` for one without the tables of a run."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise UserError(
            f"{folder / f'{file}.db'} has format {version} and this simia reads formats up to {VERSION}: upgrade simia"
        )
    needed = ALWAYS[file] if version < VERSION else COLUMNS[file].keys()
    if not create and not needed <= list_sqlite_tables(connection):
        raise make_damage_error(folder, file, "it is empty, or the -wal file next to it is missing")
    if version == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = list_sqlite_tables(connection)
        for table, columns in COLUMNS[file].items():
            if table not in found:
                rowid = " WITHOUT ROWID" if table == "attempt" else ""
                connection.execute(f"CREATE TABLE {table} ({columns}, sum INTEGER{ENDINGS.get(table, '')}){rowid}")
            elif not connection.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = 'sum'", (table,)).fetchone():
                connection.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def list_sqlite_tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
