"""Check that a run's files hold what was written to them, and that its results are complete.

`verify_files` reads both files once: SQLite's own integrity check, the checksum of every row, and then the relations between rows and
between the two files, since a write-ahead log that lost its end leaves a valid file in which rows are missing. It is for commands that
read the whole run anyway; `read_condition` only counts rows.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.errors import UserError
from simia.jobs.ledger import Ledger
from simia.jobs.tables import (
    COLUMNS,
    READ_ERRORS,
    File,
    attach,
    has_log,
    is_sound,
    make_damage_error,
    open_read_only,
    refuse_empty,
)
from simia.terminal import write_count

# What must hold between the rows: a sentence, and a query that counts exceptions.
RELATIONS = {
    "accepted results of no item": "SELECT COUNT(*) FROM accepted LEFT JOIN item ON item.id = accepted.item WHERE item.id IS NULL"
    " OR item.ord <> accepted.ord OR item.status NOT IN ('passed', 'open', 'failed')",
    "accepted results whose text is missing or another one": "SELECT COUNT(*) FROM accepted LEFT JOIN result USING (item)"
    " WHERE result.content_hash IS NULL OR result.content_hash <> accepted.content_hash",
    "items with a verdict and no result": "SELECT COUNT(*) FROM item LEFT JOIN result ON result.item = item.id"
    " WHERE status = 'passed' AND result.item IS NULL",
    "items missing from the plan": "SELECT COALESCE(MAX(ord) + 1 - COUNT(*), 0) FROM item",
}
# Between the first accepted and the last: whatever passed was accepted, since acceptance is decided in order.
IN_ORDER = (
    "SELECT COUNT(*) FROM item LEFT JOIN accepted ON accepted.ord = item.ord WHERE status = 'passed' AND accepted.ord IS NULL"
    " AND item.ord < (SELECT MAX(ord) FROM accepted)"
)
PASSED = "SELECT COUNT(DISTINCT content_hash) FROM item JOIN result ON result.item = item.id WHERE status = 'passed'"
# Replies that the ledger names and the other file lacks: how many of items that were not rejected (0) and of rejected ones (1).
LOST = (
    "SELECT COALESCE(item.status = 'rejected', 0), COUNT(DISTINCT reply_key) FROM attempt LEFT JOIN item ON item.id = attempt.item"
    " WHERE attempt.status = 'got' AND reply_key NOT IN (SELECT key FROM kept.reply) GROUP BY 1"
)
UNKNOWN = "SELECT COUNT(*) FROM kept.reply WHERE key NOT IN (SELECT reply_key FROM attempt)"
TRAINING = "training"  # the kind of a run with the episodes of a training
SYNTHESIS = "synthesis"  # the kind of a run whose items are those of a recipe's stages
REBUILT = "rebuilt"  # in the ledger's meta after `simia runs rebuild`: the next resume completes its identity
RUN = "run"  # in the meta of both files: a random name of their run; those of simia 0.1.0 have none
FREED = "freed"  # in the replies' meta: how many replies `simia runs gc --replies` has removed


@dataclass(slots=True)
class Condition:
    """The state of a run. `accepted` and `wanted` count trajectories; in a rollout, finished and planned episodes; in a synthesis, decided
    and planned items. `lost_replies`: replies that the ledger names and `replies.db` does not hold."""

    run: str
    rollout: bool
    working: bool
    stop: str | None
    accepted: int
    wanted: int
    findings: list[str] = field(default_factory=list)
    lost_replies: int = 0
    training: bool = False
    """In a training, `accepted` counts the episodes with a reward and `wanted` all episodes; it is complete when no process works on it."""
    unit: str = "accepted"
    """What `accepted` counts."""

    @property
    def complete(self) -> bool:
        if self.training:
            return not self.findings and not self.working
        return not self.findings and not self.working and self.stop == "complete" and self.accepted >= self.wanted

    def __str__(self) -> str:
        """One line: how much is there, why the rest is missing, and what to do."""
        if self.complete:
            return f"run {self.run} is complete"
        if self.training and self.working:
            return f"run {self.run}: {write_count(self.wanted, 'episode')} so far, the training is in progress: wait for its end"
        done = f"run {self.run}: {self.accepted:,} of {self.wanted:,} {self.unit}"
        if self.working:
            return f"{done}, run in progress: wait for its end"
        if self.findings:
            return f"{done}, inconsistent ({'; '.join(self.findings)}): repair it with simia runs rebuild {self.run}"
        state = f"stopped ({self.stop})" if self.stop else "killed before its end"
        return f"{done}, {state}: finish it with simia runs resume {self.run}"


def read_condition(folder: Path, ledger: Ledger, config: dict[str, Any], *, locked: bool) -> Condition:
    """Return the state of a run by counting rows; `verify_files` also finds inconsistencies. `locked`: this process works on the run.
    Raises `Damaged`."""
    rollout, training = config.get("kind") == "rollout", config.get("kind") == TRAINING
    try:
        stopped = (ledger.meta("stopped") or {}).get("kind")
        unit = "episodes done" if rollout else "accepted"
        if rollout or config.get("kind") == SYNTHESIS:
            counts = ledger.counts()
            wanted = sum(counts.values())
            if rollout:
                wanted = (ledger.meta("facts") or {}).get("planned") or 0
            else:
                unit = "items decided"
            done = sum(counts.values()) - counts.get("open", 0) - counts.get("failed", 0)
        elif training:
            counts = ledger.counts()
            done = counts.get("passed", 0)
            wanted = done + counts.get("failed", 0)
        else:
            done, wanted = ledger.accepted_count(), config.get("n", 0)
    except (*READ_ERRORS, AttributeError) as error:
        raise make_damage_error(folder, "ledger", error) from None
    working = not locked and is_worked_on(folder, by_several=training)
    return Condition(folder.name, rollout, working, stopped, done, wanted, training=training, unit=unit)


def verify_files(folder: Path, ledger: Ledger, config: dict[str, Any], *, locked: bool) -> Condition:
    """Read both files against their checksums, then compare them. Raises `Damaged` for a row or page that has changed; missing rows are in
    the findings of the condition."""
    with open_read_only(folder / "ledger.db") as connection:
        try:
            attach(connection, folder / "replies.db", "kept")
            connection.execute("BEGIN")
            for file in COLUMNS:
                verify_file(connection, folder, file)
            found = read_condition(folder, ledger, config, locked=locked)
            if not found.working:  # else the two files show different moments
                found.findings = find_inconsistencies(connection, found)
        except READ_ERRORS as error:
            raise make_damage_error(folder, "ledger", error) from None
    missing = [name for name in ("identity", "facts") if ledger.meta(name) is None]
    if missing and not ledger.meta(REBUILT):
        raise make_damage_error(folder, "ledger", f"it has no {' and no '.join(missing)}")
    return found


def refuse_mixed(folder: Path, ledger: Ledger) -> None:
    """Raise `UserError` if the two files are of different runs, whose rows may look alike."""
    if are_mixed(ledger.meta(RUN), ledger.meta(RUN, "replies")):
        raise mixed_files_error(folder)


def are_mixed(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def mixed_files_error(folder: Path) -> UserError:
    return UserError(
        f"{folder}: ledger.db and replies.db belong to different runs: restore the one of this run, or move ledger.db away and make"
        f" it again from the replies: simia runs rebuild {folder}"
    )


def verify_file(connection: sqlite3.Connection, folder: Path, file: File) -> None:
    schema = "main" if file == "ledger" else "kept"
    try:
        found = connection.execute(f"PRAGMA {schema}.integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise make_damage_error(folder, file, " ".join(str(found).split()))
        for table in COLUMNS[file]:
            changed = sum(not is_sound(table, row) for row in connection.execute(f"SELECT * FROM {schema}.{table}"))
            if changed:
                raise make_damage_error(folder, file, f"{write_count(changed, 'changed row')} in table {table}")
    except READ_ERRORS as error:
        raise make_damage_error(folder, file, error) from None


def find_inconsistencies(connection: sqlite3.Connection, found: Condition) -> list[str]:
    """Describe rows that are missing according to other rows or the other file."""

    def count(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    findings = [f"{n:,} {what}" for what, query in RELATIONS.items() if (n := count(query))]
    if not (found.rollout or found.training) and (n := count(IN_ORDER)):
        findings.append(f"{write_count(n, 'result')} not accepted in turn")
    if found.rollout and found.stop and (n := count(PASSED) - count("SELECT COUNT(*) FROM accepted")) > 0:
        findings.append(f"{write_count(n, 'episode')} missing from the accepted ones")
    if found.stop == "complete" and found.accepted < found.wanted:
        findings.append(f"it ended as complete with {found.wanted:,}")
    row = connection.execute("SELECT value FROM kept.meta WHERE name = ?", (FREED,)).fetchone()
    recent = count(f"SELECT COUNT(*) FROM main.meta WHERE name = '{RUN}'")
    named = count(f"SELECT COUNT(*) FROM kept.meta WHERE name IN ('{RUN}', 'identity')")
    if recent and not named:
        findings.append("replies.db has lost the run's identity")
    missing = dict(connection.execute(LOST).fetchall())
    lost = int(missing.get(0, 0))
    if recent or named:  # files of 0.1.0 do not hold how many were removed on request
        lost += max(0, missing.get(1, 0) - (int(row[0]) if row else 0))
    if lost:
        findings.append(f"{write_count(lost, 'lost reply')}")
        found.lost_replies = lost
    if n := count(UNKNOWN):
        findings.append(f"{write_count(n, 'reply')} unknown to the ledger")
    return findings


def refuse_lost_replies(folder: Path) -> None:
    """Raise `Damaged` if a store's ledger names replies that its `replies.db` has lost. Call it before that file is opened for writing. The
    caller holds the store's lock. For runs, `verify_files` finds more."""
    if not (folder / "ledger.db").is_file() or not has_log(folder / "replies.db"):
        return
    for file in COLUMNS:
        refuse_empty(folder / f"{file}.db", file)
    with open_read_only(folder / "ledger.db") as connection:
        try:
            if not connection.execute("SELECT 1 FROM attempt WHERE status = 'got' LIMIT 1").fetchone():
                return
        except READ_ERRORS:  # killed before it held anything, or damaged, which is found on opening
            return
        try:
            attach(connection, folder / "replies.db", "kept")
            lost = sum(count for _, count in connection.execute(LOST))
        except READ_ERRORS as error:
            raise make_damage_error(folder, "replies", error) from None
    if lost:
        raise make_damage_error(folder, "replies", f"{write_count(lost, 'lost reply')}")


def is_worked_on(folder: Path, *, by_several: bool = False) -> bool:
    """Whether a process, this one included, holds the run's lock. The test takes a shared lock for a moment; with `by_several`, an exclusive
    one, since the processes of a training share theirs."""
    with contextlib.suppress(OSError), (folder / "lock").open() as handle:  # without a lock file: no
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if by_several else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
