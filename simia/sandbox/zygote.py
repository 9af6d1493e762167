"""A sandbox that has loaded a pack's code and forks a worker process in a millisecond or two (a zygote).

The parent holds one end of a control socket and one end of each worker's channel. All answers are JSON of limited size; nothing is
unpickled. Starting raises an error if there is no sandbox; only `unsafe` runs a plain process.
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
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from simia.errors import Aborted, Code, SandboxStartError, UserError
from simia.sandbox import capabilities, copies
from simia.sandbox.bubblewrap import (
    ENVIRONMENT,
    Bind,
    BubblewrapSandbox,
    PrivateFolder,
    list_interpreter_paths,
    make_binds,
)
from simia.sandbox.grants import explain_broad, is_shown
from simia.sandbox.inside.confine import Unconfined, build_filter_program
from simia.sandbox.inside.frames import ChannelClosed, FrameReader, make_frame
from simia.sandbox.limits import WorkerLimits
from simia.sandbox.supervisor import SharedBounds, WatchedSandbox, supervisor

PACK, LIB, MAIN = "/pack", "/simia", "simia/sandbox/inside/main.py"
TRIES = 4
PATIENCE = 10.0  # seconds that an order to a sandbox, or its answer, may take
MOST_CONTROL, MOST_VALUES, MOST_FOLDERS = 8 << 20, 200_000, 64  # most of a message from the control socket
PROGRAM_FILES = 1024  # open files of an episode that may start programs
_living: weakref.WeakSet[ForkServer] = weakref.WeakSet()


@dataclass(eq=False)
class ForkServer:
    """One sandbox of one pack. `fork` gives the channel of a new worker process."""

    pack: Path
    spec: dict[str, Any]
    _: KW_ONLY
    limits: WorkerLimits
    python: str = sys.executable
    unsafe: bool = False
    room: PrivateFolder | None = None
    """The folder that the episode may write to, in a sandbox of one episode; None: the sandbox is shared."""
    needs: tuple[str, ...] = ()
    """Cached environments that are readable inside."""
    granted: tuple[Bind, ...] = ()
    """Files and folders of the host."""
    variables: dict[str, str] = field(default_factory=dict)
    """Additional environment variables."""
    hides: tuple[str, ...] = ()
    """Parts of the pack that no code inside may read (solutions)."""
    veils: tuple[str, ...] = ()
    """Parts of the pack that only checks may read."""

    def __post_init__(self) -> None:
        self.pack = self.pack.resolve()
        self.unveiled = self.retired = False
        self.tools: dict[str, dict[str, bool]] = {}
        self.declared: dict[str, Any] = {}
        self.by_convention = False
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._control: socket.socket | None = None
        self._reader: FrameReader | None = None
        self._numbers = itertools.count(1)
        self._shown: dict[bool, str] = {}
        self._made: list[str] = []  # private folders to remove
        self._guard = asyncio.Lock()
        self._watch: WatchedSandbox | None = None
        self._bounds: SharedBounds | None = None
        self._parents: list[str] = []  # file systems that an episode may write to in addition to its root

    @property
    def exceeded(self) -> str:
        """The reason why the supervisor ended the sandbox; empty if it did not."""
        return self._watch.exceeded if self._watch else ""

    def make_twin(self, *, checks: bool = False) -> ForkServer:
        """Make another sandbox of the same pack, for one episode or its checks. This one must outlive it."""
        made = replace(self)
        made.unveiled, made.tools = checks, self.tools
        if not self.unsafe:
            made._shown[checks] = self._make_readable_pack(checks)
        return made

    async def start(self) -> None:
        """Load the pack's code inside. Raises `UserError` if there is no sandbox or the code cannot be loaded, and
        `SandboxStartError` if the machine may be the cause."""
        async with self._guard:
            if self._process is None:
                await self._begin()

    async def _begin(self) -> None:
        """Run `_start` in a thread. If it is cancelled (Ctrl-C), end the sandbox: the thread would wait until it has loaded."""
        if self.retired:
            raise Aborted(Code.WORKER_LOST, f"the sandbox of {self.pack.name} was closed")
        self._cancelled = False
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._cancelled = True
            if self._process is not None:
                kill_group(self._process)
            with contextlib.suppress(UserError, Aborted):
                await starting
                await asyncio.to_thread(self.kill)  # the sandbox had started just before the cancellation
            raise

    def _start(self) -> None:
        self._watch = self._bounds = None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._launch(theirs.fileno())
        except BaseException as error:
            ours.close()
            self.kill()
            if isinstance(error, OSError):
                words = f"the sandbox of {self.pack.name} cannot be started: {error}"
                raise Aborted(Code.WORKER_LOST, words) from None
            raise
        _living.add(self)
        if self._cancelled:
            ours.close()
            self.kill()
            raise Aborted(Code.WORKER_LOST, "cancelled")
        self._control = ours
        self._reader = FrameReader(ours, most=MOST_CONTROL, values=MOST_VALUES, accepts=MOST_FOLDERS)
        deadline = time.monotonic() + self.limits.start
        ours.settimeout(self.limits.start)
        try:
            ours.sendall(make_frame(self._build_load_order()))
            self._watch = self._start_supervision(self._reader)
            word = self._reader.next(deadline - time.monotonic())
        except (ChannelClosed, OSError, ValueError) as error:
            last = self._read_last_words()
            if self.exceeded:
                self._refuse(f"loading {self.spec['code']}: {self.exceeded}")
            if isinstance(error, TimeoutError):
                self._refuse(f"loading {self.spec['code']} took more than {self.limits.start:g} s", SandboxStartError)
            self._refuse(f"the sandbox ended at its start: {last}", SandboxStartError)
        if not isinstance(word, dict) or (word.get("ready") and not is_introduction(word)):
            self._refuse(f"{self.spec['code']} interferes with the sandbox while it loads")
        if not word.get("ready"):
            place = f" ({word['where']})" if word.get("where") else ""
            reason = " ".join(str(word.get("error")).split())[:300]
            self._refuse(f"{self.spec['code']} cannot be loaded{place}: {reason}")
        self.tools = word["tools"]
        self.declared, self.by_convention = word["declared"], word["by_convention"]
        ours.settimeout(PATIENCE)
        if self._watch is not None and self.room is None:
            self._bounds = SharedBounds(self._watch, self.limits)
        elif self._watch is not None:
            self._watch.settle()
            self._watch.memory = self.limits.total

    def _refuse(self, reason: str, kind: type[UserError] = UserError) -> NoReturn:
        self.kill()
        raise kind(f"{self.pack.name}: {reason}") from None

    def _launch(self, channel: int) -> None:
        # Programs of an episode's sandbox may use Unix sockets only if no socket of the host can be reached: a socket may appear
        # in a granted folder later, and the host's network has named sockets that lie in no folder.
        unix = not self.granted and not (self.room and self.room.network)
        with contextlib.ExitStack() as stack:
            passed = [channel]
            if not self.unsafe:
                passed.append(open_syscall_filter(alone=self.room is not None, unix=unix))
                stack.callback(os.close, passed[1])
            command, environment = self._build_command(*passed)
            self._process = subprocess.Popen(
                command, pass_fds=passed, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True, cwd="/",
            )  # fmt: skip

    def _build_load_order(self) -> dict[str, Any]:
        room, limits = self.room, self.limits
        root = room.root if room else None
        if room and self.unsafe:  # without a sandbox the root cannot be writable
            root = str(self._make_private("episode"))
        writable = [room.root, *self._parents, "/tmp", "/dev/shm"] if room and not self.unsafe else []
        return {
            "pack": str(self.pack) if self.unsafe else PACK, "seal": not self.unsafe, "memory": limits.load,
            "spec": {**self.spec, "root": root, "parents": self._parents, "sealed": not self.unsafe},
            "size": room.size if room else 0, "cpu": limits.cpu + math.ceil(limits.start), "variables": self.variables,
            "folders": writable,
        }  # fmt: skip

    def _start_supervision(self, reader: FrameReader) -> WatchedSandbox | None:
        """Take the descriptors of the writable file systems and watch the sandbox while it loads the pack's code."""
        reader.next(self.limits.start)
        reader.accepts = 0
        folders, reader.descriptors = reader.descriptors, []
        if self.unsafe or self._process is None:
            return None
        watch = WatchedSandbox(self._process.pid, folders, memory=self.limits.resident, inodes=self.limits.inodes)
        supervisor.add(watch)
        return watch

    def _build_command(self, channel: int, program: int | None = None) -> tuple[list[str], dict[str, str]]:
        lib, python, room = copies.make_library(os.getpid()), self.python, self.room
        packages = copies.find_extra_packages() if python == sys.executable else None
        environment = {**ENVIRONMENT, **({"PYTHONPATH": packages} if packages else {})}
        # Not -I, which would ignore PYTHONHASHSEED. -s -P isolate as well, since the environment has no other Python variables.
        inner = [python, "-s", "-P", "-B", f"{lib if self.unsafe else LIB}/{MAIN}", str(channel)]
        processes = min({*range(3, 10)} - {channel, program})
        if self.unsafe:
            return inner, environment
        isolation = capabilities.require_isolation()
        needed = [*list_interpreter_paths(python), str(Path(python).parent.parent), *([packages] if packages else [])]
        for path in () if self.tools else (*needed, str(self.pack)):  # for a twin these paths were already checked
            if not is_shown(path) and (reason := explain_broad(os.path.realpath(path))):
                raise UserError(f"{self.pack.name}: the sandbox needs {path}, which it must not show: {reason}")
        binds = make_binds(isolation, [*needed, *self.needs], self.granted, lib, room)
        binds += [(self._make_readable_pack(self.unveiled), PACK), (lib, LIB)]
        if room:
            environment |= {"HOME": "/root" if room.root == "/" else room.root}
            inner += [str(processes)] if isolation.hides else []
        sandbox = BubblewrapSandbox(isolation, tuple(binds), environment, room)
        self._parents = sandbox.parents()
        return sandbox.command(inner, program, processes), {}

    def _make_readable_pack(self, checks: bool) -> str:
        """Return the folder that the sandbox shows as the pack: the pack itself, or a copy if parts are hidden or cannot be shown.

        An episode's own sandbox gets a copy: its programs may use Unix sockets, and must not reach one that is added to the folder later.
        """
        if checks not in self._shown:
            gone = copies.find_parts(self.pack, {*self.hides, *(() if checks else self.veils)})
            outer = capabilities.require_isolation().outer
            if gone or self.room or not copies.is_showable(self.pack, to_all=outer):
                made = self._make_private(self.pack.name)
                copies.copy_pack(self.pack, made, gone)
                self._shown[checks] = str(made)
            else:
                self._shown[checks] = str(self.pack)
        return self._shown[checks]

    def _make_private(self, name: str) -> Path:
        made = copies.make_private(name)
        self._made.append(str(made))
        return made

    async def fork(self, *, isolated: bool) -> tuple[int, socket.socket]:
        """Make a worker; return its number and channel. A sandbox that ended is restarted. Raises `Aborted` if that does not help."""
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
                    if not self.tools:  # the pack was never loaded: the user must correct it
                        raise
                    why = str(error)
                self.kill()
        raise Aborted(Code.WORKER_LOST, f"the sandbox of {self.pack.name} is gone: {why}")

    def _fork(self, isolated: bool) -> tuple[int, socket.socket]:
        number = next(self._numbers)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # this process has no free descriptors; the sandbox is not at fault
            raise Aborted(Code.WORKER_LOST, f"no descriptor for a worker's channel: {error}") from None
        limits, room = self.limits, self.room
        order = {
            "do": "fork", "id": number, "isolated": isolated, "live": limits.live, "most": limits.output, "state": limits.state,
            "limits": {
                "memory": limits.memory, "files": max(limits.files, PROGRAM_FILES) if room else limits.files, "cpu": limits.cpu,
                "processes": limits.processes if room else 0, "size": room.size if room else 0,
            },
        }  # fmt: skip
        if self._bounds is not None:
            self._bounds.add(number)
        with theirs:
            try:
                assert self._control is not None
                socket.send_fds(self._control, [make_frame(order)], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return number, ours

    async def end(self, number: int) -> int | None:
        """Kill a worker. Returns its exit code, or minus the number of a signal, if it had ended by itself."""
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
            self.kill()  # the sandbox does not answer the order
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
            kill_group(process)
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        for made in self._made:
            shutil.rmtree(made, ignore_errors=True)
        if self._made:  # a twin keeps the copy that it was given
            self._shown = {}
        self._made = []
        _living.discard(self)

    async def close(self) -> None:
        """End the sandbox; the next use starts it again."""
        async with self._guard:
            await asyncio.to_thread(self.kill)

    async def retire(self) -> None:
        """End the sandbox for good: a later use raises `Aborted`."""
        self.retired = True
        await self.close()


@atexit.register
def _kill_all() -> None:
    for zygote in list(_living):
        zygote.kill()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def open_syscall_filter(*, alone: bool, unix: bool) -> int:
    """Make a descriptor from which bubblewrap reads a sandbox's system call filter. Raises `UserError` if this machine has none."""
    try:
        program = build_filter_program(loading=True, alone=alone, unix=unix)
    except Unconfined as error:
        words = f"this pack's code must run in a sandbox and {error}: use another machine, or --unsafe"
        raise UserError(words) from None
    reading, writing = os.pipe()
    with open(writing, "wb") as file:  # a few kilobytes, less than a pipe holds
        file.write(program)
    return reading


def is_introduction(word: dict[str, Any]) -> bool:
    """Check the form of a loaded pack's list of tools, caller → tool → …, since the pack's code could have sent anything."""
    tools, declared = word.get("tools"), word.get("declared")
    if not (isinstance(tools, dict) and isinstance(declared, dict) and isinstance(word.get("by_convention"), bool)):
        return False
    named = [*tools.values(), *declared.values()]
    rows = [row for each in declared.values() if isinstance(each, dict) for row in each.values()]
    return all(isinstance(each, dict) for each in [*named, *rows])
