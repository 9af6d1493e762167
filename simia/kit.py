"""The interface of a pack's `tools.py`: one pydantic state, one method per tool, declared errors.

    from pydantic import BaseModel
    from simia.kit import ToolError, Tools, read, write

    class State(BaseModel):
        notes: dict[str, str] = {}

    class Notes(Tools[State]):
        State = State

        @write
        def add_note(self, text: str) -> dict[str, str]:
            if not text:
                raise ToolError("a note needs text")
            note_id = self.new_id("NOTE-", 4, taken=self.state.notes)
            self.state.notes[note_id] = text
            return {"note_id": note_id}

A tool is a method marked `@read` (it does not change the state) or `@write` (it may change it). If it raises, the state is
restored: `ToolError` is a refusal for the agent, any other exception a fault of the tool. Time, new ids and randomness come
from the environment (`self.now`, `self.new_id`, `self.random`). They are derived from the episode's seed, the number of the
call and the caller, so that episodes are reproducible. `self.now` is a `datetime`: `clock` of pack.yaml, and 20 seconds more
for each earlier call of the episode (`SECONDS_A_CALL`), refused ones included. Tools must not use files, the network, the clock or global variables.

A world of files derives from `FileTools`: it has a private folder in place of a state, in its own sandbox (`isolation: sandbox`).

This module also runs inside the sandbox, with the pack's code, so it uses the standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
from collections.abc import Callable, Container
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")
F = TypeVar("F", bound=Callable[..., Any])
SECONDS_A_CALL = 20  # the clock of an episode advances with its calls
TRIES = 1000


PROGRAMS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
GIT_SETTINGS = {  # override those of a repository, which can name programs
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "gpg.program": "/bin/false",
    "log.showSignature": "false",
}
SYSTEM_ENVIRONMENT = {
    "PATH": ":".join((*PROGRAMS, "/usr/local/bin", "/usr/local/sbin")),  # programs that an agent installed come last
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "USER": "root",
    "PYTHONNOUSERSITE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENSSL_CONF": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{n}": key for n, key in enumerate(GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(GIT_SETTINGS.values())},
}
PROCESSES: str | int = "/proc"  # a descriptor where /proc hides processes: see `show_processes`
EMPTY = str(Path(__file__).resolve().parents[1] / "empty")  # inside a sandbox: a read-only folder


class ToolError(Exception):
    """A refusal that the tool declares. The agent gets its message, which should state what is wrong and what to do."""

    __simia_refusal__ = True


def read(method: F) -> F:
    """Mark a tool of the agent that does not change the state."""
    return mark(method, "agent", writes=False)


def write(method: F) -> F:
    """Mark a tool of the agent that may change the state."""
    return mark(method, "agent", writes=True)


def user_read(method: F) -> F:
    """Mark a tool of the user that does not change the state."""
    return mark(method, "user", writes=False)


def user_write(method: F) -> F:
    """Mark a tool of the user that may change the state."""
    return mark(method, "user", writes=True)


def mark(method: F, by: str, *, writes: bool) -> F:
    method.__simia_tool__ = (by, writes)  # type: ignore[attr-defined]
    return method


class Moments:
    """Time, new identifiers and randomness of an episode, and its end if a tool ends it.

    `now` (`datetime`): the time of the running call. The first call has the time `clock` of pack.yaml (default: 2025-01-01, 00:00), and
    each further call of the agent or the user is `SECONDS_A_CALL` (20) seconds later. It has a time zone only if `clock` has one.
    """

    now: datetime

    def __init__(self) -> None:
        self._seed = ""
        self._start = datetime(2025, 1, 1)
        self._drawn = 0
        self.ended = False
        self.begin(0, "agent")

    def begin(self, call: int, by: str) -> None:
        """Start a call. The worker calls this before each tool call; time and randomness are derived from the call's number."""
        self._call = f"{self._seed}/{call}/{by}"
        self._drawn = 0
        self.ended = False
        self.now = self._start + timedelta(seconds=SECONDS_A_CALL * call)

    def finish(self) -> None:
        """End the episode after this call; it is then scored."""
        self.ended = True

    @property
    def random(self) -> random.Random:
        """A new random generator for each use."""
        self._drawn += 1
        return random.Random(f"{self._call}/{self._drawn}")

    def new_id(self, prefix: str = "", digits: int = 6, *, taken: Container[str] = ()) -> str:
        """Return a new identifier, `prefix` followed by `digits` digits, that is not in `taken`."""
        for attempt in range(TRIES):
            word = f"{self._call}/{prefix}/{self._drawn}/{attempt}".encode()
            number = int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "big") % 10**digits
            found = f"{prefix}{number:0{digits}d}"
            if found not in taken:
                self._drawn += 1
                return found
        raise ToolError(f"no free identifier {prefix} with {digits} digits is left")


