"""What a sandbox reads of ours: simia's few files that run inside, and copies of packs. All of it lies in a folder of mode 0700."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from simia.errors import UserError
from simia.pack_files import is_leftover
from simia.sandbox.grants import describe_file_kind
from simia.sandbox.temporary import make_private


def make_library() -> str:
    """A folder with the few files of ours that run inside; made once a process."""
    return make_library_for(os.getpid())


@functools.cache
def make_library_for(process: int) -> str:
    import simia.kit
    import simia.state

    folder = make_private("library")
    room = folder / "simia" / "sandbox"
    room.mkdir(parents=True)
    (folder / "empty").mkdir()
    for package in (folder / "simia", room):
        (package / "__init__.py").write_text("")  # not ours, which imports what the inside has no use for
    for module in (simia.kit, simia.state):
        shutil.copy(str(module.__file__), folder / "simia")
    shutil.copytree(Path(__file__).parent / "inside", room / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(folder)


MOST_BYTES, MOST_FILES = 1 << 30, 20_000


def copy_pack(pack: Path, made: Path, gone: set[str]) -> None:
    """Copy a pack so that anybody can read it, without its parts `gone`. Raises `UserError` for a file that cannot be read, and for a
    pack that is too large to be copied; nothing has been written then.

    Folders of version control and backups of editors are left out: they hold older copies of what is hidden.
    Links stay links: what they lead to outside the pack is not the pack's to show. Sockets, pipes and devices are left out.
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
    """Raise `UserError` where a copy would be too large. A sparse file counts with the bytes that its copy would take."""
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


def holds_leftovers(pack: Path) -> bool:
    """Whether anything in the pack's folder is left out of copies; then the folder itself must not be shown."""
    return any(is_leftover(name) for _, folders, files in os.walk(pack) for name in (*folders, *files))


def is_readable_by_all(path: Path) -> bool:
    """Check whether all users may read it; links are not followed. Sockets, pipes and devices are never shown."""
    need = 0o005 if path.is_dir() else 0o004
    return path.lstat().st_mode & need == need and is_ordinary(path)


def is_ordinary(path: Path) -> bool:
    """Whether it is a file, a folder or a link."""
    return not describe_file_kind(path.lstat().st_mode)


@functools.cache
def find_extra_packages() -> str | None:
    """The folder of our own packages, where the interpreter would not look by itself (a user's site, a PYTHONPATH)."""
    import pydantic

    folder = str(Path(pydantic.__file__).parent.parent)
    return None if folder.startswith(sys.prefix) else folder


def find_parts(pack: Path, names: set[str]) -> set[str]:
    """What these names are in the pack, however they were written, and what they lead to there."""
    found = set()
    for name in names:
        path = Path(os.path.normpath(pack / name))
        for each in (path, path.resolve()):
            if each.exists() and each.is_relative_to(pack) and each != pack:
                found.add(str(each.relative_to(pack)))
    return found
