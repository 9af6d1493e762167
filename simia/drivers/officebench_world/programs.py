"""Programs of the system: started in a group of their own, stopped with it, their output read from a file.

A file, since a program that a command leaves running would hold a pipe open for as long as it lives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECONDS = 7.0  # below what the sandbox allows one call
MOST = 60_000  # bytes of output that an agent is shown


@dataclass(frozen=True)
class ProgramResult:
    """`code` is None for a program that took too long and was stopped."""

    code: int | None
    output: str


def make_program_environment(**more: str) -> dict[str, str]:
    """Environment of a program: the interpreter's folder first, so that `python3` has the office libraries."""
    return {
        "PATH": f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_THREAD_LIMIT": "1",
        **more,
    }


def run_program(
    command: Sequence[str],
    *,
    folder: str = "/",
    environment: Mapping[str, str] | None = None,
    kept: int | None = None,
    seconds: float = SECONDS,
) -> ProgramResult:
    """Run a program to its end. `kept`: a descriptor that it inherits. Raises `OSError` where it cannot be started."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment or make_program_environment()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if kept is None else (kept,),
        )
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what it left in the background
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        text = output.read(MOST).decode(errors="replace")
    return ProgramResult(code, text if size <= MOST else f"{text}\n… ({size - MOST:,} more bytes)")
