"""A sandbox with a pack's code loaded in it, which forks a worker process in a millisecond or two.

The parent holds one end of a control socket and one of each worker's channel. Everything that comes back is JSON within a
size; nothing is unpickled. Where the sandbox cannot be had, starting one raises; only `unsafe` runs a plain process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from simia.errors import Aborted, Code, UserError
from simia.sandbox import probe
from simia.sandbox.inside.frames import Closed, Reader, frame
from simia.sandbox.jail import ENVIRONMENT, NAMES, Jail, Room, interpreter_paths, outermost, system_binds
from simia.sandbox.limits import Limits
from simia.sandbox.temporary import temporary

PACK, LIB, MAIN = "/pack", "/simia", "simia/sandbox/inside/main.py"


@functools.cache
def library() -> str:
    """A folder with the few files of ours that run inside; made once a process."""
    import simia.kit
    import simia.state

    folder = temporary("simia-library-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    room = folder / "simia" / "sandbox"
    room.mkdir(parents=True)
    for package in (folder / "simia", room):
        (package / "__init__.py").write_text("")  # not ours, which imports what the inside has no use for
    for module in (simia.kit, simia.state):
        shutil.copy(str(module.__file__), folder / "simia")
    shutil.copytree(Path(__file__).parent / "inside", room / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(folder)


class Zygote:
    """One sandbox of one pack. `fork` gives the channel of a new worker process."""

    def __init__(
        self,
        pack: Path,
        spec: dict[str, Any],
        *,
        limits: Limits,
        python: str | None = None,
        unsafe: bool = False,
        room: Room | None = None,
        needs: tuple[str, ...] = (),
        variables: dict[str, str] | None = None,
        hides: tuple[str, ...] = (),
        veils: tuple[str, ...] = (),
    ) -> None:
        """`room`: it is for one episode, which may write there. `needs`: more folders that are readable inside, `variables` more of
        the environment. `hides`: parts of the pack that programs in a room must not find (solutions); `veils`: which only checks may."""
        self.pack, self.spec, self.limits, self.unsafe = pack.resolve(), spec, limits, unsafe
        self.python = python or sys.executable
        self.room, self.needs, self.variables = room, needs, variables or {}
        self.hides, self.veils, self.unveiled = hides, veils, False
        self.tools: dict[str, dict[str, bool]] = {}
        self.declared: dict[str, Any] = {}
        self.by_convention = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._reader: Reader | None = None
        self._numbers = itertools.count(1)
        self._folder: str | None = None
        self._shown: dict[bool, str] = {}
        self._copies: list[str] = []  # what this one made, and takes away
        self._guard = asyncio.Lock()

    def twin(self, *, checks: bool = False) -> Zygote:
        """Another sandbox of the same pack, for an episode of its own, or for the checks of one. This one must outlive it."""
        made = Zygote(
            self.pack, self.spec, limits=self.limits, python=self.python, unsafe=self.unsafe, room=self.room,
            needs=self.needs, variables=self.variables, hides=self.hides, veils=self.veils,
        )  # fmt: skip
        made.unveiled, made.tools = checks, self.tools
        if walls_hold(self):
            made._shown[checks] = self._readable(checks)
        return made

    async def start(self) -> None:
        """Load the pack's code inside. Raises `UserError` where there is no sandbox or the code cannot be loaded."""
        async with self._guard:
            if self._process is None:
                await asyncio.to_thread(self._start)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            command, environment = self._command(theirs.fileno())
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise Aborted(Code.WORKER_LOST, f"the sandbox of {self.pack.name} cannot be started: {error}") from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        _living.add(self)
        self._control, self._reader = ours, Reader(ours)
        ours.settimeout(self.limits.start)
        inside = str(self.pack) if self.unsafe else PACK
        size = self.room.size if self.room else 0
        try:
            spec = {**self.spec, "root": self._root(), "sealed": not self.unsafe}
            order = {
                "pack": inside, "spec": spec, "seal": not self.unsafe, "memory": self.limits.load, "size": size,
                "variables": self.variables,
            }  # fmt: skip
            ours.sendall(frame(order))
            word = self._reader.next()
        except (Closed, OSError, ValueError) as error:
            said = self._last_words()
            self.kill()
            if isinstance(error, TimeoutError):
                raise UserError(
                    f"{self.pack.name}: loading {self.spec['code']} took more than {self.limits.start:g} s"
                ) from None
            raise UserError(f"{self.pack.name}: the sandbox ended at its start: {said}") from None
        if not isinstance(word, dict) or (word.get("ready") and not introduced(word)):
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
        ours.settimeout(10.0)

    def _command(self, descriptor: int) -> tuple[list[str], dict[str, str]]:
        lib, python = library(), self.python
        packages = extra_packages() if python == sys.executable else None
        environment = {**ENVIRONMENT, **({"PYTHONPATH": packages} if packages else {})}
        if self.unsafe:
            return [python, "-s", "-P", "-B", f"{lib}/{MAIN}", str(descriptor)], environment
        walls = probe.require()
        needed = [*interpreter_paths(python), str(Path(python).parent.parent), *([packages] if packages else [])]
        system = [path for path, _ in system_binds(walls.bwrap or "")]
        names = [name for name in NAMES if self.room and self.room.network and os.path.exists(name)]
        binds = [(path, path) for path in outermost([*system, *needed, *self.needs, *names])]
        copied = walls.outer or self.room is not None
        binds += [(self._readable(self.unveiled) if copied else str(self.pack), PACK), (lib, LIB)]
        if self.room:
            environment |= {"HOME": "/root" if self.room.root == "/" else self.room.root}
        jail = Jail(walls, tuple(binds), environment, self.room)
        # Not -I, which would ignore PYTHONHASHSEED; the environment inside is ours alone, so -s -P isolate as much.
        return jail.command([python, "-s", "-P", "-B", f"{LIB}/{MAIN}", str(descriptor)]), {}

    def _root(self) -> str | None:
        """The episode's private folder. Without walls it is one of ours; the whole root is nobody's then."""
        if self.room is None or not self.unsafe:
            return self.room.root if self.room else None
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="simia-episode-")
        return self._folder

    def _readable(self, checks: bool) -> str:
        """The pack as nobody can read it: the folder itself, or a copy where only we may, or where not all of it is to be seen."""
        if checks in self._shown:
            return self._shown[checks]
        gone = set() if self.room is None else self._unseen({*self.hides, *(() if checks else self.veils)})
        paths = [self.pack, *self.pack.rglob("*")]
        if not gone and all(for_all(path) for path in paths if path.exists()):
            self._shown[checks] = str(self.pack)
            return self._shown[checks]

        def skip(folder: str, names: list[str]) -> set[str]:
            here = Path(folder).relative_to(self.pack)
            return {name for name in names if name == "__pycache__" or str(here / name) in gone}

        made = tempfile.mkdtemp(prefix="simia-pack-")
        self._copies.append(made)
        # Links stay links: what they point to outside the pack is not the pack's to show.
        shutil.copytree(self.pack, made, dirs_exist_ok=True, symlinks=True, ignore=skip)
        for path in [Path(made), *Path(made).rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        self._shown[checks] = made
        return made

    def _unseen(self, names: set[str]) -> set[str]:
        """What they are in the pack, however they were written, and what they lead to there."""
        found = set()
        for name in names:
            path = Path(os.path.normpath(self.pack / name))
            for each in (path, path.resolve()):
                if each.exists() and each.is_relative_to(self.pack) and each != self.pack:
                    found.add(str(each.relative_to(self.pack)))
        return found

    async def fork(self, *, isolated: bool) -> tuple[int, socket.socket]:
        """A new worker: its number and its channel. A sandbox that is gone is started again; `Aborted` when that does not help."""
        why = ""
        async with self._guard:
            for _ in range(TRIES):
                try:
                    if self._process is not None and self._process.poll() is not None:
                        self.kill()
                    if self._process is None:
                        await asyncio.to_thread(self._start)
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
            "do": "fork", "id": number, "isolated": isolated, "live": limits.live, "most": limits.output,
            "limits": {"memory": limits.memory, "files": limits.files, "processes": 0, "cpu": limits.cpu},
        }  # fmt: skip
        if self.room is not None:
            order["limits"] |= {
                "files": max(limits.files, PROGRAM_FILES), "processes": limits.processes, "size": self.room.size,
            }  # fmt: skip
        try:
            assert self._control is not None
            socket.send_fds(self._control, [frame(order)], [theirs.fileno()])
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
            self._control.sendall(frame({"do": "kill", "id": number}))
            self._control.sendall(frame({"do": "status", "id": number}))
            found = self._reader.next().get("exit")
            return found if isinstance(found, int) else None
        except (Closed, OSError, ValueError, AttributeError):
            self.kill()  # it does not do what it is told: the whole sandbox goes
            return None

    def _last_words(self) -> str:
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


