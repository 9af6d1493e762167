"""A hostile pack's `tools.py`: one attack a tool. The tests copy this file into a pack; nobody runs it outside a sandbox.

A probing attack returns `{"won": …}`, what it got by name, which must be empty; the others try to break their process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import json
import locale
import mmap
import os
import platform
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from simia.kit import Tools, read, write

SEEN: dict[str, str] = {}
LIBC = ctypes.CDLL(None, use_errno=True)
SIBLINGS = [pid for pid in range(1, 400) if pid != os.getpid()]


class State(BaseModel):
    notes: dict[str, str] = {}
    number: float = 0.0
    anything: Any = None


def won(tries: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What the tries gave: those that raised, or gave nothing, are not in it."""
    found = {}
    for name, act in tries.items():
        try:
            got = act()
        except BaseException:
            continue
        if got:
            found[name] = str(got)[:200]
    return {"won": found}


def call(number: int, *arguments: Any) -> int:
    """A system call by hand: its result, or 0 where it was refused."""
    return max(0, int(LIBC.syscall(number, *arguments)))


def descriptors() -> Iterator[int]:
    for number in range(3, 256):
        with contextlib.suppress(OSError):
            os.fstat(number)
            yield number


def written(path: str) -> bool:
    with open(path, "w") as file:
        return file.write("x") > 0


class LoudError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class SlowError(Exception):
    def __str__(self) -> str:
        while True:
            pass


