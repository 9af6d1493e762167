"""Limit how many packs have a running sandbox in this process: the least recently used one is ended first.

An ended sandbox starts again when it is needed, and running episodes are rebuilt in it from their journals. Idle packs are ended first. A
busy one is ended only if its episodes can be rebuilt and it has no request under way. If every sandbox has one, the new pack waits; it can,
since requests end by their time limits.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from typing import Protocol

MOST_PARENTS = 64  # running sandboxes, busy ones included
MOST_IDLE = 40  # running sandboxes above which idle ones are ended; each holds about 17 MB
PAUSE = 0.01  # seconds between the checks of a waiting pack


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

    def __init__(self, most: int = MOST_PARENTS) -> None:
        self.most, self.idle = most, min(MOST_IDLE, most)
        self._held: dict[int, tuple[weakref.ref[WorkerParent], asyncio.AbstractEventLoop]] = {}

    async def enter(self, parent: WorkerParent) -> None:
        """Mark a back end as used now, and end others if there are too many. Wait while none can be ended."""
        while id(parent) not in self._held and len(self._held) >= self.most and self._must_wait(parent):  # noqa: ASYNC110 - many things can free one
            await asyncio.sleep(PAUSE)
        self._held.pop(id(parent), None)
        self._held[id(parent)] = (weakref.ref(parent), asyncio.get_running_loop())
        while len(self._held) > self.idle and (victim := self._choose_victim(parent)) is not None:
            self.leave(victim)
            await victim.release()

    def _must_wait(self, newcomer: WorkerParent) -> bool:
        """Whether no back end can be ended now, but one can after its requests are answered."""
        others = list(self._list_others(newcomer))
        free = any(not parent.sessions or (parent.can_be_rebuilt and not parent.requests) for parent in others)
        return not free and any(parent.can_be_rebuilt for parent in others)

    def _choose_victim(self, newcomer: WorkerParent) -> WorkerParent | None:
        """Choose the back end to end: an idle one, or else a busy one that can be rebuilt. Only back ends of the same event loop."""
        busy: WorkerParent | None = None
        for parent in self._list_others(newcomer):
            if not parent.sessions:
                return parent
            busy = busy or (parent if parent.can_be_rebuilt and not parent.requests else None)
        return busy if len(self._held) > self.most else None

    def _list_others(self, newcomer: WorkerParent) -> Iterator[WorkerParent]:
        """Yield the other back ends of this event loop, least recently used first, and forget garbage-collected ones."""
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
"""The back ends of this process."""
