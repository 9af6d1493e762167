"""Run: a durable job in a directory. Killing it loses nothing that was paid for.

`runs/<id>/`: `config.yaml` (resolved, as saved at the start), `ledger.db`, `replies.db`, `lock`, `log.txt`. One process
works on a run at a time; a lock left by a dead process is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from simia.config import Config, list_differences, load_yaml, select_identity
from simia.errors import UserError
from simia.jobs import integrity
from simia.jobs.database import Database
from simia.jobs.integrity import Condition
from simia.jobs.ledger import Ledger
from simia.jobs.tables import is_disk_full
from simia.trajectory import Trajectory

FILES = ("ledger.db", "replies.db")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
RECENT_RUNS: deque[Path] = deque(
    maxlen=2
)  # the runs that this process opened last, for a message about a file that cannot be read
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where it is there


class InUse(UserError):  # noqa: N818 - a state, not a mistake
    """Another process works on the run."""


class Run:
    """An open run: its ledger, and facts about it. Use `create`, `open` or `read_only`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str] | None, *, create: bool = False, read_only: bool = False) -> None:
        self.folder = folder
        self.id = folder.name
        self.found: Condition | None = None
        """How the run was found by `open`."""
        self._lock = lock
        if folder not in RECENT_RUNS:
            RECENT_RUNS.append(folder)
        self._db = Database(folder, create=create, read_only=read_only)
        try:
            self.ledger = Ledger(self._db)
            integrity.refuse_mixed(folder, self.ledger)
        except BaseException:
            self._db.close()
            raise

    @property
    def failure(self) -> Exception | None:
        """The disk's refusal, once it has refused: nothing may go on."""
        return self._db.failure

    def verify(self) -> Condition:
        """Where the run stands, after both files were read against their checksums. Raises `Damaged`."""
        return integrity.verify_files(self.folder, self.ledger, self.saved_config(), locked=self._lock is not None)

    def condition(self) -> Condition:
        """Where the run stands, by a few counts. Raises `Damaged`."""
        return integrity.read_condition(self.folder, self.ledger, self.saved_config(), locked=self._lock is not None)

    @property
    def is_locked(self) -> bool:
        """Whether this is the one process that may write to the run."""
        return self._lock is not None

    @classmethod
    def create(cls, root: Path, config: Config, *, name: str | None = None, facts: dict[str, Any]) -> Run:
        """Make the run's folder and files. Raises `UserError` for a name that a run cannot have, or that there is."""
        run_id = new_id() if name is None else check_name(name)
        folder = root / run_id
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            known = f"`simia runs resume {run_id}` goes on with it" if is_run(folder) else "it is no run: remove it"
            raise UserError(f"{folder} exists: {known}, or choose another --name") from None
        except OSError as error:
            raise UserError(
                f"cannot make the run's folder {folder}: {error.strerror}; choose another with --runs"
            ) from None
        lock = take_lock(folder)
        try:
            save_config(folder, config)
            run = cls(folder, lock, create=True)
        except BaseException:
            lock.close()
            raise
        run.ledger.set_meta(integrity.RUN, secrets.token_hex(8), twice=True)
        for fact, value in (("identity", select_identity(config)), ("facts", facts), ("created", time.time())):
            run.ledger.set_meta(fact, value, twice=True)
        return run

    @classmethod
    def open(cls, root: Path, run_id: str, *, verify: bool = True) -> Run:
        """To work on. Raises `Damaged` unless every row is as it was written, and `InUse`; `UserError` where replies are lost that may still
        be in the log of a killed process."""
        folder = find_run(root, run_id)
        lock = take_lock(folder)
        run = cls(folder, lock, read_only=verify)
        if verify:
            try:
                found = run.verify()
                if found.lost_replies and run._db.left_log:
                    raise UserError(str(found))
            except BaseException:
                run.close()
                raise
            if run._db.left_log:
                run._db.close()
                run = cls(folder, lock)
            run.found = found
        return run

    @classmethod
    def read_only(cls, root: Path, run_id: str) -> Run:
        """For reports and exports, also while another process works on the run."""
        return cls(find_run(root, run_id), None, read_only=True)

    def saved_config(self) -> dict[str, Any]:
        return saved_config(self.folder)

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
        known: dict[str, Any] = {}
        for name, given in (("identity", select_identity(config)), ("facts", facts)):
            known[name] = self.ledger.meta(name)
            if known[name] is None and self.is_locked:  # a rebuilt ledger without this value
                self.ledger.set_meta(name, given, twice=True)
                known[name] = given
        changed = list_differences(known["identity"], select_identity(config), select_identity(type(config)()))
        changed = [
            line
            for line in changed
            if not line.startswith(tuple(f"{name}{end}" for name in config.retired for end in ":."))
        ]
        changed += list_differences(known["facts"], facts)
        if changed:
            raise UserError(
                f"run {self.id} was made with another {changed[0]}: start a new run for that, or change it back"
            )

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.close()


