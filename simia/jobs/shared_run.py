"""A run that several processes write at once: the episodes of a training, from its ranks or workers.

Each process adds the episodes of a step in one transaction, so that no reader sees half a step of one process, and a kill loses nothing
that was added. All processes hold the run's lock together; commands that change a run refuse meanwhile. An item is named by its step
and a name within the step. A training that resumes from a checkpoint plays some steps again: at the first episodes of a new start, those
of earlier starts from that step on are marked `superseded`, so that every reader counts a step once.

The processes must be on one machine, since SQLite's log needs shared memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import orjson
import zstandard
from pydantic import BaseModel, ConfigDict, Field

from simia.config import Config
from simia.errors import Code, UserError
from simia.jobs.database import LEVEL, Packed, Statement, connect
from simia.jobs.integrity import TRAINING
from simia.jobs.ledger import FAILED, HEAD, PASSED, REJECTED, Item, item_row, pack_json
from simia.jobs.run import Run, check_name, saved_config
from simia.jobs.tables import KEEP, PUT, SIGNED, checksum, is_disk_full
from simia.trajectory import EndKind, Trajectory, digest

PATIENCE = 120_000  # milliseconds for the turn of another process, which takes some milliseconds
STEPS_REMEMBERED = 4


class EpisodeFigures(BaseModel):
    """The figures of an episode that the report of a training reads."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    step: int
    """The trainer's step, from 1; of a validation, the number of steps before it."""
    validates: bool = False
    """Whether it was validated on, not trained on."""
    group: str
    """The group whose rewards are compared: the episodes of one task in one step."""
    task: str
    """Id of the task."""
    reward: float | None = None
    """The reward that the trainer got; None: the episode is not trained."""
    outcome: float | None = None
    """The reward without those of single turns, which decides whether the task was solved; None: the same as `reward`."""
    end: EndKind = "terminated"
    """How it ended."""
    code: str | None = None
    """The reason of the end."""
    turns: int = 0
    """Messages of the policy."""
    tokens: int | None = None
    """Tokens that the policy sampled; None: not known."""
    judge: float | None = None
    """The judge's value, where a model judged."""
    rules: float | None = None
    """The value by the task's rules, where a model judged and the rules could be checked too."""
    start: str = ""
    """Name of the start of the training that played it."""

    @property
    def order(self) -> tuple[int, bool]:
        """When it was played: a validation comes after the step of its number."""
        return self.step, self.validates


