"""Folders for as long as this process lives. One that was killed could not remove its own: the next process does.

The kernel lets go of a lock when its holder dies, so a folder that can be locked has no owner. A process that forked keeps
the lock until its last child ends, and a process has a minute to lock its new folder.

What a sandbox reads (copies of packs, simia's own files) lies in one folder that only its owner can enter. The copies in it can be
read by all, since workers run as nobody where simia runs as root: the sandbox's files are laid out by root, which may enter.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

YOUNG = 60.0  # seconds
PRIVATE = "simia-sandbox-"
_held: list[int] = []  # descriptors, open to the end
_private: dict[int, Path] = {}  # by process: a forked child must neither use nor remove its parent's


def make_private(name: str) -> Path:
    """A new folder of mode 0700 in this process's private folder, which is removed with all in it when the process ends."""
    me = os.getpid()
    if me not in _private:
        _private[me] = make_temporary(PRIVATE)
        atexit.register(_remove_own, me)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_private[me]))


def _remove_own(owner: int) -> None:
    if owner == os.getpid():
        shutil.rmtree(_private.pop(owner), ignore_errors=True)


def make_temporary(prefix: str) -> Path:
    """A new folder of mode 0700; those of dead processes with that prefix are removed."""
    remove_leftovers(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_SH)
    _held.append(handle)
    return folder


def remove_leftovers(root: Path, prefix: str) -> None:
    for folder in root.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            if folder.stat().st_uid != os.getuid() or time.time() - folder.stat().st_mtime < YOUNG:
                continue
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