class Hostile(Tools[State]):
    State = State

    # -- an honest pair -------------------------------------------------------------------------------------------

    @write
    def note(self, text: str) -> dict[str, str]:
        note_id = self.new_id("N-", 6, taken=self.state.notes)
        self.state.notes[note_id] = text
        return {"note_id": note_id}

    # -- reading and writing what is not its own ------------------------------------------------------------------

    @write
    def read_files(self, paths: list[str]) -> dict[str, Any]:
        def content(path: str) -> Any:
            return sorted(os.listdir(path)) if os.path.isdir(path) else Path(path).read_bytes()[:50]

        return won({path: lambda path=path: content(path) for path in paths})  # type: ignore[misc]

    @write
    def read_environment(self, secret: str) -> dict[str, Any]:
        everything = [dict(os.environ), *(LIBC_environment())]
        return won({"environment": lambda: secret in str(everything)})

    @write
    def write_files(self, paths: list[str]) -> dict[str, Any]:
        places = [
            *paths,
            "/",
            "/tmp",
            "/dev",
            "/dev/shm",
            "/proc",
            "/pack",
            "/simia",
            "/usr",
            "/etc",
            "/var/tmp",
            "/run",
        ]
        return won({place: lambda place=place: written(f"{place}/evil") for place in places})  # type: ignore[misc]

    @write
    def host_processes(self) -> dict[str, Any]:
        numbers = [
            f"/proc/{pid}/{what}" for pid in ("self", 1, 2, 3) for what in ("mem", "maps", "environ", "fd", "root")
        ]
        return won({path: lambda path=path: os.stat(path) for path in numbers})  # type: ignore[misc]

    @write
    def disk_filler(self) -> None:
        with open("/tmp/full", "wb") as file:
            while True:
                file.write(b"0" * (1 << 20))

    # -- the network ----------------------------------------------------------------------------------------------

    @write
    def sockets(self, tcp: int, udp: int, path: str, abstract: str) -> dict[str, Any]:
        def tcp_() -> bool:
            with socket.create_connection(("127.0.0.1", tcp), timeout=1) as made:
                return made.send(b"hello") > 0

        def unix(name: str) -> bool:
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(name)
                return made.send(b"hello") > 0

        return won(
            {
                "tcp": tcp_,
                "udp": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", udp)),
                "unix": lambda: unix(path),
                "abstract": lambda: unix("\0" + abstract),
                "pair": socket.socketpair,
                "vsock": lambda: socket.socket(40),
                "netlink": lambda: socket.socket(16, socket.SOCK_RAW),
                "server": lambda: socket.create_server(("127.0.0.1", 0)),
                "by hand": lambda: call(41, 1, 1, 0),
            }
        )

    # -- processes, threads, memory -------------------------------------------------------------------------------

    @write
    def fork_bomb(self) -> dict[str, Any]:
        return won(
            {
                "fork": os.fork,
                "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
                "run": lambda: subprocess.run(["/bin/true"]).returncode == 0,
                "exec": lambda: os.execv("/bin/true", ["true"]),
                "system": lambda: os.system("true") == 0,
                "clone": lambda: call(56, 17, 0, 0, 0, 0),
                "clone3": lambda: call(435, (ctypes.c_uint64 * 11)(), 88),
                "vfork by number": lambda: call(58),
            }
        )

    @write
    def thread_bomb(self) -> None:
        for _ in range(10_000):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

    @write
    def memory_list(self) -> None:
        held = []
        while True:
            held.append([0] * 1_000_000)

    @write
    def memory_bytes(self) -> None:
        held = []
        while True:
            held.append(bytearray(16 << 20))

    @write
    def memory_mapped(self) -> None:
        held = []
        while True:
            held.append(mmap.mmap(-1, 64 << 20))
            held[-1].write(b"x" * (64 << 20))

    @write
    def memory_elsewhere(self) -> dict[str, Any]:
        return won(
            {
                "memfd": lambda: os.memfd_create("x"),
                "shm": lambda: call(29, 0, 1 << 30, 0o1600),
                "posix shm": lambda: written("/dev/shm/x"),
                "queue": lambda: call(68, 0, 0o1600),
                "locked": lambda: LIBC.mlockall(3) == 0,
            }
        )

    @write
    def raise_limits(self) -> dict[str, Any]:
        def free(which: int) -> bool:
            resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return True

        names = ("RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_CPU", "RLIMIT_FSIZE")
        return won({name: lambda name=name: free(getattr(resource, name)) for name in names})  # type: ignore[misc]

    @write
    def swallow_memory(self) -> str:
        for _ in range(20):
            with contextlib.suppress(MemoryError):
                bytearray(8 << 30)
        return "survived"

    @write
    def many_files(self) -> int:
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        SEEN["files"] = str(held)
        return len(held)

    # -- never ending ---------------------------------------------------------------------------------------------

    @write
    def loop_python(self) -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    @write
    def loop_c(self) -> int:
        return sum(range(3 * 10**11))

    @write
    def loop_regex(self) -> Any:
        return re.match(r"(a+)+$", "a" * 64 + "b")

    @write
    def sleep(self) -> None:
        time.sleep(3600)

    @write
    def words_loop(self) -> None:
        raise SlowError

    # -- others' processes ----------------------------------------------------------------------------------------

    @write
    def signals(self) -> dict[str, Any]:
        def hit(act: Callable[[int], Any]) -> list[int]:
            return [pid for pid in [-1, 0, *SIBLINGS] if quiet(act, pid)]

        return won(
            {
                "kill": lambda: hit(lambda pid: os.kill(pid, signal.SIGKILL) or True),  # type: ignore[func-returns-value]
                "group": lambda: os.killpg(os.getpgrp(), signal.SIGKILL) or True,  # type: ignore[func-returns-value]
                "queue": lambda: hit(lambda pid: LIBC.sigqueue(pid, 9, 0) == 0),
                "tkill": lambda: hit(lambda pid: LIBC.syscall(200, pid, 9) == 0),
                "pidfd": lambda: hit(lambda pid: os.pidfd_open(pid) or True),
                "priority": lambda: hit(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19) or True),  # type: ignore[func-returns-value]
                "io priority": lambda: [pid for pid in SIBLINGS if LIBC.syscall(251, 1, pid, 3 << 13) == 0],
                "affinity": lambda: [pid for pid in SIBLINGS if quiet(os.sched_setaffinity, pid, {0})],
            }
        )

    @write
    def signals_by_descriptor(self) -> dict[str, Any]:
        """The kernel signals a descriptor's owner when data comes: whoever is named its owner."""

        def own(pid: int) -> bool:
            for number in descriptors():
                fcntl.fcntl(number, fcntl.F_SETOWN, pid)
                fcntl.fcntl(number, 10, signal.SIGKILL)  # F_SETSIG
                fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
            return True

        def own_by_ioctl() -> bool:
            for number in descriptors():
                fcntl.ioctl(number, 0x8901, struct.pack("i", -os.getpgrp()))  # FIOSETOWN
            return True

        return won({"group": lambda: own(-os.getpgrp()), "ioctl": own_by_ioctl})

    @write
    def look_into_siblings(self) -> dict[str, Any]:
        room = ctypes.create_string_buffer(64)
        here = (ctypes.c_size_t * 2)(ctypes.addressof(room), 64)

        def any_of(number: int, *arguments: Any) -> list[int]:
            return [pid for pid in SIBLINGS if LIBC.syscall(number, *(pid if a is None else a for a in arguments)) >= 0]

        return won(
            {
                "ptrace": lambda: any_of(101, 16, None, 0, 0),
                "seize": lambda: any_of(101, 0x4206, None, 0, 0),
                "vm read": lambda: any_of(310, None, here, 1, here, 1, 0),
                "vm write": lambda: any_of(311, None, here, 1, here, 1, 0),
                "kcmp": lambda: any_of(312, os.getpid(), None, 0, 0, 0),
                "mem": lambda: [pid for pid in SIBLINGS if quiet(Path(f"/proc/{pid}/mem").read_bytes)],
                "move pages": lambda: any_of(279, None, 0, 0, 0, 0, 0),
            }
        )

    @write
    def calls_by_hand(self) -> dict[str, Any]:
        if platform.machine() != "x86_64":
            return {"won": {}}
        numbers = {
            "unshare": (272, 0x10000000), "setns": (308, 3, 0), "mount": (165, b"none", b"/tmp", b"tmpfs", 0, 0),
            "umount": (166, b"/proc", 2), "chroot": (161, b"/tmp"), "pivot_root": (155, b"/", b"/"), "bpf": (321, 0, 0, 0),
            "perf": (298, 0, 0, -1, -1, 0), "userfaultfd": (323, 0), "io_uring": (425, 1, ctypes.create_string_buffer(200)),
            "keyctl": (250, 0, -3, 1), "add_key": (248, b"user", b"x", b"y", 1, -3), "open_tree": (428, -100, b"/", 1),
            "fsopen": (430, b"tmpfs", 0), "kernel log": (103, 3, ctypes.create_string_buffer(100), 100),
            "x32 getpid": (0x40000000 | 39,), "personality": (135, 0x0040000), "seccomp off": (157, 22, 0),
            "asynchronous reads": (206, 1, ctypes.byref(ctypes.c_ulong())), "fanotify": (300, 0x200, 0),
            "inotify_init": (253,), "inotify_init1": (294, 0),
        }  # fmt: skip
        return won({name: lambda row=row: call(*row) for name, row in numbers.items()})  # type: ignore[misc]

    @write
    def old_gate(self) -> int:
        """A 32-bit system call from 64-bit code, which a filter by numbers alone would misread."""
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
        run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        return int(run())

    @write
    def dumpable(self) -> dict[str, Any]:
        LIBC.prctl(4, 1, 0, 0, 0)
        return won({"parent": lambda: Path(f"/proc/{os.getppid()}/maps").read_text()})

    # -- the worker itself ----------------------------------------------------------------------------------------

    @write
    def forge(self, how: str) -> str:
        """Answers of its own on the worker's channel, before the worker's."""
        numbers = range(1, 60)
        shapes: dict[str, list[bytes]] = {
            "garbage": [os.urandom(64)],
            "huge": [struct.pack("!I", 0xFFFFFFFF)],
            "large and silent": [struct.pack("!I", 200 << 20) + b"x" * 1000],
            "not json": [framed(b"{]")],
            "no list": [framed(b"5")],
            "empty": [framed(b"[]")] * 50,
            "twice": [framed(json.dumps([[n, [0, "x"]], [n, [0, "x"]]]).encode()) for n in numbers],
        }
        answers: dict[str, Any] = {
            "result": [0, {"forged": True}], "number": 5, "null": None, "short": [0], "words": [1, 5], "fault": [2, None],
            "status": ["0", 1], "unknown": [7, "x"], "deep": [0, nested(900)], "half": [0, {"a": 1e400}],
        }  # fmt: skip
        if how in answers:
            # Ids grow by one a request; a wrong guess loses the channel, so the right one is read off the stack.
            number = next(
                (f.f_locals["number"] for f in frames() if "number" in f.f_locals and "sessions" in f.f_locals), 1
            )
            shapes[how] = [framed(json.dumps([[number, answers[how]]]).encode())]
        for payload in shapes[how]:
            for number in descriptors():
                with contextlib.suppress(OSError):
                    os.write(number, payload)
        return "sent"

    @write
    def patch(self, what: str) -> str:
        """Changes the worker's own code, or Python's, under it."""
        import builtins
        import importlib

        room = "simia.sandbox.inside"
        wire: Any = importlib.import_module(f"{room}.frames")
        sessions: Any = importlib.import_module(f"{room}.sessions")
        python: Any = builtins
        text: Any = json
        modules: Any = sys.modules
        if what == "json":
            text.loads = text.dumps = wire.pack_json = wire.unpack_json = sessions.pack_json = lambda *_, **__: b"{}"
        elif what == "builtins":
            python.isinstance = python.len = python.type = lambda *_: 0
        elif what == "modules":
            for name in list(modules):
                modules[name] = None
        elif what == "changes":
            sessions.WorkerSession.changes = lambda self: "nothing to see"
        elif what == "changes shape":
            sessions.WorkerSession.changes = lambda self: [{"path": 5}, None]
        return "patched"

    @write
    def leave(self, what: str) -> str:
        """Something that goes on after the call."""
        if what == "alarm":
            signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        elif what == "deaf":
            for number in range(1, 32):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_IGN)
        elif what == "trace":
            python: Any = sys
            python.settrace(lambda *_: 1 / 0)
            sys.setprofile(lambda *_: None)
        elif what == "exit":
            atexit.register(time.sleep, 3600)
        elif what == "recursion":
            sys.setrecursionlimit(40)
        elif what == "gc":
            gc.disable()
        elif what == "place":
            os.umask(0)
            os.chdir("/usr")
            with contextlib.suppress(locale.Error):
                locale.setlocale(locale.LC_ALL, "C")
        elif what == "closed":
            for number in list(descriptors()):
                os.close(number)
        elif what == "hooks":
            hooks: Any = sys
            hooks.excepthook = hooks.unraisablehook = lambda *_: os._exit(9)
            gc.callbacks.append(lambda *_: 1 / 0)
        return "left"

    @read
    def others(self) -> dict[str, Any]:
        """Other episodes' notes, through the collector, globals and files."""
        texts = [o for o in gc.get_objects() if isinstance(o, dict) and any(isinstance(v, str) for v in o.values())]
        found = [v for o in texts for v in list(o.values()) if isinstance(v, str) and v.startswith("secret of")]
        return {"won": {"notes": found} if [f for f in found if f not in self.state.notes.values()] else {}}

    @write
    def remember(self, text: str) -> dict[str, str]:
        seen = dict(SEEN)
        SEEN["text"] = text
        return seen

    @read
    def leaked(self) -> dict[str, Any]:
        held = list(descriptors())
        return {"won": {"descriptors": held} if len(held) > 1 else {}}

    # -- endings and results --------------------------------------------------------------------------------------

    @write
    def end(self, how: str) -> Any:
        self.state.notes["half"] = "done"
        if how == "exit":
            os._exit(0)
        if how == "sys.exit":
            sys.exit(0)
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "segfault":
            ctypes.string_at(0)
        if how == "abort":
            os.abort()
        if how == "recursion":
            return self.end(how)
        if how == "deep recursion":
            sys.setrecursionlimit(1 << 30)
            return deeper([])
        if how == "loud":
            raise LoudError
        if how == "surrogate":
            raise ValueError("\ud800 half")
        if how == "refusal":
            from simia.kit import ToolError

            raise ToolError("\ud800 half")
        if how == "group":
            raise BaseExceptionGroup("many", [SystemExit(), ValueError()])
        if how == "generator":
            raise GeneratorExit
        raise LookupError(how)

    @write
    def give(self, what: str) -> Any:
        cycle: list[Any] = []
        cycle.append(cycle)
        gives: dict[str, Callable[[], Any]] = {
            "huge": lambda: "x" * (20 << 20),
            "deep": lambda: nested(100_000),
            "middle": lambda: nested(600),
            "nan": lambda: float("nan"),
            "infinity": lambda: [1, {"a": float("-inf")}],
            "half": lambda: "\ud800",
            "half key": lambda: {"\udfff": 1},
            "bytes": lambda: b"x",
            "cycle": lambda: cycle,
            "object": object,
            "set": lambda: {1, 2},
            "big number": lambda: 10**30,
            "lambda": lambda: print,
        }
        self.state.notes["half"] = "done"
        return gives[what]()

    @write
    def print_much(self) -> str:
        for _ in range(200):
            print("x" * (1 << 20))
            sys.stderr.write("y" * (1 << 20))
        return "printed"

    @write
    def spoil_state(self, what: str) -> str:
        """Leaves a state that is none."""
        if what == "number":
            self.state = 5  # type: ignore[assignment]
        elif what == "gone":
            del self.state
        elif what == "half":
            self.state.notes["x"] = "\ud800"
        elif what == "nan":
            self.state.number = float("nan")
        elif what == "object":
            self.state.anything = object()
        elif what == "cycle":
            self.state.anything = [0]
            self.state.anything.append(self.state.anything)
        elif what == "big":
            self.state.anything = 10**40
        elif what == "large":
            self.state.anything = "x" * (300 << 20)
        return "spoilt"

    @write
    def last_words(self) -> str:
        class Undead:
            def __del__(self) -> None:
                os.write(1, b"boo")
                raise SystemExit(5)

        Undead()
        cyclic: list[Any] = [Undead()]
        cyclic.append(cyclic)
        return "ok"


def quiet(act: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return act(*arguments)
    except (OSError, OverflowError, ValueError):
        return None


def framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def deeper(held: list[Any]) -> Any:
    return max([held], key=deeper)


def frames() -> Iterator[Any]:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        yield frame


def LIBC_environment() -> list[bytes]:  # noqa: N802
    """The environment as the C library sees it."""
    block = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, "environ")
    found = []
    for number in range(200):
        if not block or block[number] is None:
            break
        found.append(block[number])
    return found
