"""`simia serve --openenv` in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from simia.trajectory import Trajectory


@dataclass
class ServerProcess:
    """A server that runs, its address, and its file of trajectories."""

    process: subprocess.Popen[str]
    url: str
    out: Path

    def read_kept(self) -> list[Trajectory]:
        """The trajectories that are on disk."""
        lines = self.out.read_bytes().splitlines() if self.out.exists() else []
        return [Trajectory.from_row(orjson.loads(line)) for line in lines]

    def list_family(self) -> list[int]:
        """The server's process and all below it."""
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                parent = int(Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
        found, left = [], [self.process.pid]
        while left:
            found.append(left.pop())
            left += children.get(found[-1], [])
        return found

    def measure_memory(self) -> float:
        """Megabytes of the server and its sandbox: proportional set sizes, in which shared pages count once."""
        total = 0
        for pid in self.list_family():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    total += int(line.split()[1]) if line.startswith("Pss:") else 0
        return total / 1024


@contextlib.contextmanager
def server_process(
    out: Path, *words: str, packs: tuple[str, ...] = ("customer_service",), env: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Start a server and wait for its announcement; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "simia", "serve", *packs, "--openenv", "--out", str(out)]
    command += [*words] if "--port" in words else ["--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "serving at " in line, line + process.stderr.read()
        yield ServerProcess(process, line.partition("serving at ")[2].partition(";")[0], out)
    finally:
        process.kill()
        process.wait()
