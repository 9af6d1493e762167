"""Counts the memory and the files of sandboxes from outside, and ends the ones that use more than they may.

The kernel limits each process, but not what the processes of a sandbox hold together, nor the files of its tmpfs. One thread
looks at all sandboxes of this process, several times a second and at least every few seconds. It counts what the tmpfs hold
(`fstatvfs` on descriptors that the sandbox handed over before untrusted code ran), and the memory of all processes below the
sandbox's first one, their page tables included: cheaply as an upper bound, and exactly only where that bound is above the
limit. A sandbox that makes a look expensive is over a limit too: otherwise it could take memory between two looks.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

INTERVAL = 0.1  # seconds between two looks
LONGEST = 2.0  # seconds between two looks at most, whatever they cost
SHARE = 0.05  # of a processor's time that the looks may take, as long as `LONGEST` allows it
COST = 0.5  # seconds of a processor's time that a look at one sandbox may take
COST_OF_ONE = 0.001  # seconds of CPU time for each process beside it
MOST_MAPS = 16 << 20  # bytes of the lists of memory mappings of a sandbox's processes: about 200,000 mappings
MOST_PROCESSES = 4096
SIZE = re.compile(rb"^Vm(Size|RSS|PTE|Swap):\s+(\d+) kB", re.MULTILINE)
FIELD = re.compile(rb"^(?:Pss_|Rss)(Anon|Shmem):\s+(\d+) kB", re.MULTILINE)
# Shared memory without a file: its pages stay when a process drops them from its table, so that its size counts.
SHARED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S{3}s \S+ (\S+) (\d+) +(?:/dev/zero|/SYSV|/memfd:)", re.MULTILINE)


class TooCostlyError(Exception):
    """A look takes more than it may; the message says what for."""


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
    """Why it was ended, in words."""

    def look(self) -> str:
        """What it uses beyond its limits, in words; empty when it is within them."""
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
        """Bytes in use, `held` among them: an upper bound where this is within the limit. Raises `TooCostlyError`."""
        limit, until = self.memory + self.baseline, time.thread_time() + COST
        processes = list_descendants(self.pid)
        if self.processes and len(processes) > self.processes:
            raise TooCostlyError(f"the sandbox has {len(processes):,} processes, more than {self.processes:,}")
        if len(processes) > MOST_PROCESSES:
            raise TooCostlyError(f"the sandbox has more than {MOST_PROCESSES:,} processes")
        until += len(processes) * COST_OF_ONE  # honest sandboxes hold a thousand workers
        mapped, resident, hidden = measure_mapped(processes, until)
        held += hidden
        if mapped + held <= limit:  # neither resident nor shared pages can be more: mostly no closer look is needed
            return mapped + held
        reserved = measure_shared(processes, until)
        if resident + reserved + held <= limit:
            return resident + reserved + held
        private, common = measure_anonymous(processes, until)
        return held + private + max(common, reserved)

    def settle(self) -> None:
        """Take what is used now as what the loaded pack uses."""
        processes = list_descendants(self.pid)
        self.baseline = sum(measure_anonymous(processes)) + measure_mapped(processes)[2]

    def _too_much(self, used: int) -> str:
        return f"the sandbox uses {used >> 20:,} MB of memory, files in it included, more than {self.memory >> 20:,} MB"


class Supervisor:
    """The thread and what it watches."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset: in a fork the thread is gone, its lock could be held for ever, and the sandboxes are the parent's."""
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
        """No longer look at it; afterwards its process is never signalled, and its descriptors are closed."""
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
    """Bytes and inodes in use of these file systems."""
    held = inodes = 0
    for folder in folders:
        status = os.fstatvfs(folder)
        held += (status.f_blocks - status.f_bfree) * status.f_frsize
        inodes += status.f_files - status.f_ffree
    return held, inodes


def list_descendants(pid: int) -> list[int]:
    """A process and all below it. Orphans stay below: the first process of the sandbox's namespace adopts them."""
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
    """Bytes that are mapped, and that are resident, both with what processes share counted for each; and what neither counts:
    page tables, which reading one byte of every 2 MB of a mapping fills, and what was swapped out."""
    mapped = resident = hidden = 0
    for pid in iterate_within(processes, until):
        with contextlib.suppress(OSError):
            rows = {name: int(size) << 10 for name, size in SIZE.findall(read_proc_file(f"/proc/{pid}/status"))}
            mapped += rows.get(b"Size", 0)
            resident += rows.get(b"RSS", 0)
            hidden += rows.get(b"PTE", 0) + rows.get(b"Swap", 0)
    return mapped, resident, hidden


def measure_anonymous(processes: list[int], until: float = math.inf) -> tuple[int, int]:
    """Bytes of memory that no file on disk stands behind, private and shared; what processes have in common is counted once
    where the kernel tells."""
    private = common = 0
    for pid in iterate_within(processes, until):
        for name in ("smaps_rollup", "status"):  # the first is only for who may look into the process
            with contextlib.suppress(OSError):
                rows = dict(FIELD.findall(read_proc_file(f"/proc/{pid}/{name}")))
                if rows:
                    private += int(rows.get(b"Anon", 0)) << 10
                    common += int(rows.get(b"Shmem", 0)) << 10
                    break
    return private, common


def measure_shared(processes: list[int], until: float = math.inf) -> int:
    """Bytes of shared memory without a file that is mapped, resident or not; each piece once."""
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
    """The processes one by one, as long as this thread has used less of a processor's time. Raises `TooCostlyError`."""
    for pid in processes:
        if time.thread_time() > until:
            raise TooCostlyError("the memory of the sandbox's processes takes too long to be counted")
        yield pid


def choose_pause(cost: float) -> float:
    """Seconds until the next look, after one that took so much of a processor's time."""
    return min(max(INTERVAL, cost / SHARE), LONGEST)


def is_child(pid: int) -> bool:
    """Whether the process is still ours: the number of one that ended could be another's by now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read_proc_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1]) == os.getpid()
    return False


def read_proc_file(path: str, most: int = 1 << 20) -> bytes:
    """A file of /proc, `most` bytes of it: the kernel hands out a page or so at a time."""
    chunks, left = [], most
    with open(path, "rb", buffering=0) as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 16))):
            chunks.append(chunk)
            left -= len(chunk)
    return b"".join(chunks)


supervisor = Supervisor()
os.register_at_fork(after_in_child=supervisor.forget)
