"""Bound how many packs have a running sandbox in this process: the one that was not used for longest is ended first.

A sandbox that was ended starts again when it is needed, and running episodes are rebuilt in it from their journals. Idle packs are
ended first. A busy one is ended only if its episodes can be rebuilt.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Protocol

MOST_PARENTS = 64  # running sandboxes, busy ones included
MOST_IDLE = 40  # running sandboxes from which on idle ones are ended: each holds about 17 MB


class WorkerParent(Protocol):
    """A back end with a sandbox that forks workers."""

    sessions: int
    """Open episodes and checks."""

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether running episodes survive the end of the sandbox."""

    async def release(self) -> None:
        """End the sandbox; the next use starts it again."""


class WorkerParents:
    """The back ends of a process with a running sandbox, least recently used first."""

    def __init__(self, most: int = MOST_PARENTS, idle: int = MOST_IDLE) -> None:
        self.most, self.idle = most, min(idle, most)
        self._held: dict[int, tuple[weakref.ref[WorkerParent], asyncio.AbstractEventLoop]] = {}

    async def enter(self, parent: WorkerParent) -> None:
        """Mark a back end as used now, and end others where there are too many."""
        self._held.pop(id(parent), None)
        self._held[id(parent)] = (weakref.ref(parent), asyncio.get_running_loop())
        while len(self._held) > self.idle and (victim := self._choose_victim(parent)) is not None:
            self.leave(victim)
            await victim.release()

    def _choose_victim(self, newcomer: WorkerParent) -> WorkerParent | None:
        """The one to end: an idle one, or else a busy one that can be rebuilt. A loop ends only back ends of its own."""
        busy: WorkerParent | None = None
        here = asyncio.get_running_loop()
        for key, (held, loop) in list(self._held.items()):
            parent = held()
            if parent is None or loop.is_closed():
                del self._held[key]
            elif parent is not newcomer and loop is here:
                if not parent.sessions:
                    return parent
                busy = busy or (parent if parent.can_be_rebuilt else None)
        return busy if len(self._held) > self.most else None

    def leave(self, parent: WorkerParent) -> None:
        """Forget a back end that was closed."""
        self._held.pop(id(parent), None)

    def __len__(self) -> int:
        return len(self._held)


parents = WorkerParents()
"""Those of this process."""