def saved_config(folder: Path) -> dict[str, Any]:
    """The config that the run was made with. Raises `UserError`."""
    path = folder / "config.yaml"
    try:
        data = load_yaml(path.read_text(encoding="utf-8"), path, YAML_LOADER)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; a run needs the config that it was made with") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} is damaged: it is no mapping")
    return data


def new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + "".join(random.choices("abcdefghjkmnpqrstuvwxyz", k=3))


def check_name(name: str) -> str:
    """The name for a new run. Raises `UserError` for one that is a path, that a command line would read otherwise, or `last`."""
    if not NAME.fullmatch(name) or name == "last":
        raise UserError(
            f"a run cannot be named {name[:60]!r}: use up to 100 letters, digits, '.', '_' and '-', beginning with a letter or a digit;"
            " 'last' means the latest run"
        )
    return name


def save_config(folder: Path, config: Config) -> None:
    """Written aside and renamed, since a resume may save changed operational fields over it."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    aside = folder / "config.yaml.new"
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(folder / "config.yaml")
    except OSError as error:
        todo = "free the disk" if is_disk_full(error) else "put that right"
        raise UserError(f"cannot write {folder / 'config.yaml'}: {error.strerror}; {todo} and try again") from None


def take_lock(folder: Path) -> IO[str]:
    """An advisory lock that the kernel drops with the process; the text in it is for people."""
    path = folder / "lock"
    try:
        handle = path.open("a+", encoding="utf-8")
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, and a run keeps a file there: remove it and try again") from None
    except OSError as error:
        raise UserError(f"cannot work in {folder}: {error.strerror}; it must be writable") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):  # not held by a process: this file system has no locks
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


def find_run(root: Path, run_id: str) -> Path:
    """A run by path, by id, by a unique beginning of it, or `last`."""
    given = Path(run_id)
    if is_run(given):
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
    found = {path.parent for name in (*FILES, "config.yaml") for path in root.glob(f"*/{name}") if is_run(path.parent)}
    yield from sorted(found, key=lambda folder: (last_use(folder), folder.name))


def is_run(folder: Path) -> bool:
    """Whether there is a run, or what is left of one. A `config.yaml` alone may be of anything."""
    if any(os.path.lexists(folder / name) for name in FILES):
        return True
    return (folder / "config.yaml").is_file() and (folder / "lock").exists()


def last_use(folder: Path) -> int:
    """When the run was worked on last, in nanoseconds: when its lock was written, or without one, when its files were."""
    times: list[int] = []
    for name in ("lock", *FILES, "config.yaml", ""):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime_ns)
            if name == "lock":
                break
    return max(times, default=0)


def refuse_partial(run: Run, *, partial: bool, how: str) -> Condition:
    """Verify a run whose results are about to be taken as a whole. Raises `UserError` unless they are all there; `how`: what the caller
    types to take what there is."""
    found = run.verify()
    if not found.complete and not partial:
        raise UserError(f"{found}, or take what is there with {how}")
    return found


def iterate_accepted(folder: Path, *, partial: bool) -> Iterator[Trajectory]:
    """The accepted trajectories of a run, in the order of its plan.

    Raises `UserError` unless the run is complete; `partial`: take what there is.
    """
    run = Run.read_only(folder.parent, str(folder))
    try:
        refuse_partial(run, partial=partial, how="trajectories(partial=True)")
        for body in run.ledger.accepted():
            yield Trajectory.from_row(body["trajectory"])
    finally:
        run.close()
