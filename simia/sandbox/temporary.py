"""Folders for as long as this process lives. One that was killed could not remove its own: the next process does.

The kernel lets go of a lock when its holder dies, so a folder that can be locked belongs to nobody. A process that forked keeps
the lock until its last child ends, and whoever is about to lock a new folder is given a minute.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

YOUNG = 60.0  # seconds
_held: list[int] = []  # descriptors, open to the end


def temporary(prefix: str) -> Path:
    """A new folder; those of dead processes with that prefix are removed."""
    sweep(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_SH)
    _held.append(handle)
    return folder


def sweep(root: Path, prefix: str) -> None:
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