class Tools(Moments, Generic[S]):
    """Base class of a pack's world: `State` is the model, `self.state` an instance. There is one object per episode.

    `self.now`, `self.random`, `self.new_id` and `self.finish` are those of `Moments`.
    """

    State: ClassVar[type[BaseModel]]

    def __init__(self, state: S) -> None:
        self.state = state
        super().__init__()


class FileTools(Moments):
    """Base class of a world of files: the state is the files in `root`, and `memory` (JSON).

    A call that raises changes neither. Files must be reproducible: take dates inside of files from `self.now`.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.memory: dict[str, Any] = {}
        self._before: Callable[[], Path] = lambda: self.root
        super().__init__()

    @property
    def before(self) -> Path:
        """A folder with the initial files, while a check runs. It is created at the first use, so that a check that does not use it
        finds no second copy of the files."""
        return self._before()

    def start(self, given: dict[str, Any]) -> None:
        """Start an episode: called once, after its files were written, with the other keys of the task's `initial`."""
        if given:
            raise ValueError(f"initial has {sorted(given)}: it is {{folder: …, files: …}}")

    def ready(self) -> None:
        """Prepare the world: called after the files were written, at the start and after the state was restored."""

    def describe(self, path: Path) -> Any:
        """Return the content of a binary file as JSON, for comparing states and for checks; None to compare its bytes only."""
        return None

    def system_environment(self) -> dict[str, str]:
        """Return the environment for programs that a check runs on the agent's files: the system's programs and modules come
        first, and the home folder, with the settings of programs, is empty and read-only."""
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"), EMPTY)
        return {**homes, "XDG_CONFIG_DIRS": EMPTY, "XDG_DATA_DIRS": "/usr/share", **SYSTEM_ENVIRONMENT}

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder. Raises `ToolError` for a path outside of it."""
        found = self.root / name
        if "\0" in name or not found.resolve().is_relative_to(self.root.resolve()):
            raise ToolError(f"{name!r} is outside of the folder")
        return found


def system_program(name: str) -> str:
    """Return the absolute path of a program that an agent cannot have written. Checks start programs by this path, never by name.

    Raises `LookupError` if the system has none. Outside of a sandbox any program of that name is accepted.
    """
    found = [path for folder in (*PROGRAMS, "/usr/local/bin") if os.access(path := f"{folder}/{name}", os.X_OK)]
    sealed = read_only(PROGRAMS[0])
    for path in found:
        if not sealed or is_system_file(path):
            return path
    raise LookupError(f"the system has no program {name!r}")


def is_system_file(path: str) -> bool:
    """Check whether a file, and every link on its path, is on a read-only file system. An agent could otherwise link a program of
    the system under another name."""
    for _ in range(40):
        if not os.path.islink(path):
            return read_only(path)
        folder = os.path.dirname(path)
        if not read_only(folder):
            return False
        path = os.path.join(os.path.realpath(folder), os.readlink(path))
    return False


def read_only(path: str) -> bool:
    """Check whether a path is on a file system that is read-only in the sandbox."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def list_processes() -> set[int]:
    """List all processes of the sandbox, also those that /proc hides from programs; empty if it has no /proc."""
    with contextlib.suppress(FileNotFoundError):
        return {int(name) for name in os.listdir(PROCESSES) if name.isdigit()}
    return set()


def kill_processes(pids: set[int]) -> None:
    """Kill processes of the sandbox, other than this one."""
    for pid in pids - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def show_processes(descriptor: int) -> None:
    """From now on, list processes through this descriptor of a /proc that hides none. Child programs do not inherit it."""
    global PROCESSES
    os.set_inheritable(descriptor, False)
    PROCESSES = descriptor
