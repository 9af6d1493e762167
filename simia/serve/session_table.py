"""Sessions of a server: their number, their connections, and the end of those without a connection.

In a session, one client plays one episode after another. A session with an id survives a lost connection for the time of the lease; one
without an id ends with its connection. The end of a session ends its episode too: if the client had made a step, the episode is
truncated, scored and kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from simia.envs.environment import Environment
from simia.envs.text_episode import Keep, TextEpisodes
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Trajectory

PATIENCE = 20.0  # seconds for what is in progress when the server ends
RETRY_SECONDS = 1  # Retry-After of a server that is full or draining
Refusal = Literal["full", "draining"]


@dataclass(slots=True)
class ServedPack:
    """One environment that a server offers under a name."""

    name: str
    environment: Environment
    pack: Pack
    tasks: dict[str, Task]
    """Id → task, those to play."""
    seed: int = 0

    def list_tasks(self, split: str | None = None) -> list[dict[str, Any]]:
        """List the tasks without their solutions."""
        found = [task for task in self.tasks.values() if split in (None, task.split)]
        return [{"id": task.id, "index": i, "split": task.split} for i, task in enumerate(found)]


@dataclass(slots=True, eq=False)
class Session:
    """One client's session: its episodes, its connection, and the latest answer."""

    served: ServedPack
    episodes: TextEpisodes
    id: str | None = None
    record: bool = False
    """Whether the client of the running episode wants whole messages."""
    episode_id: str | None = None
    ended: str | None = None
    detach: Callable[[], Awaitable[None]] | None = None
    """Closes the current connection, when a newer one replaces it; None without a connection."""
    serial: int | None = None
    answer: asyncio.Future[str] | None = None
    """The answer to the message with number `serial`."""
    expiry: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class SessionTable:
    """All sessions of a server. Belongs to the environment's event loop."""

    most: int = 256
    lease: float = 60.0
    keep: Keep | None = None
    draining: bool = False
    on_end: Callable[[Session, str], None] = lambda session, reason: None
    """Called when a session ends, with the reason: closed, expired, idle or drained."""
    on_episode: Callable[[Session, Trajectory], None] = lambda session, trajectory: None
    """Called with each finished episode."""
    sessions: set[Session] = field(default_factory=set)
    _by_id: dict[tuple[str, str], Session] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an episode or a session has ended."""
    _leaving: set[asyncio.Future[None]] = field(default_factory=set)

    def find(self, served: ServedPack, session_id: str | None) -> Session | None:
        """Return the session that a client continues; None if there is none."""
        return self._by_id.get((served.name, session_id)) if session_id is not None else None

    def why_refused(self) -> Refusal | None:
        """Return why no new session can be opened now; None if one can."""
        if self.draining:
            return "draining"
        return "full" if len(self.sessions) >= self.most else None

    def open(self, served: ServedPack, session_id: str | None) -> Session:
        """Make a session."""
        episodes = TextEpisodes(served.environment, seed=served.seed, tasks=served.tasks)
        session = Session(served, episodes, session_id)
        episodes.keep_with(self._keep_for(session))
        self.sessions.add(session)
        if session_id is not None:
            self._by_id[served.name, session_id] = session
        return session

    def _keep_for(self, session: Session) -> Keep:
        async def keep(trajectory: Trajectory) -> None:
            if self.keep is not None:
                await self.keep(trajectory)
            self.on_episode(session, trajectory)
            self._changed.set()

        return keep

    def attach(self, session: Session, detach: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]] | None:
        """Give the session a new connection. Returns the function that closes the previous one."""
        before, session.detach = session.detach, detach
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        return before

    def release(self, session: Session, detach: Callable[[], Awaitable[None]], *, resumable: bool, reason: str) -> None:
        """Handle the end of a connection. If the session has no id or is not `resumable`, it ends; otherwise its lease begins."""
        if session.detach is not detach or session not in self.sessions:
            return  # a newer connection has taken over, or the session has ended
        session.detach = None
        if resumable and session.id is not None:
            loop = asyncio.get_running_loop()
            session.expiry = loop.call_later(self.lease, self.end, session, "expired")
        else:
            self.end(session, reason)

    def end(self, session: Session, reason: str) -> None:
        """End a session in the background: its episode is truncated, scored and kept."""
        if session not in self.sessions:
            return
        self.sessions.discard(session)
        if session.id is not None:
            self._by_id.pop((session.served.name, session.id), None)
        if session.expiry is not None:
            session.expiry.cancel()
        leaving = asyncio.ensure_future(session.episodes.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)
        self._changed.set()
        self.on_end(session, reason)

    def _left(self, leaving: asyncio.Future[None]) -> None:
        self._leaving.discard(leaving)
        if not leaving.cancelled() and (error := leaving.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a session's episode could not be closed", "exception": error}
            )

    @property
    def playing(self) -> int:
        """Sessions with an episode in progress."""
        return sum(is_playing(session) for session in self.sessions)

    async def drain(self, seconds: float) -> None:
        """Accept no further episodes, and wait up to `seconds` for those in progress."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.playing:
                    self._changed.clear()
                    await self._changed.wait()

    async def close(self) -> None:
        """End all sessions and their connections. Episodes in progress are scored and kept if this takes at most `PATIENCE` seconds."""
        self.draining = True
        connections = [session.detach for session in self.sessions if session.detach is not None]
        for session in list(self.sessions):
            self.end(session, "drained")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*self._leaving, return_exceptions=True)
                await asyncio.gather(*(detach() for detach in connections), return_exceptions=True)


def is_playing(session: Session) -> bool:
    episode = session.episodes.episode
    return episode is not None and episode.end is None
