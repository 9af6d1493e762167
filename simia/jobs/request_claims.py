"""Coalesce identical requests across processes that share a store: later processes wait and read the first one's reply.

Two ranks of a trainer that play one group would else both pay for the simulator's next answer, and be told two different ones. A
claim is a locked byte of one file, at a place that follows from the key: the kernel drops it with the process, nothing is left to
clean up, and two keys meet at one place as good as never (if they do, one waits for no reason).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
from pathlib import Path

FIRST, LONGEST = 0.01, 0.25  # seconds between looks


class RequestClaims:
    """Claims are the process's: two of one process do not keep each other out. Use one event loop."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError` where the file cannot be written."""
        self._file = path.open("a+b")

    async def claim(self, key: str) -> None:
        """Returns when no other process has this key. A file system without locks has no claims."""
        wait = FIRST
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place(key))
                return
            except (BlockingIOError, PermissionError):
                await asyncio.sleep(wait)
                wait = min(LONGEST, 2 * wait)
            except OSError:
                return

    def release(self, key: str) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place(key))

    def close(self) -> None:
        self._file.close()


def place(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest())
