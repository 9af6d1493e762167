"""The convention of a pack's `tools.py`: one pydantic state, one method a tool, errors that are declared.

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

A tool is a method marked `@read` (it leaves the state as it is) or `@write` (it may change it). Whatever it raises, the
state is as before the call: `ToolError` is a refusal in words for the agent, anything else a fault of the tool. Time, new
ids and randomness come from the environment (`self.now`, `self.new_id`, `self.random`), derived from the episode's seed,
the number of the call and who calls, so that an episode can be repeated to the byte. No file, network, clock or global.

A world of files is a `FileTools`: it has a private folder in place of a state, in a sandbox of its own (`isolation: sandbox`).

This module runs inside the sandbox too, beside the pack's code: standard library only.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Container
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")
F = TypeVar("F", bound=Callable[..., Any])
SECONDS_A_CALL = 20  # the clock of an episode moves with its calls, not with the machine
TRIES = 1000


PROGRAMS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
GIT_SETTINGS = {  # stronger than those of a repository, which can name programs
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "gpg.program": "/bin/false",
    "log.showSignature": "false",
}
SYSTEM_ENVIRONMENT = {
    "PATH": ":".join((*PROGRAMS, "/usr/local/bin", "/usr/local/sbin")),  # what an agent installed comes last
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
EMPTY = str(Path(__file__).resolve().parents[1] / "empty")  # inside a sandbox: a folder that nobody can write to


class ToolError(Exception):
    """A refusal that the tool declares. Its words go to the agent, which can act on them: say what is wrong and what would do."""

    __simia_refusal__ = True


def read(method: F) -> F:
    """Mark a tool of the agent that leaves the state as it is."""
    return mark(method, "agent", writes=False)


def write(method: F) -> F:
    """Mark a tool of the agent that may change the state."""
    return mark(method, "agent", writes=True)


def user_read(method: F) -> F:
    """Mark a tool of the user that leaves the state as it is."""
    return mark(method, "user", writes=False)


def user_write(method: F) -> F:
    """Mark a tool of the user that may change the state."""
    return mark(method, "user", writes=True)


def mark(method: F, by: str, *, writes: bool) -> F:
    method.__simia_tool__ = (by, writes)  # type: ignore[attr-defined]
    return method


class Moments:
    """What an episode draws: its time, new identifiers, randomness; and its end, where a tool brings it about."""

    def __init__(self) -> None:
        self._seed = ""
        self._start = datetime(2025, 1, 1)
        self._drawn = 0
        self.ended = False
        self.begin(0, "agent")

    def begin(self, call: int, by: str) -> None:
        """Called by the worker before each call: what is derived from its number starts anew."""
        self._call = f"{self._seed}/{call}/{by}"
        self._drawn = 0
        self.ended = False
        self.now = self._start + timedelta(seconds=SECONDS_A_CALL * call)

    def finish(self) -> None:
        """The episode ends after this call, and is scored."""
        self.ended = True

    @property
    def random(self) -> random.Random:
        """A source of randomness of its own for each use."""
        self._drawn += 1
        return random.Random(f"{self._call}/{self._drawn}")

    def new_id(self, prefix: str = "", digits: int = 6, *, taken: Container[str] = ()) -> str:
        """A new identifier, `prefix` and so many digits, that is not among `taken`."""
        for attempt in range(TRIES):
            word = f"{self._call}/{prefix}/{self._drawn}/{attempt}".encode()
            number = int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "big") % 10**digits
            found = f"{prefix}{number:0{digits}d}"
            if found not in taken:
                self._drawn += 1
                return found
        raise ToolError(f"no free identifier {prefix} with {digits} digits is left")


class Tools(Moments, Generic[S]):
    """Base of a pack's world: `State` names the model, `self.state` holds one. One object an episode."""

    State: ClassVar[type[BaseModel]]

    def __init__(self, state: S) -> None:
        self.state = state
        super().__init__()


class FileTools(Moments):
    """Base of a world of files: what lies in `root` is the state, and `memory` what it keeps beside them (JSON).

    A call that raises leaves both as they were. Bytes must repeat with the calls: dates inside of files come from `self.now`.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.memory: dict[str, Any] = {}
        self.before: Path = self.root
        """While a check runs: a folder with the files as they were at the start."""
        super().__init__()

    def start(self, given: dict[str, Any]) -> None:
        """Called once, when the files of a new episode have been laid out, with what else the task's `initial` holds."""
        if given:
            raise ValueError(f"initial has {sorted(given)}: it is {{folder: …, files: …}}")

    def ready(self) -> None:
        """Called when the files have been laid out: at the start, and when the state was set back."""

    def describe(self, path: Path) -> Any:
        """What a file says that is no text, as JSON: for matching states and for checks. None: its bytes are all there is."""
        return None

    def system_environment(self) -> dict[str, str]:
        """Environment for programs that a check runs over the agent's files: programs and modules of the system come first, and
        the home, with every program's settings, is an empty folder that nobody can write to."""
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"), EMPTY)
        return {**homes, "XDG_CONFIG_DIRS": EMPTY, "XDG_DATA_DIRS": "/usr/share", **SYSTEM_ENVIRONMENT}

    def path(self, name: str) -> Path:
        """The file of that name in the folder. Raises `ToolError` for one that lies outside of it."""
        found = self.root / name
        if "\0" in name or not found.resolve().is_relative_to(self.root.resolve()):
            raise ToolError(f"{name!r} is outside of the folder")
        return found


def system_program(name: str) -> str:
    """The absolute path of a program that no agent can have written: checks start programs by it, never by their name.

    Raises `LookupError` where the system has none. Outside of a sandbox any program of that name is taken.
    """
    found = [path for folder in (*PROGRAMS, "/usr/local/bin") if os.access(path := f"{folder}/{name}", os.X_OK)]
    sealed = read_only(PROGRAMS[0])
    for path in found:
        if not sealed or is_system_file(path):
            return path
    raise LookupError(f"the system has no program {name!r}")


def is_system_file(path: str) -> bool:
    """Whether a file, and every link on the way to it, lies where nobody in the sandbox can write. A link that the agent made to a
    program of the system would give it a name that it does not have."""
    for _ in range(40):
        if not os.path.islink(path):
            return read_only(path)
        folder = os.path.dirname(path)
        if not read_only(folder):
            return False
        path = os.path.join(os.path.realpath(folder), os.readlink(path))
    return False


def read_only(path: str) -> bool:
    """Whether it lies on a file system that nobody in the sandbox can write to."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
