"""A run: a durable job in a folder, which loses nothing that was paid for when its process is killed.

`runs/<id>/`: `config.yaml` (resolved, as saved at the start), `ledger.db`, `replies.db`, `lock`, `log.txt`. One process
works on a run at a time; a lock left by a dead process is taken over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
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
from simia.jobs.tables import READ_ERRORS, is_disk_full
from simia.search_path import find_working_directory
from simia.trajectory import Trajectory

FILES = ("ledger.db", "replies.db")
START_FOLDER = "start_folder"
"""Key of the folder in the meta table. The config does not contain it: exports contain parts of the config, and its digest."""
NEWER_FACTS = ("shown", "world")  # runs of earlier versions lack them
PACK_FACTS = ("contents: ", "shown: ", "world: ")
MOST_SHOWN = 100  # characters of a setting that differs
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
RECENT_RUNS: deque[Path] = deque(maxlen=2)  # opened by this process, for a message about a file that cannot be read
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # if available, the C loader is ten times faster


class InUse(UserError):  # noqa: N818 - a state, not a mistake
    """Another process works on the run."""


class CompleteRun(UserError):  # noqa: N818 - a state, not a mistake
    """A run of the requested name exists, has the same settings, and is complete."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is complete; to show it: simia report {run_id}")


class Run:
    """An open run and its ledger. Use `create`, `open` or `read_only`, and `close` at the end."""

    def __init__(self, folder: Path, lock: IO[str] | None, *, create: bool = False, read_only: bool = False) -> None:
        self.folder = folder
        self.id = folder.name
        self.found: Condition | None = None
        """The run's condition when it was opened to work on."""
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
        """The error of a failed write; work must stop then."""
        return self._db.failure

    def verify(self) -> Condition:
        """Return the state of the run, after checking both files against their checksums. Raises `Damaged`."""
        return integrity.verify_files(self.folder, self.ledger, self.saved_config(), locked=self._lock is not None)

    def condition(self) -> Condition:
        """Return the state of the run, from a few counts of rows. Raises `Damaged`."""
        return integrity.read_condition(self.folder, self.ledger, self.saved_config(), locked=self._lock is not None)

    @classmethod
    def create(cls, root: Path, config: Config, *, name: str | None = None, facts: dict[str, Any]) -> Run:
        """Make the run's folder and files. Raises `UserError` for an invalid or taken name, `CompleteRun` if that run is complete already."""
        run_id = new_id() if name is None else check_name(name)
        folder = root / run_id
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            refuse_taken(root, run_id, config, facts)
            raise
        except OSError as error:
            raise UserError(
                f"cannot make the run's folder {folder}: {error.strerror}; choose another with --runs"
            ) from None
        lock = take_lock(folder)
        try:
            return cls.initialize(folder, config, facts, lock)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def initialize(cls, folder: Path, config: Config, facts: dict[str, Any], lock: IO[str] | None = None) -> Run:
        """Make the files of a run in its folder, whose lock the caller holds; `created` is written last."""
        save_config(folder, config)
        run = cls(folder, lock, create=True)
        run.ledger.set_meta(integrity.RUN, secrets.token_hex(8), twice=True)
        started = {"identity": select_identity(config), "facts": facts, START_FOLDER: find_working_directory()}
        for fact, value in (started | {"created": time.time()}).items():
            run.ledger.set_meta(fact, value, twice=True)
        return run

    @classmethod
    def open(cls, root: Path, run_id: str, *, verify: bool = True) -> Run:
        """Open a run to work on it. Raises `InUse`, `Damaged` if a row has changed, and `UserError` if replies are lost that may still be in
        the write-ahead log of a killed process."""
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
            run.ledger.complete_attempts()
        return run

    @classmethod
    def read_only(cls, root: Path, run_id: str) -> Run:
        """Open a run for reports and exports, also while another process works on it."""
        return cls(find_run(root, run_id), None, read_only=True)

    def saved_config(self) -> dict[str, Any]:
        return saved_config(self.folder)

    @property
    def start_folder(self) -> Path | None:
        """The folder in which the run was started, to which paths in its config are relative; None if an earlier version made the run."""
        known = self.ledger.meta(START_FOLDER)
        return Path(known) if known else None

    @property
    def is_rollout(self) -> bool:
        """Whether its items are episodes; otherwise they are trajectories that a model wrote."""
        return self.saved_config().get("kind") == "rollout"

    @property
    def is_training(self) -> bool:
        """Whether its items are the episodes of a training."""
        return self.saved_config().get("kind") == integrity.TRAINING

    @property
    def is_synthesis(self) -> bool:
        """Whether its items are those of a synthesis recipe's stages."""
        return self.saved_config().get("kind") == integrity.SYNTHESIS

    def refuse_rollouts(self, what: str) -> None:
        """Raise `UserError` unless the run is an amplification."""
        if self.is_rollout or self.is_training or self.is_synthesis:
            kind = "a rollout" if self.is_rollout else "of a training" if self.is_training else "a synthesis"
            raise UserError(f"{what} reads runs of simia amplify, but {self.id} is {kind}: see simia report {self.id}")

    def refuse_synthesis(self) -> None:
        """Raise `UserError` for a synthesis, which has no trajectories."""
        if self.is_synthesis:
            out = self.ledger.meta("out")
            raise UserError(f"run {self.id} is a synthesis: its results are packs in {out}, not trajectories")

    def refuse_other_identity(self, config: Config, facts: dict[str, Any]) -> None:
        """Raise `UserError` if other than operational settings differ, since a resume would mix two data sets."""
        changed: list[str] = []
        for name, given in (("identity", select_identity(config)), ("facts", facts)):
            known = self.ledger.meta(name)
            if known is None and self._lock is not None:  # a rebuilt ledger without this value
                self.ledger.set_meta(name, given, twice=True)
                known = given
            defaults = (
                select_identity(type(config)()) if name == "identity" else {new: given.get(new) for new in NEWER_FACTS}
            )
            changed += list_differences(known, given, defaults)
        retired = tuple(f"{name}{end}" for name in config.retired for end in ":.")
        changed = [line for line in changed if not line.startswith(retired)]
        if changed and changed[0].startswith("prompts."):
            name = changed[0].removeprefix("prompts.").partition(": ")[0]
            raise UserError(
                f"run {self.id} was made with another version of the prompt file {name}, so its stored replies answer other prompts: restore that file"
                f" (in a folder of SIMIA_PATH, as prompts/{name}) or start a new run; recheck, report and export still work"
            )
        if changed and changed[0].startswith(PACK_FACTS):
            raise UserError(
                f"run {self.id} was made with other policies, tools, tasks, code or data of its packs: a resume would mix both; undo the change, or start a new run"
            )
        if changed:
            raise UserError(
                f"run {self.id} was made with a different {changed[0]}: a resume cannot change it; undo the change, or start a new run"
            )

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.close()


