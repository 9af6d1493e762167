"""Run programs of the system in a process group of their own, with their output in a file.

A background process would keep a pipe open until it ends; a file has no such problem.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

SECONDS = 7.0  # less than the sandbox allows for a call
MOST = 60_000  # bytes of output that an agent gets
# The interpreter's folder comes first, so that `python3` has the office libraries.
PATH = f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
ENVIRONMENT = {
    "PATH": PATH, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC",
    "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "OMP_THREAD_LIMIT": "1",
}  # fmt: skip


def run_program(
    command: Sequence[str], folder: str = "/", *, kept: int | None = None, seconds: float = SECONDS, **variables: str
) -> tuple[int | None, str]:
    """Run a program; return its exit code, None if it was stopped at the limit, and its output.

    `kept`: a descriptor that it inherits; `variables`: of its environment. Raises `OSError` if it cannot be started.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**ENVIRONMENT, **variables}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=() if kept is None else (kept,),
        )  # fmt: skip
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # background processes too
            process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        text = output.read(MOST).decode(errors="replace")
    return code, text if size <= MOST else f"{text}\n… ({size - MOST:,} more bytes)"
