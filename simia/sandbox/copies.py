"""Private folders for a sandbox: copies of packs, and simia's files that run inside. They are removed when the process ends.

The next process removes a folder that a killed process left. Each owner holds a lock on its folder, and the kernel releases a lock when
its holder dies, so a folder that can be locked has no owner. Children of the process keep the lock too, and a process has a minute to
lock a new folder.

All of them lie in one folder that only its owner can enter. The copies inside are readable for all users, since workers run as nobody if
simia runs as root; root, who may enter, lays out the sandbox's files.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import py_compile
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from simia.errors import UserError
from simia.pack_files import is_leftover
from simia.sandbox.grants import describe_file_kind

MOST_BYTES, MOST_FILES = 1 << 30, 20_000
YOUNG = 60.0  # seconds
PRIVATE = "simia-sandbox-"
_private: dict[int, Path] = {}  # by process: a forked child must neither use nor remove its parent's


def make_private(name: str) -> Path:
    """Make a folder of mode 0700 in this process's private folder, which is removed when the process ends."""
    me = os.getpid()
    if me not in _private:
        made = make_temporary(PRIVATE)
        if _private.setdefault(me, made) is made:
            atexit.register(_remove_own, me)
        else:  # another thread was first
            made.rmdir()
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_private[me]))


def _remove_own(owner: int) -> None:
    if owner == os.getpid():
        shutil.rmtree(_private.pop(owner), ignore_errors=True)


def make_temporary(prefix: str) -> Path:
    """Make a folder of mode 0700, locked until this process ends; remove those of dead processes with that prefix."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            if left.stat().st_uid != os.getuid() or time.time() - left.stat().st_mtime < YOUNG:
                continue
            handle = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)  # never closed: the lock holds as long as the process
    fcntl.flock(handle, fcntl.LOCK_SH)
    return folder


@functools.cache
def make_library(process: int) -> str:
    """Make the folder with simia's files that run inside, once for each process (its number). They are compiled here, since no sandbox could
    store bytecode for the next one."""
    import simia.kit
    import simia.state

    folder = make_private("library")
    room = folder / "simia" / "sandbox"
    room.mkdir(parents=True)
    (folder / "empty").mkdir()
    for package in (folder / "simia", room):
        (package / "__init__.py").write_text("")  # simia's own `__init__.py` imports modules that are not needed inside
    for module in (simia.kit, simia.state):
        shutil.copy(str(module.__file__), folder / "simia")
    shutil.copytree(Path(__file__).parent / "inside", room / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    for source in [*folder.rglob("*.py")]:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(source), str(compiled), str(source.relative_to(folder)))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(folder)


def copy_pack(pack: Path, made: Path, gone: set[str]) -> None:
    """Copy a pack, readable for all users, without its parts `gone`. Raises `UserError` for a file that cannot be read, and, before anything
    is written, for a pack that is too large.

    Left out are folders of version control and backups of editors, which hold older copies of hidden parts, and sockets, pipes and
    devices. Links stay links: their targets outside of the pack are not shown.
    """

    def skip(folder: str, names: list[str]) -> set[str]:
        here = Path(folder).relative_to(pack)
        return {
            name for name in names
            if is_leftover(name) or str(here / name) in gone or not is_ordinary(Path(folder, name))
        }  # fmt: skip

    check_size(pack, skip)
    try:
        shutil.copytree(pack, made, dirs_exist_ok=True, symlinks=True, ignore=skip)
    except shutil.Error as error:
        path, _, reason = error.args[0][0]
        raise UserError(f"{pack.name}: {path} cannot be read ({reason}): make it readable") from None
    for path in [made, *made.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def check_size(pack: Path, skip: Callable[[str, list[str]], set[str]]) -> None:
    """Raise `UserError` if a copy would be too large. A sparse file counts with the size of its copy."""
    count = size = 0
    for folder, folders, files in os.walk(pack):
        left_out = skip(folder, [*folders, *files])
        folders[:] = [name for name in folders if name not in left_out]
        kept = [name for name in files if name not in left_out]
        count += len(folders) + len(kept)
        size += sum(Path(folder, name).lstat().st_size for name in kept)
        if count > MOST_FILES or size > MOST_BYTES:
            raise UserError(
                f"{pack} holds more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes, too much to be copied into a sandbox: "
                "move what the pack does not need out of its folder"
            )


def is_showable(pack: Path, *, to_all: bool) -> bool:
    """Check whether a sandbox can show the pack's folder itself instead of a copy: a copy would leave out nothing, and (with `to_all`)
    all users can read its files. Links are not followed."""
    inner = list(pack.rglob("*"))
    if any(is_leftover(path.name) for path in inner):
        return False
    return all(is_ordinary(path) and not (to_all and is_closed(path)) for path in [pack, *inner] if path.exists())


def is_closed(path: Path) -> bool:
    need = 0o005 if path.is_dir() else 0o004
    return path.lstat().st_mode & need != need


def is_ordinary(path: Path) -> bool:
    """Check whether a path is a file, a folder or a link."""
    return not describe_file_kind(path.lstat().st_mode)


@functools.cache
def find_extra_packages() -> str | None:
    """Return the folder of simia's dependencies if the interpreter does not look there by itself (a user's site, a PYTHONPATH)."""
    import pydantic

    folder = str(Path(pydantic.__file__).parent.parent)
    return None if folder.startswith(sys.prefix) else folder


def find_parts(pack: Path, names: set[str]) -> set[str]:
    """Resolve names of parts of the pack, and their links, to the paths in it that exist."""
    found = set()
    for name in names:
        path = Path(os.path.normpath(pack / name))
        for each in (path, path.resolve()):
            if each.exists() and each.is_relative_to(pack) and each != pack:
                found.add(str(each.relative_to(pack)))
    return found
