"""The desk: the testbed's paths, the app that is open, and how a function becomes an action of an app.

Every action answers in words, the failing ones too, as in OfficeBench: an agent that learned there reads the same lines.
An action that fails leaves its files as they were, since it writes only when all is made.
"""

from __future__ import annotations

import functools
import importlib
import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from simia.kit import FileTools, ToolError, mark

F = TypeVar("F", bound=Callable[..., str])
TESTBED = "/testbed"
MALFORMED = "Malformed action! You must follow the given action format! Try a different action."
ACTIONS: dict[str, dict[str, Callable[..., str]]] = {}
"""App → action → function."""


class ActionError(Exception):
    """What the action answers in place of its result."""


class Testbed(FileTools):
    """An episode's files, as OfficeBench's paths name them: absolute below /testbed, or relative to the working folder."""

    @property
    def folder(self) -> str:
        """The shell's working folder, which relative paths start from."""
        return str(self.memory.get("folder", TESTBED))

    def locate(self, name: str) -> Path:
        """The place that a path names, with links followed. Raises `ToolError` for one outside of the testbed."""
        named = posixpath.normpath(posixpath.join(self.folder, name))
        if "\0" in name or (named != TESTBED and not named.startswith(f"{TESTBED}/")):
            raise ToolError(f"{name!r} is outside of {TESTBED}")
        return self.path(named[len(TESTBED) :].lstrip("/")).resolve()

    def find(self, name: str) -> Path | None:
        """The file of that name; None where there is none inside of the testbed."""
        try:
            path = self.locate(name)
            return path if path.is_file() else None
        except (ToolError, OSError):
            return None

    def own(self, folder: str, name: str, suffix: str = "") -> Path:
        """A user's file or folder below one of the testbed's folders. Raises `ToolError` for a name that is no file's name."""
        if not name or name in (".", "..") or any(sign in name for sign in "/\0\n\r"):
            raise ToolError(f"{name!r} cannot be the name of a file")
        return self.path(f"{folder}/{name}{suffix}").resolve()

    def save(self, path: Path, data: bytes) -> None:
        """Put bytes in place at once: a write that fails leaves what was there."""
        if not path.parent.is_dir():
            raise ValueError("its folder does not exist")
        draft = path.with_name(f".{path.name[:100]}.draft")
        try:
            draft.write_bytes(data)
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def register_action(name: str, *, writes: bool = False, opened: bool = True) -> Callable[[F], F]:
    """Make a function `(testbed, …) -> text` the tool `app.action`. `opened`: only while its app is open."""
    app, _, short = name.partition(".")

    def register(function: F) -> F:
        @functools.wraps(function)
        def call(testbed: Testbed, **arguments: Any) -> str:
            current = testbed.memory.get("app")
            if opened and current != app:
                what = f"the open app is {current}" if current else "no app is open"
                return f"{MALFORMED} ({name}: {what}, so switch to {app} first.)"
            try:
                return function(testbed, **{key: unwrap_single(value) for key, value in arguments.items()}).strip()
            except ActionError as answer:
                return str(answer)

        ACTIONS.setdefault(app, {})[short] = mark(call, "agent", writes=writes)
        return function

    return register


def unwrap_single(value: Any) -> Any:
    """A list of one is that one, as OfficeBench takes it."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


@contextmanager
def answer_errors(words: str, *, why: bool = False) -> Iterator[None]:
    """Whatever goes wrong in here becomes this answer, with its reason in brackets where `why` is asked for."""
    try:
        yield
    except (MemoryError, ActionError):
        raise
    except Exception as error:
        reason = describe_error(error) if why else ""
        raise ActionError(f"{words} ({reason})" if reason else words) from None


def describe_error(error: Exception) -> str:
    """An error's words where they are the same in every run: no address in memory, no temporary file's name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = " ".join(str(error).split())[:200] if isinstance(error, ToolError | ValueError) else ""
    return "" if " at 0x" in words or "/tmp/" in words else words


def import_library(name: str) -> Any:
    """A module of the office environment, imported when it is first used."""
    return importlib.import_module(name)