def walls_hold(zygote: Zygote) -> bool:
    return zygote.room is not None and not zygote.unsafe


def introduced(word: dict[str, Any]) -> bool:
    """Whether it names its tools as it should: by whom → name → whether it writes. The pack's code could have sent it."""
    tools, declared = word.get("tools"), word.get("declared")
    return (
        isinstance(tools, dict)
        and isinstance(declared, dict)
        and isinstance(word.get("by_convention"), bool)
        and all(isinstance(named, dict) for named in [*tools.values(), *declared.values()])
        and all(isinstance(row, dict) for named in declared.values() for row in named.values())
    )


def for_all(path: Path) -> bool:
    """Whether anybody may read it; a link counts for itself."""
    need = 0o005 if path.is_dir() else 0o004
    return path.lstat().st_mode & need == need


TRIES = 4
PROGRAM_FILES = 1024  # open files of an episode that may start programs
_living: weakref.WeakSet[Zygote] = weakref.WeakSet()


@atexit.register
def _bury() -> None:
    for zygote in list(_living):
        zygote.kill()


@functools.cache
def extra_packages() -> str | None:
    """The folder of our own packages, where the interpreter would not look by itself (a user's site, a PYTHONPATH)."""
    import pydantic

    folder = str(Path(pydantic.__file__).parent.parent)
    return None if folder.startswith(sys.prefix) else folder
