"""A sandbox with a pack's code loaded in it, which forks a worker process in a millisecond or two.

The parent holds one end of a control socket and one of each worker's channel. Everything that comes back is JSON within a
size; nothing is unpickled. Where the sandbox cannot be had, starting one raises; only `unsafe` runs a plain process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

from simia.errors import Aborted, Code, UserError
from simia.sandbox import capabilities
from simia.sandbox.bubblewrap import (
    ENVIRONMENT,
    NAMES,
    BubblewrapSandbox,
    PrivateFolder,
    keep_outermost,
    list_empty_places,
    list_interpreter_paths,
    list_system_binds,
)
from simia.sandbox.copies import (
    copy_pack,
    find_extra_packages,
    find_parts,
    holds_leftovers,
    is_ordinary,
    is_readable_by_all,
    make_library,
)
from simia.sandbox.grants import Bind, explain_broad, is_shown
from simia.sandbox.inside.frames import ChannelClosed, FrameReader, make_frame
from simia.sandbox.limits import WorkerLimits
from simia.sandbox.shared_bounds import SharedBounds, is_introduction, open_syscall_filter
from simia.sandbox.supervisor import WatchedSandbox, supervisor
from simia.sandbox.temporary import make_private

PACK, LIB, MAIN = "/pack", "/simia", "simia/sandbox/inside/main.py"


class ForkServer:
    """One sandbox of one pack. `fork` gives the channel of a new worker process."""

    def __init__(
        self,
        pack: Path,
        spec: dict[str, Any],
        *,
        limits: WorkerLimits,
        python: str | None = None,
        unsafe: bool = False,
        room: PrivateFolder | None = None,
        needs: tuple[str, ...] = (),
        granted: tuple[Bind, ...] = (),
        variables: dict[str, str] | None = None,
        hides: tuple[str, ...] = (),
        veils: tuple[str, ...] = (),
    ) -> None:
        """`room`: it is for one episode, which may write there. `needs`: cached environments that are readable inside, `granted`: files
        and folders of the host, `variables`: more of the environment. `hides`: parts of the pack that no code inside may read
        (solutions); `veils`: parts that only checks may read."""
        self.pack, self.spec, self.limits, self.unsafe = pack.resolve(), spec, limits, unsafe
        self.python = python or sys.executable
        self.room, self.needs, self.granted, self.variables = room, needs, granted, variables or {}
        self.hides, self.veils, self.unveiled = hides, veils, False
        self.tools: dict[str, dict[str, bool]] = {}
        self.declared: dict[str, Any] = {}
        self.by_convention = False
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._control: socket.socket | None = None
        self._reader: FrameReader | None = None
        self._numbers = itertools.count(1)
        self._folder: str | None = None
        self._shown: dict[bool, str] = {}
        self._copies: list[str] = []  # what this one made, and takes away
        self._guard = asyncio.Lock()
        self._watch: WatchedSandbox | None = None
        self._bounds: SharedBounds | None = None
        self._parents: list[str] = []  # file systems that an episode may write to beside its root

    @property
    def exceeded(self) -> str:
        """Why the supervisor ended the sandbox, in words; empty where it did not."""
        return self._watch.exceeded if self._watch else ""

    def make_twin(self, *, checks: bool = False) -> ForkServer:
        """Another sandbox of the same pack, for an episode of its own, or for the checks of one. This one must outlive it."""
        made = ForkServer(
            self.pack, self.spec, limits=self.limits, python=self.python, unsafe=self.unsafe, room=self.room,
            needs=self.needs, granted=self.granted, variables=self.variables, hides=self.hides, veils=self.veils,
        )  # fmt: skip
        made.unveiled, made.tools = checks, self.tools
        if not self.unsafe:
            made._shown[checks] = self._make_readable_pack(checks)
        return made

    async def start(self) -> None:
        """Load the pack's code inside. Raises `UserError` where there is no sandbox or the code cannot be loaded."""
        async with self._guard:
            if self._process is None:
                await self._begin()

    async def _begin(self) -> None:
        """`_start` in a thread. When it is cancelled, by Ctrl-C for one, the sandbox is ended: the thread would wait until it has loaded."""
        self._cancelled = False
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._cancelled = True
            if (process := self._process) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(UserError, Aborted):
                await starting
                await asyncio.to_thread(self.kill)  # it had started at that moment
            raise

    def _start(self) -> None:
        self._watch = self._bounds = program = None
        ours, theirs = socket.socketpair()
        try:
            if not self.unsafe:
                program = open_syscall_filter(alone=self.room is not None, unix=self.sees_nothing_of_the_host)
            command, environment = self._build_command(theirs.fileno(), program)
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno(), *([] if program is None else [program])], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            ours.close()
            self.kill()
            raise Aborted(Code.WORKER_LOST, f"the sandbox of {self.pack.name} cannot be started: {error}") from None
        except BaseException:
            ours.close()
            self.kill()
            raise
        finally:
            theirs.close()
            if program is not None:
                os.close(program)
        _living.add(self)
        if self._cancelled:
            ours.close()
            self.kill()
            raise Aborted(Code.WORKER_LOST, "cancelled")
        self._control = ours
        self._reader = FrameReader(ours, most=MOST_CONTROL, values=MOST_VALUES, accepts=MOST_FOLDERS)
        deadline = time.monotonic() + self.limits.start
        ours.settimeout(self.limits.start)
        inside = str(self.pack) if self.unsafe else PACK
        size = self.room.size if self.room else 0
        try:
            spec = {**self.spec, "root": self._root(), "parents": self._parents, "sealed": not self.unsafe}
            order = {
                "pack": inside, "spec": spec, "seal": not self.unsafe, "memory": self.limits.load, "size": size,
                "cpu": self.limits.cpu + math.ceil(self.limits.start), "variables": self.variables,
                "folders": [] if self.unsafe else self._list_writable(),
            }  # fmt: skip
            ours.sendall(make_frame(order))
            self._watch = self._start_supervision(self._reader)
            word = self._reader.next(deadline - time.monotonic())
        except (ChannelClosed, OSError, ValueError) as error:
            said = self._read_last_words()
            self.kill()
            if self.exceeded:
                raise UserError(f"{self.pack.name}: loading {self.spec['code']}: {self.exceeded}") from None
            if isinstance(error, TimeoutError):
                raise UserError(
                    f"{self.pack.name}: loading {self.spec['code']} took more than {self.limits.start:g} s"
                ) from None
            raise UserError(f"{self.pack.name}: the sandbox ended at its start: {said}") from None
        if not isinstance(word, dict) or (word.get("ready") and not is_introduction(word)):
            self.kill()
            raise UserError(f"{self.pack.name}: {self.spec['code']} interferes with the sandbox while it loads")
        if not word.get("ready"):
            self.kill()
            place = f" ({word['where']})" if word.get("where") else ""
            raise UserError(
                f"{self.pack.name}: {self.spec['code']} cannot be loaded{place}: {' '.join(str(word.get('error')).split())[:300]}"
            )
        self.tools = word["tools"]
        self.declared, self.by_convention = word["declared"], word["by_convention"]
        ours.settimeout(PATIENCE)
        if self._watch is not None:
            self._apply_episode_limits(self._watch)

    def _list_writable(self) -> list[str]:
        """The file systems that an episode may write to."""
        if self.room is None:
            return []
        return [self.room.root, *self._parents, "/tmp", "/dev/shm"]

    def _start_supervision(self, reader: FrameReader) -> WatchedSandbox | None:
        """Take the descriptors of the writable file systems and have the sandbox watched while it loads the pack's code."""
        reader.next(self.limits.start)
        reader.accepts = 0
        folders, reader.descriptors = reader.descriptors, []
        if self.unsafe or self._process is None:
            return None
        watch = WatchedSandbox(self._process.pid, folders, memory=self.limits.resident, inodes=self.limits.inodes)
        supervisor.add(watch)
        return watch

    def _apply_episode_limits(self, watch: WatchedSandbox) -> None:
        """From here on the limits of an episode hold, or those of all workers together where they share a sandbox."""
        if self.room is None:
            self._bounds = SharedBounds(watch, self.limits)
        else:
            watch.settle()
            watch.memory = self.limits.total

    def _build_command(self, descriptor: int, program: int | None) -> tuple[list[str], dict[str, str]]:
        lib, python = make_library(), self.python
        packages = find_extra_packages() if python == sys.executable else None
        environment = {**ENVIRONMENT, **({"PYTHONPATH": packages} if packages else {})}
        if self.unsafe:
            return [python, "-s", "-P", "-B", f"{lib}/{MAIN}", str(descriptor)], environment
        isolation = capabilities.require_isolation()
        needed = [*list_interpreter_paths(python), str(Path(python).parent.parent), *([packages] if packages else [])]
        for path in () if self.tools else (*needed, str(self.pack)):  # a twin shows what was checked already
            if not is_shown(path) and (reason := explain_broad(os.path.realpath(path))):
                raise UserError(f"{self.pack.name}: the sandbox would show {path}: {reason}")
        system = [path for path, _ in list_system_binds(isolation.bwrap or "")]
        names = [name for name in NAMES if self.room and self.room.network and os.path.exists(name)]
        outside = {path: path for path in map(os.path.normpath, [*system, *needed, *self.needs, *names])}
        outside |= {inside: path for path, inside in self.granted if inside not in outside}
        binds = [(outside[path], path) for path in keep_outermost(outside)]
        binds += [(self._make_readable_pack(self.unveiled), PACK), (lib, LIB)]
        if self.room and self.room.root == "/":
            files, folders = list_empty_places()
            binds += [
                (f"{lib}/simia/__init__.py", path)
                for path in files
                if path not in outside and not path.startswith(tuple(f"{each}/" for each in outside))
            ]
            binds += [(f"{lib}/empty", path) for path in folders]
        if self.room:
            environment |= {"HOME": "/root" if self.room.root == "/" else self.room.root}
        jail = BubblewrapSandbox(isolation, tuple(binds), environment, self.room)
        self._parents = jail.parents()
        # Not -I, which would ignore PYTHONHASHSEED; the environment inside is ours alone, so -s -P isolate as much.
        return jail.command([python, "-s", "-P", "-B", f"{LIB}/{MAIN}", str(descriptor)], program), {}

    @property
    def sees_nothing_of_the_host(self) -> bool:
        """Whether Unix sockets can be left to the programs of a room: there is none of the host's that they could connect to. A granted
        folder may get one later, and the host's network has sockets by name that lie in no folder."""
        return not self.granted and not (self.room and self.room.network)

    def _root(self) -> str | None:
        """The episode's private folder. Without a sandbox it is a temporary folder, and the root cannot be writable."""
        if self.room is None or not self.unsafe:
            return self.room.root if self.room else None
        if self._folder is None:
            self._folder = str(make_private("episode"))
        return self._folder

    def _make_readable_pack(self, checks: bool) -> str:
        """The pack's folder as the sandbox sees it: itself, or a copy where parts are hidden or not everything can be shown.

        A room's is always a copy: programs there may use Unix sockets, and one that is put into the folder later must not be reached.
        """
        if checks in self._shown:
            return self._shown[checks]
        gone = find_parts(self.pack, {*self.hides, *(() if checks else self.veils)})
        fit = is_readable_by_all if capabilities.require_isolation().outer else is_ordinary
        whole = not gone and self.room is None and not holds_leftovers(self.pack)
        if whole and all(fit(path) for path in [self.pack, *self.pack.rglob("*")] if path.exists()):
            self._shown[checks] = str(self.pack)
            return self._shown[checks]

        made = str(make_private(self.pack.name))
        self._copies.append(made)
        copy_pack(self.pack, Path(made), gone)
        self._shown[checks] = made
        return made

    async def fork(self, *, isolated: bool) -> tuple[int, socket.socket]:
        """A new worker: its number and its channel. A sandbox that is gone is started again; `Aborted` when that does not help."""
        why = ""
        async with self._guard:
            for _ in range(TRIES):
                try:
                    if self._process is not None and self._process.poll() is not None:
                        self.kill()
                    if self._process is None:
                        await self._begin()
                    return self._fork(isolated)
                except OSError as error:
                    why = str(error)
                except UserError as error:
                    if not self.tools:  # it has never been loaded: that is for the user to mend
                        raise
                    why = str(error)
                self.kill()
        raise Aborted(Code.WORKER_LOST, f"the sandbox of {self.pack.name} is gone: {why}")

    def _fork(self, isolated: bool) -> tuple[int, socket.socket]:
        number = next(self._numbers)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # our own shortage: the sandbox is sound
            raise Aborted(Code.WORKER_LOST, f"no descriptor for a worker's channel: {error}") from None
        limits = self.limits
        order: dict[str, Any] = {
            "do": "fork", "id": number, "isolated": isolated, "live": limits.live, "most": limits.output, "state": limits.state,
            "limits": {"memory": limits.memory, "files": limits.files, "processes": 0, "cpu": limits.cpu},
        }  # fmt: skip
        if self.room is not None:
            order["limits"] |= {
                "files": max(limits.files, PROGRAM_FILES), "processes": limits.processes, "size": self.room.size,
            }  # fmt: skip
        if self._bounds is not None:
            self._bounds.add(number)
        try:
            assert self._control is not None
            socket.send_fds(self._control, [make_frame(order)], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return number, ours

    async def end(self, number: int) -> int | None:
        """Kill a worker; how it had ended if it had ended by itself (an exit code, or minus a signal's number)."""
        async with self._guard:
            return await asyncio.to_thread(self._end, number)

    def _end(self, number: int) -> int | None:
        if self._control is None or self._reader is None:
            return None
        try:
            self._control.sendall(make_frame({"do": "kill", "id": number}))
            self._control.sendall(make_frame({"do": "status", "id": number}))
            found = self._reader.next(PATIENCE).get("exit")
            self._control.settimeout(PATIENCE)
            if self._bounds is not None:
                self._bounds.remove(number, confirmed=isinstance(found, int))
            return found if isinstance(found, int) else None
        except (ChannelClosed, OSError, ValueError, AttributeError):
            self.kill()  # it does not do what it is told: the whole sandbox goes
            return None

    def _read_last_words(self) -> str:
        if self._process is None or self._process.stderr is None:
            return "no word"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        os.set_blocking(self._process.stderr.fileno(), False)
        text = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        return text.splitlines()[-1][:300] if text else f"exit code {self._process.poll()}"

    def kill(self) -> None:
        """End the sandbox and all that runs in it."""
        process, self._process = self._process, None
        if self._control is not None:
            self._control.close()
            self._control = self._reader = None
        if self._watch is not None:
            supervisor.remove(self._watch)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        for made in (*self._copies, self._folder):
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
        if self._copies:
            self._shown = {}
        self._copies, self._folder = [], None
        _living.discard(self)

    async def close(self) -> None:
        async with self._guard:
            await asyncio.to_thread(self.kill)


TRIES = 4
PATIENCE = 10.0  # seconds that an order to a sandbox, or its answer, may take
MOST_CONTROL, MOST_VALUES, MOST_FOLDERS = 8 << 20, 200_000, 64  # of what comes over the control socket
PROGRAM_FILES = 1024  # open files of an episode that may start programs
_living: weakref.WeakSet[ForkServer] = weakref.WeakSet()


@atexit.register
def _kill_all() -> None:
    for zygote in list(_living):
        zygote.kill()