def saved_config(folder: Path) -> dict[str, Any]:
    """Return the config that the run was made with. Raises `UserError`."""
    path = folder / "config.yaml"
    try:
        data = load_yaml(path.read_text(encoding="utf-8"), path, YAML_LOADER)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; a run needs the config that it was made with") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} is damaged: it is not a mapping")
    return data


def refuse_taken(root: Path, name: str, config: Config, facts: dict[str, Any] | None = None) -> None:
    """Raise `UserError` if a folder of that name exists; `CompleteRun` if it holds a complete run with this config and these facts.

    Facts are known only after the seeds are read. Without them, a complete run with this config raises nothing; call again with the facts.
    """
    run_id = check_name(name)
    folder = root / run_id
    if not os.path.lexists(folder):
        return
    if is_run(folder) and is_complete(folder, config, facts):
        if facts is None:
            return
        raise CompleteRun(run_id)
    if not is_run(folder):
        raise UserError(f"{folder} exists: it is not a run: remove it, or choose another --name")
    changed = list_other_settings(folder, config)
    more = f" --n {getattr(config, 'n', None)}" if len(changed) == 1 and changed[0].startswith("n: ") else ""
    known = f"`simia runs show {run_id}` shows its progress, `simia runs resume {run_id}{more}` continues it"
    shown = "; ".join(line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}…" for line in changed[:3])
    rest = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    other = f"; it was made with other settings ({shown}{rest})" if changed else ""
    raise UserError(f"{folder} exists: {known}, or choose another --name{other}")


def list_other_settings(folder: Path, config: Config) -> list[str]:
    """List the settings of a run that differ from `config`, `n` first, as `list_differences` does; none if the run cannot be read."""
    try:
        with contextlib.closing(Run.read_only(folder.parent, str(folder))) as run:
            old, n = run.ledger.meta("identity") or {}, run.saved_config().get("n")
    except (UserError, *READ_ERRORS):
        return []
    new = getattr(config, "n", None)
    wanted = [] if new in (None, n) else [f"n: {n} → {new}"]
    return [*wanted, *list_differences(old, select_identity(config), select_identity(type(config)()))]


