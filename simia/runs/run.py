"""Run: a durable job in a directory. Killing it loses nothing that was paid for.

`runs/<id>/`: `config.yaml` (resolved, as saved at the start), `ledger.db`, `replies.db`, `lock`, `log.txt`. One process
works on a run at a time; a lock left by a dead process is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from simia.config import Config, differences, identity
from simia.errors import UserError
from simia.runs.database import Database
from simia.runs.ledger import Ledger


class InUse(UserError):  # noqa: N818 - a state, not a mistake
    """Another process works on the run."""


class Run:
    """An open run: its ledger, and facts about it. Use `create`, `open` or `read_only`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str] | None) -> None:
        self.folder = folder
        self.id = folder.name
        self._lock = lock
        self._db = Database(folder)
        self.ledger = Ledger(self._db)

    @property
    def failure(self) -> Exception | None:
        """The disk's refusal, once it has refused: nothing may go on."""
        return self._db.failure

    @classmethod
    def create(cls, root: Path, config: Config, *, name: str | None = None, facts: dict[str, Any]) -> Run:
        run_id = name or new_id()
        folder = root / run_id
        try:
            folder.mkdir(parents=True, exist_ok=False)
            save_config(folder, config)
        except FileExistsError:
            raise UserError(
                f"{folder} exists: `simia runs resume {run_id}` goes on with it, or choose another --name"
            ) from None
        except OSError as error:
            raise UserError(
                f"cannot make the run's folder {folder}: {error.strerror}; choose another with --runs"
            ) from None
        run = cls(folder, take_lock(folder))
        run.ledger.set_meta("identity", identity(config))
        run.ledger.set_meta("facts", facts)
        run.ledger.set_meta("created", time.time())
        return run

    @classmethod
    def open(cls, root: Path, run_id: str) -> Run:
        folder = locate(root, run_id)
        return cls(folder, take_lock(folder))

    @classmethod
    def read_only(cls, root: Path, run_id: str) -> Run:
        """For reports and exports, also while another process works on the run."""
        return cls(locate(root, run_id), None)

    def saved_config(self) -> dict[str, Any]:
        data = yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise UserError(f"{self.folder / 'config.yaml'} is damaged: it is no mapping")
        return data

    @property
    def is_rollout(self) -> bool:
        """Whether its items are episodes; else they are trajectories that a model wrote."""
        return self.saved_config().get("kind") == "rollout"

    def refuse_rollouts(self, what: str) -> None:
        if self.is_rollout:
            raise UserError(
                f"{what} reads runs of simia amplify, and {self.id} is a rollout: see simia report {self.id}"
            )

    def refuse_other_identity(self, config: Config, facts: dict[str, Any]) -> None:
        """A resume may change what is operational; anything else would mix two data sets in one."""
        changed = differences(self.ledger.meta("identity"), identity(config))
        changed += differences(self.ledger.meta("facts"), facts)
        if changed:
            raise UserError(
                f"run {self.id} was made with another {changed[0]}: start a new run for that, or change it back"
            )

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.close()


def new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + "".join(random.choices("abcdefghjkmnpqrstuvwxyz", k=3))


def save_config(folder: Path, config: Config) -> None:
    """Written aside and renamed, since a resume may save changed operational fields over it."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    aside = folder / "config.yaml.new"
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(folder / "config.yaml")
    except OSError as error:
        raise UserError(
            f"cannot write {folder / 'config.yaml'}: {error.strerror}; free the disk and try again"
        ) from None


def take_lock(folder: Path) -> IO[str]:
    """An advisory lock that the kernel drops with the process; the text in it is for people."""
    path = folder / "lock"
    try:
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot work in {folder}: {error.strerror}; it must be writable") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):  # nobody holds it: this file system has no locks
            handle.close()
            raise UserError(f"cannot lock {folder}: {error.strerror}; name a folder on a local disk") from None
        handle.seek(0)
        holder = handle.read().strip() or "another process"
        handle.close()
        raise InUse(f"run {folder.name} is being worked on by {holder}: wait for it, or stop it first") from None
    try:
        handle.seek(0)
        handle.truncate()
        handle.write(f"process {os.getpid()} on {socket.gethostname()}")
        handle.flush()
    except OSError as error:
        raise UserError(f"cannot work in {folder}: {error.strerror}") from None
    return handle


def locate(root: Path, run_id: str) -> Path:
    """A run by path, by id, by a unique beginning of it, or `last`."""
    given = Path(run_id)
    if (given / "ledger.db").is_file():
        return given
    runs = list(folders(root))
    if run_id == "last" and runs:
        return runs[-1]
    matches = [folder for folder in runs if folder.name == run_id] or [f for f in runs if f.name.startswith(run_id)]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(folder.name for folder in runs[-5:]) or "none yet"
    problem = "several runs begin with" if matches else "there is no run"
    raise UserError(f"{problem} {run_id!r} in {root} (latest: {known})")


def folders(root: Path) -> Iterator[Path]:
    """All runs; the one that was worked on last stands last (its lock file was written last)."""
    found = [path.parent for path in root.glob("*/ledger.db") if (path.parent / "lock").is_file()]
    yield from sorted(found, key=lambda folder: ((folder / "lock").stat().st_mtime_ns, folder.name))
