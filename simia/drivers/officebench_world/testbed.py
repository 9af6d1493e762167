"""The testbed: its paths, the open app, and the decorator that makes a function an action of an app.

Every action answers with text, also when it fails, as in OfficeBench, so that an agent sees the same lines. An action that
fails leaves its files unchanged, since files are written last.
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from simia.kit import FileTools, ToolError, mark

F = TypeVar("F", bound=Callable[..., str])
TESTBED = "/testbed"
MALFORMED = "Malformed action! You must follow the given action format! Try a different action."
ACTIONS: dict[str, dict[str, Callable[..., str]]] = {}
"""App → action → function."""


class ActionError(Exception):
    """An action failed; the message is its answer."""


class Testbed(FileTools):
    """An episode's files, as OfficeBench's paths name them: absolute below /testbed, or relative to the working folder."""

    @property
    def folder(self) -> str:
        """The shell's working folder, which relative paths start from."""
        return str(self.memory.get("folder", TESTBED))

    def locate(self, name: str) -> Path:
        """Resolve a path, following links. Raises `ToolError` for a path outside of the testbed."""
        named = posixpath.normpath(posixpath.join(self.folder, name))
        if "\0" in name or (named != TESTBED and not named.startswith(f"{TESTBED}/")):
            raise ToolError(f"{name!r} is outside of {TESTBED}")
        return self.path(named[len(TESTBED) :].lstrip("/")).resolve()

    def find(self, name: str) -> Path | None:
        """Return the file of that name; None if the testbed has none."""
        try:
            path = self.locate(name)
            return path if path.is_file() else None
        except (ToolError, OSError):
            return None

    def require(self, name: str, refusal: str) -> Path:
        """Return the file of that name. Raises `ActionError` with these words if the testbed has none."""
        path = self.find(name)
        if path is None:
            raise ActionError(refusal)
        return path

    def own(self, folder: str, name: str, suffix: str = "") -> Path:
        """Return a user's file or folder below one of the testbed's folders. Raises `ToolError` for an invalid file name."""
        if not name or name in (".", "..") or any(sign in name for sign in "/\0\n\r"):
            raise ToolError(f"{name!r} cannot be the name of a file")
        return self.path(f"{folder}/{name}{suffix}").resolve()

    def save(self, path: Path, data: bytes) -> None:
        """Replace a file atomically: a failed write leaves the old file."""
        if not path.parent.is_dir():
            raise ValueError("its folder does not exist")
        draft = path.with_name(f".{path.name[:100]}.draft")
        try:
            draft.write_bytes(data)
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def register_action(
    name: str, fails: str = "", *, why: bool = True, writes: bool = False, opened: bool = True
) -> Callable[[F], F]:
    """Register a function `(testbed, …) -> text` as the tool `app.action`. `opened`: it works only while its app is open.

    An exception is answered with `fails`, a template of the arguments, and `why` adds its reason; "": exceptions are faults.
    """
    app, _, short = name.partition(".")

    def register(function: F) -> F:
        @functools.wraps(function)
        def call(testbed: Testbed, **arguments: Any) -> str:
            current = testbed.memory.get("app")
            if opened and current != app:
                what = f"the open app is {current}" if current else "no app is open"
                return f"{MALFORMED} ({name}: {what}, so switch to {app} first.)"
            given = {key: unwrap_single(value) for key, value in arguments.items()}
            try:
                return function(testbed, **given).strip()
            except MemoryError:
                raise
            except ActionError as answer:
                return str(answer)
            except Exception as error:
                if not fails:
                    raise
                reason = describe_stable_error(error) if why else ""
                words = fails.format(**given)
                return f"{words} ({reason})" if reason else words

        ACTIONS.setdefault(app, {})[short] = mark(call, "agent", writes=writes)
        return function

    return register


def unwrap_single(value: Any) -> Any:
    """Replace a list of one element by that element, as OfficeBench does."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def describe_stable_error(error: Exception) -> str:
    """Return an error's message if it is the same in every run: no memory address, no temporary file name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = " ".join(str(error).split())[:200] if isinstance(error, ToolError | ValueError) else ""
    return "" if " at 0x" in words or "/tmp/" in words else words