def is_complete(folder: Path, config: Config, facts: dict[str, Any] | None) -> bool:
    """Check whether a run is complete and was made with this config, and these facts if any are given. Raises `UserError` for a run that
    cannot be read."""
    if saved_config(folder).get("n") != getattr(config, "n", None):
        return False
    with contextlib.closing(Run.read_only(folder.parent, str(folder))) as run:
        given = {"identity": select_identity(config), **({} if facts is None else {"facts": facts})}
        same = {name: run.ledger.meta(name) for name in given} == json.loads(json.dumps(given))
        return same and not run.is_synthesis and run.verify().complete


def new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + "".join(random.choices("abcdefghjkmnpqrstuvwxyz", k=3))


def check_name(name: str) -> str:
    """Return the name for a new run. Raises `UserError` for a path, for a name that a command line would misread, and for `last`."""
    if not NAME.fullmatch(name) or name == "last":
        raise UserError(
            f"a run cannot be named {name[:60]!r}: use up to 100 letters a-z and A-Z, digits, '.', '_' and '-', beginning with a letter or a digit;"
            " 'last' means the latest run"
        )
    return name


def save_config(folder: Path, config: Config) -> None:
    """Write the config to a new file and rename it, since a resume may replace an earlier one. `reask` of a batch is for one session."""
    data = reset_reask(config.model_dump(mode="json"))
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    aside = folder / "config.yaml.new"
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(folder / "config.yaml")
    except OSError as error:
        todo = "free disk space" if is_disk_full(error) else "fix this"
        raise UserError(f"cannot write {folder / 'config.yaml'}: {error.strerror}; {todo} and try again") from None


def reset_reask(value: Any) -> Any:
    """Return a part of a config with `reask` unset in every section of a batch."""
    if isinstance(value, list):
        return [reset_reask(each) for each in value]
    if not isinstance(value, dict):
        return value
    once = {"reask": False} if value.get("kind") == "batch" else {}
    return {name: reset_reask(each) for name, each in value.items()} | once


def take_lock(folder: Path) -> IO[str]:
    """Take the run's advisory lock, which the kernel drops with the process; the text in it is for people."""
    path = folder / "lock"
    try:
        handle = path.open("a+", encoding="utf-8")
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, and a run keeps a file there: remove it and try again") from None
    except OSError as error:
        raise UserError(f"cannot work in {folder}: {error.strerror}; it must be writable") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        handle.seek(0)
        handle.truncate()
        handle.write(f"process {os.getpid()} on {socket.gethostname()}")
        handle.flush()
    except (BlockingIOError, PermissionError):
        with handle:
            handle.seek(0)
            holder = handle.read().strip() or "another process"
        raise InUse(f"run {folder.name} is in use by {holder}: wait for it to end, or stop it first") from None
    except OSError as error:  # such as a file system without locks
        with contextlib.suppress(OSError):
            handle.close()
        raise UserError(f"cannot lock {folder}: {error.strerror}; name a folder on a local disk") from None
    return handle


def find_run(root: Path, run_id: str) -> Path:
    """Find a run by path, by id, by a unique beginning of it, or `last`."""
    given = Path(run_id)
    if is_run(given):
        return given
    runs = list(folders(root))
    if run_id == "last" and runs:
        return runs[-1]
    matches = [folder for folder in runs if folder.name == run_id] or [f for f in runs if f.name.startswith(run_id)]
    if len(matches) == 1:
        return matches[0]
    if not runs:
        missing = "" if run_id == "last" else f"there is no run {run_id!r}: "
        raise UserError(f"{missing}no runs in {root}; begin with simia amplify or simia rollout")
    known = ", ".join(folder.name for folder in runs[-5:])
    problem = "several runs begin with" if matches else "there is no run"
    raise UserError(f"{problem} {run_id!r} in {root} (latest: {known})")


def folders(root: Path) -> Iterator[Path]:
    """All runs in the order in which they were worked on last."""
    found = {path.parent for name in (*FILES, "config.yaml") for path in root.glob(f"*/{name}") if is_run(path.parent)}
    yield from sorted(found, key=lambda folder: (last_use(folder), folder.name))


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run or a part of one. A `config.yaml` alone is no run."""
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
    """Verify a run before its results are used as a whole. Raises `UserError` unless it is complete; `how`: what the user writes to use a
    part."""
    run.refuse_synthesis()
    found = run.verify()
    if not found.complete and not partial:
        raise UserError(f"{found}, or use what is finished with {how}")
    return found


def iterate_accepted(folder: Path, *, partial: bool) -> Iterator[Trajectory]:
    """The accepted trajectories of a run, in the order of its plan.

    Raises `UserError` unless the run is complete; `partial`: take what there is.
    """
    with contextlib.closing(Run.read_only(folder.parent, str(folder))) as run:
        refuse_partial(run, partial=partial, how="trajectories(partial=True)")
        for body in run.ledger.accepted():
            yield Trajectory.from_row(body["trajectory"])
