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

    def path(self, name: str) -> Path:
        """The file of that name in the folder. Raises `ToolError` for one that lies outside of it."""
        found = self.root / name
        if "\0" in name or not found.resolve().is_relative_to(self.root.resolve()):
            raise ToolError(f"{name!r} is outside of the folder")
        return found
