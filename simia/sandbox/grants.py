"""Decide which files of the host a sandbox may expose; some are refused even if the user grants them.

A grant is read-only. It never covers a home or a parent of one, credentials, the kernel's file systems, or a folder that holds a
socket, a named pipe or a device: a read-only mount does not stop a connection to a socket, nor a write to a pipe.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from simia.errors import UserError
from simia.sandbox.bubblewrap import SYSTEM, Bind

# As a whole; a folder below may be granted.
NEVER = ("/", "/home", "/root", "/etc", "/var", "/var/lib", "/var/tmp", "/tmp")
NEVER_BELOW = ("/proc", "/sys", "/dev", "/run", "/boot")
TAKEN = ("/pack", "/simia", "/proc", "/sys", "/dev")  # paths that the sandbox itself uses
CREDENTIALS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".netrc", ".pgpass", ".git-credentials",
    ".config/gcloud", ".local/share/keyrings",
)  # fmt: skip
KERNEL_FILES = {
    "proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf", "fusectl",
    "configfs", "pstore", "efivarfs", "binfmt_misc", "autofs",
}  # fmt: skip


def check_grant(path: str | Path) -> Bind:
    """Return the bind of a granted file or folder. Raises `UserError` for one that is never granted."""
    asked = os.path.abspath(os.path.expanduser(path))
    real = os.path.realpath(asked)
    if not os.path.exists(real):
        raise UserError(f"{asked} cannot be granted: there is no such file or folder")
    if reason := explain_refusal(real) or explain_taken(asked) or explain_special_file(real):
        raise UserError(f"{asked} cannot be granted: {reason}")
    return real, asked


def is_shown(path: str) -> bool:
    """Check whether every sandbox shows a path: a part of the system's programs, libraries or their settings."""
    return any(is_below(path, each) for each in SYSTEM)


def is_below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def explain_refusal(real: str) -> str:
    """Return why a path, with its links resolved, is never shown; empty if it may be granted. Does not look into a folder."""
    return explain_broad(real) or explain_kernel_files(real) or explain_credential(real) or explain_mount_below(real)


def explain_broad(real: str) -> str:
    """Return why a folder shows too much: it is or contains a home, or is one of the folders `NEVER`; empty if neither."""
    holder = "grant the one folder that is needed"
    for home in list_homes():
        if is_below(home, real) or is_same_file(home, real):
            return f"it is or contains the home folder {home}; {holder}"
    if found := next((each for each in NEVER if each == real or is_same_file(each, real)), None):
        return f"{found} as a whole is never shown; {holder}"
    return ""


def explain_kernel_files(real: str) -> str:
    for each in NEVER_BELOW:
        if is_below(real, each):
            return f"nothing in {each} can be granted"
    holding = [(len(point), n, kind) for n, (point, kind) in enumerate(list_mounts()) if is_below(real, point)]
    kind = max(holding, default=(0, 0, ""))[2]
    return f"it lies in a file system of the kernel ({kind})" if kind in KERNEL_FILES else ""


def explain_credential(real: str) -> str:
    for path in [os.path.realpath(f"{home}/{name}") for home in list_homes() for name in CREDENTIALS]:
        if is_below(real, path) or (is_below(path, real) and os.path.exists(path)):
            return f"{path} holds credentials, which are never shown"
    return ""


def explain_mount_below(real: str) -> str:
    point = next((point for point, _ in list_mounts() if point != real and is_below(point, real)), None)
    return f"another file system is mounted in it at {point}; grant the folders beside that" if point else ""


def explain_taken(inside: str) -> str:
    found = next((each for each in TAKEN if is_below(inside, each)), None)
    return f"a sandbox has a folder {found} of its own" if found else ""


def explain_special_file(real: str) -> str:
    """Return why a file or folder cannot be shown: the first socket, named pipe or device in it."""
    if kind := describe_file_kind(os.lstat(real).st_mode):
        return f"it is {kind}"
    for path, kind in find_special_files(real) if os.path.isdir(real) else ():
        return f"it holds {kind}, {path}; remove that or grant a narrower folder"
    return ""


def find_special_files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield (path, kind) of what is no file, folder or link below a folder. No link is followed."""
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                        yield entry.path, describe_file_kind(entry.stat(follow_symlinks=False).st_mode)
        except OSError:  # without permission here there is none inside
            continue


def describe_file_kind(mode: int) -> str:
    """Return the kind of a special file; empty for a file, a folder or a link."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
        return ""
    return "a socket" if stat.S_ISSOCK(mode) else "a named pipe" if stat.S_ISFIFO(mode) else "a device"


def list_homes() -> list[str]:
    """List the homes of this machine's users, with links resolved; without those of system users among the system's programs."""
    return list_homes_with(os.path.expanduser("~"))


@functools.cache  # each sandbox asks when it starts, and a directory service may answer slowly
def list_homes_with(own: str) -> list[str]:
    named = [own, *(user.pw_dir for user in pwd.getpwall())]
    found = dict.fromkeys(os.path.realpath(home) for home in named if home.startswith("/"))
    return [home for home in found if home != "/" and not is_shown(home)]


def is_same_file(one: str, other: str) -> bool:
    """Check whether two paths are one file, as a bind mount makes them."""
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False


def list_mounts() -> list[tuple[str, str]]:
    """List (mount point, kind) of every file system, in the order in which they were mounted."""
    found = []
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        for line in mounts.splitlines():
            head, _, tail = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), head.split(" ")[4])
            found.append((point, tail.split(" ")[0]))
    return found
