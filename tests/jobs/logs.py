"""The files of a run as a kill leaves them: in chosen states of the write-ahead log, the same each time.

The rows of a closed run are written again, one commit each, and the files are copied while the connection is open.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from simia.jobs.tables import COLUMNS, PUT, File, prepare

# How much of the log is in the file itself: nothing; what no later commit changes of the first half; all; the first half, with the log begun
# anew, so that frames of the old log stand behind the new ones.
STATES = ("in the log", "half copied", "copied", "begun anew")


def leave_log(folder: Path, file: File, state: str) -> None:
    """Replace a closed file by one that holds the same rows and has a log in this state."""
    path = folder / f"{file}.db"
    with closing(sqlite3.connect(path)) as closed:
        rows = [(table, row) for table in COLUMNS[file] for row in closed.execute(f"SELECT * FROM {table}")]
    rows.sort(key=lambda pair: pair[0] != "meta")  # as a run writes them: what it is comes first
    aside = folder / "aside"
    aside.mkdir()
    made = aside / path.name
    with closing(sqlite3.connect(made, isolation_level=None)) as writer, closing(sqlite3.connect(made)) as reader:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        prepare(writer, folder, file, create=True)
        for i, (table, row) in enumerate(rows):
            if i == len(rows) // 2 and state == "half copied":
                reader.execute("BEGIN")
                reader.execute("SELECT COUNT(*) FROM meta").fetchone()  # from here on the file itself stays behind
            if i == len(rows) // 2 and state == "begun anew":
                writer.execute("PRAGMA wal_checkpoint(RESTART)")
            writer.execute(PUT[file, table], row)
        if state in ("half copied", "copied"):
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        for part in ("", "-wal"):
            shutil.copyfile(f"{made}{part}", f"{path}{part}")
    shutil.rmtree(aside)
