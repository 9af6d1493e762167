"""Episodes whose agent is another program, and the file that receives their trajectories.

A client connects, calls tools, and finishes or disconnects. Its episode begins when it reads the task or calls a tool, so that a client
that only lists tools leaves no trajectory. The episode ends once: finished, truncated by a limit, or left by its client, which counts as
truncated and is scored. If a client disconnects during a call, the call is completed first, so that the trajectory has its result.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from simia.envs.environment import Environment, Episode
from simia.errors import Code, UserError
from simia.event_loop import start_shared
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory, write_compact_json

T = TypeVar("T")


class TrajectoryFile:
    """A file of trajectories, one per line, written before the reward is sent. Several servers may share one.

    It holds expected results, so a new file is readable by its owner only.
    """

    def __init__(self, path: Path) -> None:
        """Check that the file can be written; it is made with the first trajectory. Raises `UserError`."""
        self.path = path.absolute()
        self.count = 0
        self._turn = asyncio.Lock()
        self._lines: list[bytes] = []
        self._next: asyncio.Future[None] | None = None  # the write that will contain the waiting lines
        try:
            if self.path.exists():
                self._write(b"")
            else:
                check_folder_writable(self.path.parent)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror}): give another file with --out") from None

    async def add(self, trajectory: Trajectory) -> None:
        """Append a trajectory, and return once it is on the disk. Trajectories that wait for the same write share its `fsync`."""
        self._lines.append(f"{write_compact_json(trajectory.to_row())}\n".encode())
        if self._next is None:
            self._next = start_shared(self._write_waiting())
        await asyncio.shield(self._next)

    async def _write_waiting(self) -> None:
        async with self._turn:
            lines, self._lines, self._next = self._lines, [], None
            await asyncio.to_thread(self._write, b"".join(lines))
            self.count += len(lines)

    def _write(self, line: bytes) -> None:
        with open(self.path, "ab", buffering=0, opener=open_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            while line:
                line = line[file.write(line) :]
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.fsync(file.fileno())


def check_folder_writable(folder: Path) -> None:
    """Raise `OSError` unless a file can be made in a folder. The test file is removed."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def open_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


class ServedEpisode:
    """One client's episode of one task. Concurrent calls of its methods run one after another."""

    def __init__(
        self, environment: Environment, task: Task, seed: int, add: Callable[[Trajectory], Awaitable[None]]
    ) -> None:
        self._environment, self.task, self._seed, self._add = environment, task, seed, add
        self._episode: Episode | None = None
        self._guard = asyncio.Lock()
        self._working: set[asyncio.Task[Any]] = set()
        self._recorded = False
        self._calls = 0

    async def begin(self) -> None:
        """Begin the episode unless it has begun. Raises `UserError` for a task that cannot be set up."""
        await self._through(self._begun())

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[list[str], bool]:
        """Call a tool. Returns its text, followed by a note if the call ended the episode; and whether it is an error."""
        return await self._through(self._call(name, arguments))

    async def finish(self, answer: str) -> dict[str, Any]:
        """End the episode with the agent's answer, unless it has ended. Returns how it ended and its reward."""
        return await self._through(self._finish(answer))

    async def state(self) -> Any:
        """Return the current state; None after the end of the episode."""
        return await self._through(self._state())

    async def leave(self) -> None:
        """End the episode of a client that has disconnected: truncate, score and write it."""
        await self._through(self._leave())

    async def _through(self, work: Coroutine[Any, Any, T]) -> T:
        """Complete the work, even if the caller is cancelled."""
        working = asyncio.ensure_future(self._in_turn(work))
        self._working.add(working)
        working.add_done_callback(self._working.discard)
        return await asyncio.shield(working)

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._guard:
            return await work

    # -- in turn --------------------------------------------------------------------------------------------------

    async def _begun(self) -> Episode:
        if self._episode is None:
            self._episode = await self._environment.reset(self.task, seed=self._seed)
            await self._settle()
            self._look_ahead()
        return self._episode

    def _look_ahead(self) -> None:
        """Compute the reference's outcome early: after a client has left, its server has only a few seconds to score the episode."""
        expected = getattr(self._environment.backend, "expected", None)
        repeatable = getattr(self._environment.backend, "repeatable", True)
        if expected and repeatable and any(part.kind == "state" for part in self.task.reward.parts):
            looking = asyncio.ensure_future(expected(self.task, self._seed))
            self._working.add(looking)
            looking.add_done_callback(self._looked)

    def _looked(self, looking: asyncio.Task[Any]) -> None:
        self._working.discard(looking)
        if not looking.cancelled():
            looking.exception()  # marks the error as read; scoring raises it again

    async def _call(self, name: str, arguments: dict[str, Any]) -> tuple[list[str], bool]:
        episode = await self._begun()
        if episode.end is not None:
            return [explain_end(episode)], True
        self._calls += 1
        call = ToolCall(id=f"call_{self._calls}", name=name, arguments=arguments)
        step = await episode.step(Message(role="assistant", calls=[call]))
        await self._settle()
        ended = [] if step.end is None else [explain_end(episode)]
        for message in step.messages:
            if message.role == "tool":
                return [message.text, *ended], message.error is not None
        return ended, True

    async def _finish(self, answer: str) -> dict[str, Any]:
        episode = await self._begun()
        if episode.end is None:
            await episode.step(Message(role="assistant", content=answer))
        if episode.end is None:  # the user would answer, but the client has finished
            await episode.stop(Code.ANSWERED)
        await self._settle()
        return summarize_end(episode)

    async def _state(self) -> Any:
        episode = await self._begun()
        return await episode.world.state() if episode.world is not None else None

    async def _leave(self) -> None:
        if self._episode is not None and self._episode.end is None:
            await self._episode.stop(Code.AGENT_FAILED, detail="the client left before it called finish_episode")
        await self._settle()

    async def _settle(self) -> None:
        """Write the trajectory of an episode that has ended, once."""
        episode = self._episode
        if episode is not None and episode.end is not None and not self._recorded:
            self._recorded = True
            await episode.close()
            await self._add(episode.trajectory)


def explain_end(episode: Episode) -> str:
    """Tell a client that its episode has ended. The client is the agent, so the issues' details, which may quote checks and expected
    results, are only in the file."""
    assert episode.end is not None
    if episode.end.kind == "aborted":
        return f"the episode was aborted ({episode.end.code.meaning if episode.end.code else 'no reason is known'})"
    code = f" ({episode.end.code.meaning})" if episode.end.code else ""
    return f"the episode has ended{code}: finish_episode says what it earned; another one is a new session"


def summarize_end(episode: Episode) -> dict[str, Any]:
    """Return how an episode ended and its reward, as JSON. The client is the agent, so the reward's parts and rationale, which show checks
    and expected results, are only in the file."""
    assert episode.end is not None
    reward = episode.reward
    return {"reward": reward.value if reward else None, "end": episode.end.kind, "code": episode.end.code}
