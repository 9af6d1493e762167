"""Run programs of the system in a process group of their own, with their output in a file.

A background process would keep a pipe open until it ends; a file has no such problem.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECONDS = 7.0  # less than the sandbox allows for a call
MOST = 60_000  # bytes of output that an agent gets


@dataclass(frozen=True)
class ProgramResult:
    """Exit code and output. `code` is None for a program that was stopped at the limit."""

    code: int | None
    output: str


def make_program_environment(**more: str) -> dict[str, str]:
    """Make a program's environment: the interpreter's folder comes first, so that `python3` has the office libraries."""
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
    """Run a program until it ends. `kept`: a descriptor that it inherits. Raises `OSError` if it cannot be started."""
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
                os.killpg(process.pid, signal.SIGKILL)  # background processes too
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        text = output.read(MOST).decode(errors="replace")
    return ProgramResult(code, text if size <= MOST else f"{text}\n… ({size - MOST:,} more bytes)")