class TrainingRun(Config):
    """The config of a run with the episodes of a training."""

    kind: Literal["training"] = Field("training", description="Marks the run of a training.")
    trainer: str = Field(description="The trainer.")
    folder: str = Field(description="The trainer's folder of checkpoints.")


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode to be stored. `name` distinguishes it within its step; `tokens`: the sampled tokens, if they are stored."""

    trajectory: Trajectory
    figures: EpisodeFigures
    name: str
    tokens: dict[str, Any] | None = None


class SharedRun:
    """The access of one process. Use `join`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str]) -> None:
        self.folder, self.id = folder, folder.name
        self._lock = lock
        self._ledger = connect(folder / "ledger.db", durable=False)
        self._ledger.execute(f"PRAGMA busy_timeout={PATIENCE}")
        self._one_at_a_time = threading.Lock()
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._heads: set[str] = set()
        self._names: dict[tuple[int, bool], Counter[str]] = {}
        self._begun = False

    @classmethod
    def join(cls, folder: Path, config: TrainingRun, facts: dict[str, Any]) -> SharedRun:
        """Open the run of a training, which the first process makes. Raises `UserError` for a folder that cannot be written or holds
        another run."""
        folder = folder.expanduser().absolute()
        check_name(folder.name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise _refuse_folder(folder, error.strerror or str(error)) from None
        try:
            while not take_shared_lock(folder, lock, config, facts):
                continue
            refuse_other_training(folder, config)
            return cls(folder, lock)
        except sqlite3.Error as error:
            lock.close()
            raise _refuse_folder(folder, str(error)) from None
        except OSError as error:
            lock.close()
            raise _refuse_folder(folder, error.strerror or str(error)) from None
        except BaseException:
            lock.close()
            raise

    def add(self, rows: Sequence[EpisodeRow]) -> None:
        """Add episodes of one step, all or none of them; they are on disk then. Raises `UserError` if they cannot be written."""
        if not rows:
            return
        with self._one_at_a_time, self._transaction():
            if not self._begun:
                self._supersede(min(row.figures.order for row in rows), rows[0].figures.start)
            last = self._ledger.execute("SELECT COALESCE(MAX(ord), -1) FROM item").fetchone()[0]
            for row in rows:
                id_, known = self._find_place(row)
                last += known is None
                self._write_episode(id_, last if known is None else known, row)
        self._begun = True

    def close(self) -> None:
        self._ledger.close()
        self._lock.close()

    def _find_place(self, row: EpisodeRow) -> tuple[str, int | None]:
        """Return the id for an episode, and the place of the stored one that it replaces, if any: an episode of the same name and start, which
        a process played before it was restarted by hand. Episodes of earlier starts and other episodes of this process are kept."""
        figures = row.figures
        names = self._names.setdefault(figures.order, Counter())
        if len(self._names) > STEPS_REMEMBERED:
            self._names.pop(next(iter(self._names)))
        while True:
            names[row.name] += 1
            again = f"-{names[row.name]}" if names[row.name] > 1 else ""
            id_ = f"{'val-' if figures.validates else ''}{figures.step}.{row.name}{again}"
            known = self._ledger.execute("SELECT ord, spec FROM item WHERE id = ?", (id_,)).fetchone()
            if known is None:
                return id_, None
            if EpisodeFigures.model_validate_json(known[1]).start == figures.start:
                return id_, int(known[0])

    def _write_episode(self, id_: str, ord_: int, row: EpisodeRow) -> None:
        figures, trajectory = row.figures, row.trajectory
        about = {"run": self.id, "item": id_}
        made = trajectory.model_copy(update={"provenance": trajectory.provenance.model_copy(update=about)})
        stored = made.to_row()
        head = {name: stored.pop(name) for name in HEAD if name in stored}
        hashed = digest(head)
        if hashed not in self._heads:
            self._execute(("ledger", KEEP["ledger", "head"], (hashed, Packed(orjson.dumps(head)))))
        issues = [issue.model_dump(mode="json") for issue in trajectory.issues]
        body = {"trajectory": stored, "head": hashed, "issues": issues}
        body |= {"tokens": row.tokens} if row.tokens is not None else {}
        item = Item(id_, ord_, figures.model_dump(mode="json", exclude_defaults=True), PASSED)
        if figures.reward is None:
            reward = trajectory.reward
            item.status = FAILED
            item.reason = str((reward.error if reward else None) or trajectory.end.code or Code.UNSCORED)
            item.detail = reward.rationale[:300] if reward else None
        self._execute(item_row(item))
        self._execute(("ledger", PUT["ledger", "result"], (id_, None, Packed(pack_json(body)))))
        self._heads.add(hashed)

    def _supersede(self, since: tuple[int, bool], start: str) -> None:
        """Mark the episodes of earlier starts from this step on as superseded."""
        rows = self._ledger.execute("SELECT id, ord, spec FROM item WHERE status <> ?", (REJECTED,)).fetchall()
        for id_, ord_, spec in rows:
            figures = EpisodeFigures.model_validate_json(spec)
            if figures.start != start and figures.order >= since:
                self._execute(item_row(Item(id_, ord_, orjson.loads(spec), REJECTED, Code.SUPERSEDED)))

    def _execute(self, statement: Statement) -> None:
        """Write a whole row, compressed and with its checksum."""
        _, sql, values = statement
        ready = [self._compressor.compress(v.raw) if isinstance(v, Packed) else v for v in values]
        self._ledger.execute(sql, [*ready, checksum(SIGNED[sql], ready)])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        heads = set(self._heads)
        try:
            if not (self.folder / "ledger.db").exists():
                raise sqlite3.OperationalError("its files are gone")  # SQLite would keep writing to a deleted file
            self._ledger.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._ledger.execute("COMMIT")
            except BaseException:
                self._heads = heads
                if self._ledger.in_transaction:
                    self._ledger.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            todo = "free disk space" if is_disk_full(error) else "fix this"
            raise UserError(
                f"cannot write episodes to the run {self.folder}: {error}; {todo} and start again, or set episodes=null"
            ) from None


def take_shared_lock(folder: Path, lock: IO[str], config: TrainingRun, facts: dict[str, Any]) -> bool:
    """Hold the lock together with the training's other processes. The first one makes the run, and the others wait for it. Returns
    False if the first one died before it had made the run."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        if not is_complete(folder):
            make_run(folder, config, facts)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
    fcntl.flock(lock, fcntl.LOCK_SH)
    return is_complete(folder)


def is_complete(folder: Path) -> bool:
    """Whether the run was made to its end."""
    if not (folder / "ledger.db").is_file() or not (folder / "config.yaml").is_file():
        return False
    with contextlib.closing(connect(folder / "ledger.db", durable=False)) as ledger:
        if not ledger.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            return False
        return ledger.execute("SELECT 1 FROM meta WHERE name = 'created'").fetchone() is not None


def make_run(folder: Path, config: TrainingRun, facts: dict[str, Any]) -> None:
    if (folder / "config.yaml").is_file():
        refuse_other_training(folder, config)
    Run.initialize(folder, config, facts).close()


def refuse_other_training(folder: Path, config: TrainingRun) -> None:
    """Raise `UserError` unless the run in this folder is of this training."""
    saved = saved_config(folder)
    other = (
        "is not a run of a training" if saved.get("kind") != TRAINING else f"is of the training in {saved['folder']}"
    )
    if saved.get("kind") != TRAINING or saved.get("folder") != config.folder:
        raise UserError(f"run {folder} {other}: set episodes.run to another one")


def _refuse_folder(folder: Path, why: str) -> UserError:
    return UserError(
        f"cannot write episodes to {folder}: {why}; set episodes.run to a folder on a local disk, or set episodes=null"
    )
