"""Count the memory and the files of sandboxes from outside, and end those that exceed their limits.

The kernel limits each process, but neither the sum of a sandbox's processes nor the files of its tmpfs. So one thread checks all
sandboxes of this process, several times a second and at least every few seconds. It measures the content of each tmpfs (`fstatvfs` on
descriptors that the sandbox passed before untrusted code ran), and the memory and page tables of the sandbox's first process and all
processes below it: first as a cheap upper bound, and exactly only if that bound exceeds the limit. A sandbox that is too expensive to
check is ended too: otherwise it could take memory between two checks.

A worker sets its own limits, in an interpreter that has already run the pack's code. This code could have replaced the functions that set
the limits, and could have left processes behind. So in a sandbox with several workers the supervisor bounds their sum (`SharedBounds`).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from simia.sandbox.inside.confine import SLACK, WHILE_LOADING
from simia.sandbox.limits import WorkerLimits

INTERVAL = 0.1  # seconds between two checks
LONGEST = 2.0  # most seconds between two checks, whatever they cost
SHARE = 0.05  # share of a processor's time that the checks may take, as long as `LONGEST` allows it
COST = 0.5  # seconds of CPU time that a check of one sandbox may take
COST_OF_ONE = 0.001  # further seconds of CPU time for each process of the sandbox
MOST_MAPS = 16 << 20  # bytes of the lists of memory mappings of a sandbox's processes: about 200,000 mappings
MOST_PROCESSES = 4096
OWN_PROCESSES = 8  # processes of bubblewrap, and the one that forks workers
GRACE = 30.0  # seconds for which a worker still counts after its end was ordered but not confirmed
SIZE = re.compile(rb"^Vm(Size|RSS|PTE|Swap):\s+(\d+) kB", re.MULTILINE)
FIELD = re.compile(rb"^(?:Pss_|Rss)(Anon|Shmem):\s+(\d+) kB", re.MULTILINE)
# Shared memory without a file: its pages stay in memory when a process drops them from its table, so its whole size is counted.
SHARED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S{3}s \S+ (\S+) (\d+) +(?:/dev/zero|/SYSV|/memfd:)", re.MULTILINE)


class TooCostlyError(Exception):
    """A check of a sandbox is too expensive; the message names the reason."""


@dataclass(eq=False)
class WatchedSandbox:
    """One sandbox under supervision: its first process, descriptors of its tmpfs, and its limits (0: none)."""

    pid: int
    folders: list[int] = field(default_factory=list)
    memory: int = 0
    inodes: int = 0
    processes: int = 0
    baseline: int = 0
    exceeded: str = ""
    """The reason why it was ended."""

    def look(self) -> str:
        """Return which limit it exceeds; empty when it is within them."""
        held, inodes = measure_file_systems(self.folders)
        if self.inodes and inodes > self.inodes:
            return f"the sandbox holds {inodes:,} files and folders, more than {self.inodes:,}"
        if not self.memory:
            return ""
        if held > self.memory:
            return self._too_much(held)
        try:
            used = self._count(held)
        except TooCostlyError as error:
            return str(error)
        return self._too_much(used - self.baseline) if used > self.memory + self.baseline else ""

    def _count(self, held: int) -> int:
        """Return the bytes in use including `held`, or an upper bound within the limit. Raises `TooCostlyError`."""
        limit, until = self.memory + self.baseline, time.thread_time() + COST
        processes = list_descendants(self.pid)
        if self.processes and len(processes) > self.processes:
            raise TooCostlyError(f"the sandbox has {len(processes):,} processes, more than {self.processes:,}")
        if len(processes) > MOST_PROCESSES:
            raise TooCostlyError(f"the sandbox has more than {MOST_PROCESSES:,} processes")
        until += len(processes) * COST_OF_ONE  # a normal sandbox may hold a thousand workers
        mapped, resident, hidden = measure_mapped(processes, until)
        held += hidden
        if mapped + held <= limit:  # resident and shared pages cannot be more, so in most cases this is enough
            return mapped + held
        reserved = measure_shared(processes, until)
        if resident + reserved + held <= limit:
            return resident + reserved + held
        private, common = measure_anonymous(processes, until)
        return held + private + max(common, reserved)

    def settle(self) -> None:
        """Store the present memory use as the baseline: that of the loaded pack."""
        processes = list_descendants(self.pid)
        self.baseline = sum(measure_anonymous(processes)) + measure_mapped(processes)[2]

    def _too_much(self, used: int) -> str:
        return f"the sandbox uses {used >> 20:,} MB of memory, files in it included, more than {self.memory >> 20:,} MB"


class SharedBounds:
    """Sets the bounds of one watched sandbox by how many workers it has."""

    def __init__(self, watch: WatchedSandbox, limits: WorkerLimits) -> None:
        """Call this after the pack is loaded: its present memory use is added to the limit of each worker."""
        self._watch, self._limits = watch, limits
        self._until: dict[int, float] = {}
        watch.settle()
        self._apply()

    def add(self, number: int) -> None:
        """Count a worker that is about to be forked."""
        self._until[number] = math.inf
        self._apply()

    def remove(self, number: int, *, confirmed: bool) -> None:
        """Count a worker no longer. One whose end is not confirmed may still hold its memory."""
        if confirmed:
            self._until.pop(number, None)
        elif number in self._until:
            self._until[number] = min(self._until[number], time.monotonic() + GRACE)
        self._apply()

    def _apply(self) -> None:
        now = time.monotonic()
        self._until = {number: until for number, until in self._until.items() if until > now}
        # If the kernel does not distinguish them, memory that a worker shares with the loaded pack is counted for both.
        each = self._limits.memory + SLACK + self._watch.baseline
        self._watch.memory = self._limits.resident + len(self._until) * each
        self._watch.processes = len(self._until) + WHILE_LOADING + OWN_PROCESSES


class Supervisor:
    """The thread that checks the watched sandboxes."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset in a forked process: there the thread does not run, its lock may still be held, and the sandboxes are the parent's."""
        self._watched: set[WatchedSandbox] = set()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, watch: WatchedSandbox) -> None:
        with self._change:
            self._watched.add(watch)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="simia-supervisor", daemon=True)
                self._thread.start()
            self._change.notify()

    def remove(self, watch: WatchedSandbox) -> None:
        """Stop watching a sandbox: its process is not signalled any more, and its descriptors are closed."""
        with self._change:
            self._watched.discard(watch)
        for folder in watch.folders:
            with contextlib.suppress(OSError):
                os.close(folder)
        watch.folders = []

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._watched:
                    self._change.wait()
                watched = list(self._watched)
            start = time.thread_time()
            for watch in watched:
                self._look(watch)
            time.sleep(choose_pause(time.thread_time() - start))

    def _look(self, watch: WatchedSandbox) -> None:
        with self._change:  # one that was removed has neither process nor descriptors
            if watch not in self._watched or watch.exceeded:
                return
            with contextlib.suppress(OSError, ValueError):
                watch.exceeded = watch.look()
            if watch.exceeded and is_child(watch.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(watch.pid, signal.SIGKILL)


def measure_file_systems(folders: list[int]) -> tuple[int, int]:
    """Return bytes and inodes in use of these file systems."""
    held = inodes = 0
    for folder in folders:
        status = os.fstatvfs(folder)
        held += (status.f_blocks - status.f_bfree) * status.f_frsize
        inodes += status.f_files - status.f_ffree
    return held, inodes


def list_descendants(pid: int) -> list[int]:
    """List a process and all its descendants; orphans are included, since the first process of the sandbox's namespace adopts them."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                with contextlib.suppress(OSError):
                    found += map(int, read_proc_file(f"/proc/{each}/task/{thread}/children").split())
        if len(found) > MOST_PROCESSES:
            break
    return found


def measure_mapped(processes: list[int], until: float = math.inf) -> tuple[int, int, int]:
    """Return mapped bytes and resident bytes, shared ones counted for each process, and bytes of page tables and swapped pages.

    Page tables are counted because a program can fill them by reading one byte of every 2 MB of a mapping.
    """
    sizes: Counter[bytes] = Counter()
    for pid in iterate_within(processes, until):
        with contextlib.suppress(OSError):
            for name, size in SIZE.findall(read_proc_file(f"/proc/{pid}/status")):
                sizes[name] += int(size) << 10
    return sizes[b"Size"], sizes[b"RSS"], sizes[b"PTE"] + sizes[b"Swap"]


def measure_anonymous(processes: list[int], until: float = math.inf) -> tuple[int, int]:
    """Return private and shared bytes of memory without a file on disk; common pages count once if the kernel distinguishes them."""
    sizes: Counter[bytes] = Counter()
    for pid in iterate_within(processes, until):
        for file in ("smaps_rollup", "status"):  # the first needs the right to look into the process
            with contextlib.suppress(OSError):
                if rows := FIELD.findall(read_proc_file(f"/proc/{pid}/{file}")):
                    for name, size in dict(rows).items():
                        sizes[name] += int(size) << 10
                    break
    return sizes[b"Anon"], sizes[b"Shmem"]


def measure_shared(processes: list[int], until: float = math.inf) -> int:
    """Return the bytes of mapped shared memory without a file, resident or not; each segment counts once."""
    found: dict[tuple[bytes, bytes], int] = {}
    left = MOST_MAPS
    for pid in iterate_within(processes, until):
        with contextlib.suppress(OSError):
            maps = read_proc_file(f"/proc/{pid}/maps", left + 1)
            left -= len(maps)
            if left < 0:
                raise TooCostlyError("the sandbox has more memory mappings than can be counted")
            for first, last, device, inode in SHARED.findall(maps):
                size = int(last, 16) - int(first, 16)
                found[device, inode] = max(found.get((device, inode), 0), size)
    return sum(found.values())


def iterate_within(processes: list[int], until: float) -> Iterator[int]:
    """Yield processes. Raises `TooCostlyError` once the CPU time of this thread has reached `until` seconds."""
    for pid in processes:
        if time.thread_time() > until:
            raise TooCostlyError("the memory of the sandbox's processes takes too long to be counted")
        yield pid


def choose_pause(cost: float) -> float:
    """Return the seconds until the next check, after one that took `cost` seconds of CPU time."""
    return min(max(INTERVAL, cost / SHARE), LONGEST)


def is_child(pid: int) -> bool:
    """Check whether the process is a child of this one, since the pid of an ended process may be reused."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read_proc_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1]) == os.getpid()
    return False


def read_proc_file(path: str, most: int = 1 << 20) -> bytes:
    """Read at most `most` bytes of a file of /proc, which the kernel returns in pieces."""
    chunks, left = [], most
    with open(path, "rb", buffering=0) as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 16))):
            chunks.append(chunk)
            left -= len(chunk)
    return b"".join(chunks)


supervisor = Supervisor()
os.register_at_fork(after_in_child=supervisor.forget)
