"""Bound how many packs have a running sandbox in this process: the one that was not used for longest is ended first.

A sandbox that was ended starts again when it is needed, and running episodes are rebuilt in it from their journals. Idle packs are
ended first. A busy one is ended only if its episodes can be rebuilt and it has no request under way. Where all have one, the newcomer
waits: requests end by their time limits.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from typing import Protocol

MOST_PARENTS = 64  # running sandboxes, busy ones included
MOST_IDLE = 40  # running sandboxes from which on idle ones are ended: each holds about 17 MB
PAUSE = 0.01  # seconds until a newcomer looks again


class WorkerParent(Protocol):
    """A back end with a sandbox that forks workers."""

    sessions: int
    """Open episodes and checks."""
    requests: int
    """Requests under way."""

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
        """Mark a back end as used now, and end others where there are too many. Wait where none can be ended yet."""
        while id(parent) not in self._held and len(self._held) >= self.most and self._must_wait(parent):  # noqa: ASYNC110 - many things can free one
            await asyncio.sleep(PAUSE)
        self._held.pop(id(parent), None)
        self._held[id(parent)] = (weakref.ref(parent), asyncio.get_running_loop())
        while len(self._held) > self.idle and (victim := self._choose_victim(parent)) is not None:
            self.leave(victim)
            await victim.release()

    def _must_wait(self, newcomer: WorkerParent) -> bool:
        """Whether none can be ended now and one can be as soon as its requests are answered."""
        others = list(self._list_others(newcomer))
        free = any(not parent.sessions or (parent.can_be_rebuilt and not parent.requests) for parent in others)
        return not free and any(parent.can_be_rebuilt for parent in others)

    def _choose_victim(self, newcomer: WorkerParent) -> WorkerParent | None:
        """The one to end: an idle one, or else a busy one that can be rebuilt. A loop ends only back ends of its own."""
        busy: WorkerParent | None = None
        for parent in self._list_others(newcomer):
            if not parent.sessions:
                return parent
            busy = busy or (parent if parent.can_be_rebuilt and not parent.requests else None)
        return busy if len(self._held) > self.most else None

    def _list_others(self, newcomer: WorkerParent) -> Iterator[WorkerParent]:
        """The back ends of this loop, the least recently used first; those that are gone are forgotten."""
        here = asyncio.get_running_loop()
        for key, (held, loop) in list(self._held.items()):
            parent = held()
            if parent is None or loop.is_closed():
                del self._held[key]
            elif parent is not newcomer and loop is here:
                yield parent

    def leave(self, parent: WorkerParent) -> None:
        """Forget a back end that was closed."""
        self._held.pop(id(parent), None)

    def __len__(self) -> int:
        return len(self._held)


parents = WorkerParents()
"""Those of this process."""
