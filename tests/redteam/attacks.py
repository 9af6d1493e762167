"""A pack whose tools attack: each method is one attack. It runs in the sandbox only; what it says is checked outside.

A tool that comes back says what it reached: `{"reached": [...]}`, empty where nothing was.
"""

import ctypes
import gc
import mmap
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write

LIBC = ctypes.CDLL(None, use_errno=True)
KEPT: list[str] = []


class State(BaseModel):
    secret: str = "none"
    count: int = 0


def reached(**tries: Any) -> dict[str, list[str]]:
    """Names of the tries that did not raise, with what they gave."""
    found = []
    for name, work in tries.items():
        try:
            given = work()
        except BaseException:
            continue
        found.append(f"{name}={str(given)[:100]}")
    return {"reached": found}


def listening(kind: int, family: int = socket.AF_INET) -> Any:
    return socket.socket(family, kind)


class Attack(Tools[State]):
    State = State

    @write
    def put(self, text: str) -> dict:
        self.state.secret, self.state.count = text, self.state.count + 1
        return {"count": self.state.count}

    @read
    def get(self) -> dict:
        return {"secret": self.state.secret, "count": self.state.count}

    # -- reading what is none of its business

    @read
    def read_files(self, paths: list[str]) -> dict:
        return reached(
            **{path: lambda path=path: os.listdir(path) if os.path.isdir(path) else open(path).read() for path in paths}
        )

    @read
    def read_environment(self) -> dict:
        return {"names": sorted(os.environ), "home": os.path.expanduser("~"), "uid": os.getuid()}

    @read
    def read_proc(self) -> dict:
        return {"proc": os.listdir("/proc"), "sys": os.path.exists("/sys/class")}

    # -- writing

    @read
    def write_files(self, paths: list[str]) -> dict:
        return reached(**{path: lambda path=path: open(path, "w").write("x") for path in paths})

    @read
    def fill_disk(self) -> dict:
        def fill(path: str) -> int:
            with open(path, "wb") as file:
                for _ in range(4096):
                    file.write(b"x" * (1 << 20))
            return os.path.getsize(path)

        return reached(
            tmp=lambda: fill("/tmp/fill"),
            shm=lambda: fill("/dev/shm/fill"),
            memfd=lambda: os.write(os.memfd_create("m"), b"x" * (1 << 30)),
        )

    # -- the network

    @read
    def sockets(self, port: int, path: str) -> dict:
        def connect(kind: int) -> str:
            sock = socket.socket(socket.AF_INET, kind)
            sock.settimeout(2)
            sock.connect(("127.0.0.1", port))
            sock.send(b"hello")
            return "sent"

        def unix(address: str) -> str:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(address)
            return "connected"

        return reached(
            tcp=lambda: connect(socket.SOCK_STREAM),
            udp=lambda: connect(socket.SOCK_DGRAM),
            unix=lambda: unix(path),
            abstract=lambda: unix("\0simia-test"),
            pair=socket.socketpair,
            raw=lambda: LIBC.syscall(41, 2, 1, 0) >= 0 or 1 / 0,
        )

    # -- taking everything

    @read
    def fork_bomb(self) -> dict:
        made = 0
        try:
            while made < 100_000:
                if os.fork() == 0:
                    while True:
                        time.sleep(100)
                made += 1
        except OSError:
            pass
        return {"reached": [f"fork={made}"] if made else []}

    @read
    def thread_bomb(self) -> dict:
        return reached(thread=lambda: threading.Thread(target=time.sleep, args=(100,), daemon=True).start())

    @read
    def run_program(self) -> dict:
        import subprocess

        return reached(spawn=lambda: subprocess.run(["/bin/ls"], check=True), exec=lambda: os.execv("/bin/ls", ["ls"]))

    @write
    def memory_bomb(self, how: str) -> dict:
        held: list[Any] = []
        while True:
            if how == "bytes":
                held.append(bytearray(64 << 20))
            elif how == "mmap":
                piece = mmap.mmap(-1, 64 << 20)
                piece.write(b"x" * (64 << 20))
                held.append(piece)
            else:
                held.append([object() for _ in range(1_000_000)])

    @read
    def endless(self, how: str) -> dict:
        if how == "c":
            return {"sum": sum(range(3 * 10**9))}
        if how == "swallow":
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
        if how == "sleep":
            time.sleep(1000)
        if how == "signals":
            for number in range(1, 32):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            while True:
                pass
        import re

        return {"found": bool(re.match(r"(a+)+$", "a" * 60 + "b"))}

    # -- siblings and the parent

    @read
    def shoot(self) -> dict:
        def kill(pid: int) -> str:
            os.kill(pid, signal.SIGKILL)
            return "killed"

        pids = [-1, 1, os.getppid(), *range(2, 60)]
        return reached(**{f"kill {pid}": lambda pid=pid: kill(pid) for pid in pids if pid != os.getpid()})

    @read
    def trace(self) -> dict:
        def checked(value: int) -> int:
            if value < 0:
                raise OSError(ctypes.get_errno())
            return value

        pids = range(1, 60)
        tries: dict[str, Any] = {}
        for pid in pids:
            if pid != os.getpid():
                tries[f"attach {pid}"] = lambda pid=pid: checked(LIBC.ptrace(16, pid, 0, 0))
                tries[f"read {pid}"] = lambda pid=pid: checked(LIBC.syscall(310, pid, 0, 0, 0, 0, 0))
                tries[f"open {pid}"] = lambda pid=pid: checked(LIBC.syscall(434, pid, 0))
                tries[f"mem {pid}"] = lambda pid=pid: os.open(f"/proc/{pid}/mem", os.O_RDWR)
        return reached(**tries)

    @read
    def descriptors(self) -> dict:
        """Which are open beside the channel and the three standard ones."""
        found = []
        for number in range(3, 4096):
            try:
                os.fstat(number)
                found.append(number)
            except OSError:
                continue
        return {"open": found}

    @read
    def forge(self, how: str) -> dict:
        """Write to every descriptor what only the worker should."""
        bodies = {
            "garbage": b"\xff" * 64,
            "huge": (2**31).to_bytes(4, "big") + b"x",
            "forged": (lambda body: len(body).to_bytes(4, "big") + body)(b'[[1,[0,"forged"]],[2,[0,"forged"]]]'),
            "pickle": (lambda body: len(body).to_bytes(4, "big") + body)(b"cos\nsystem\n(S'touch /tmp/pwned'\ntR."),
        }
        for number in range(3, 64):
            try:
                os.write(number, bodies[how])
            except OSError:
                continue
        return {"reached": []}

    @read
    def namespaces(self) -> dict:
        def checked(value: int) -> int:
            if value < 0:
                raise OSError(ctypes.get_errno())
            return value

        return reached(
            user=lambda: checked(LIBC.unshare(0x10000000)),
            mount=lambda: checked(LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
            clone=lambda: checked(LIBC.syscall(56, 17, 0, 0, 0, 0)),
            clone3=lambda: checked(LIBC.syscall(435, 0, 0)),
            setuid=lambda: checked(LIBC.setuid(0)),
            chroot=lambda: os.chroot("/tmp"),
            bpf=lambda: checked(LIBC.syscall(321, 0, 0, 0)),
            ring=lambda: checked(LIBC.syscall(425, 1, 0)),
            x32=lambda: checked(LIBC.syscall(0x40000000 + 41, 2, 1, 0)),
            nice=lambda: os.nice(-10),
            limits=lambda: __import__("resource").setrlimit(4, (1, 1)),
        )

    # -- the worker itself, and other sessions

    @write
    def patch(self) -> dict:
        import builtins
        import json

        from simia.sandbox.inside import frames, main, sessions

        def lie(*_: Any, **__: Any) -> Any:
            return b'[[1,[0,"patched"]]]'

        for module, name in ((frames, "pack"), (main, "answer"), (json, "dumps"), (sessions.Session, "call")):
            setattr(module, name, lie)
        builtins.len = lambda _: 0  # type: ignore[assignment]
        sys.modules.clear()
        return {"reached": []}

    @read
    def other_sessions(self, secret: str) -> dict:
        """Looks for another episode's secret in everything that this process holds."""
        found = [
            str(o)[:50] for o in gc.get_objects() if isinstance(o, State) and o is not self.state and secret in str(o)
        ]
        KEPT.append(self.state.secret)
        return {"reached": [*found, *(each for each in KEPT if each == secret)]}

    # -- strange results and ends

    @read
    def give(self, what: str) -> Any:
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        circle: list[Any] = []
        circle.append(circle)
        return {
            "huge": "x" * (100 << 20), "nan": float("nan"), "inf": [float("inf")], "surrogate": "\ud800", "bytes": b"x",
            "object": object(), "deep": deep, "circle": circle, "int": 10**400, "set": {1}, "keys": {1: 2, None: 3},
        }[what]  # fmt: skip

    @write
    def die(self, how: str) -> dict:
        self.state.count = -1
        if how == "exit":
            os._exit(3)
        if how == "zero":
            os._exit(0)
        if how == "segfault":
            ctypes.string_at(0)
        if how == "abort":
            os.abort()
        if how == "system exit":
            raise SystemExit
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "recursion":
            return self.die(how)
        if how == "generator":
            raise GeneratorExit
        if how == "loud":

            class Loud(ToolError):  # noqa: N818
                def __str__(self) -> str:
                    raise ValueError("loud")

            raise Loud
        if how == "endless words":
            raise ToolError("x" * (50 << 20))
        print("x" * (200 << 20))
        sys.stderr.write("x" * 1000)
        raise ValueError("Traceback (most recent call last):\n  File x")

    @write
    def swap_state(self) -> dict:
        self.state = None  # type: ignore[assignment]
        return {}

    @write
    def leave_traps(self) -> dict:
        import atexit

        signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        atexit.register(os._exit, 9)
        sys.settrace(lambda *_: None)
        sys.setrecursionlimit(60)
        gc.disable()
        os.umask(0)
        os.chdir("/")
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        return {}
