"""The files of an episode's private folder: read them, write them back, convert them to JSON and from it.

To restore a state, only files that differ are written. The folder may be the whole root: file systems that are mounted below it are not
part of the state, except for those that the episode may write to (`parents`). In JSON a file is its text, or its bytes in base64 together
with the content that the world reads in them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

JSON = Any
Raw = tuple[str, int, bytes]  # kind (file, folder, link, fifo, other), mode, bytes or the link's target
Files = dict[str, Raw]
FILE, FOLDER = 0o644, 0o755
MOST_FILES = 20_000
MOST_LINKS = 40
BYTES = "bytes:"


# -- JSON ---------------------------------------------------------------------------------------------------------


def files_to_json(files: Files, describe: Callable[[str, bytes], JSON]) -> dict[str, JSON]:
    """Convert files to JSON. `describe` returns the content of a binary file, by its name and bytes; None for no content."""
    found: dict[str, JSON] = {}
    for name, (kind, mode, data) in sorted(files.items()):
        key = encode_name(name)
        shown = {} if mode == {"folder": FOLDER, "file": FILE}.get(kind) else {"mode": mode}
        if kind == "folder":
            found[f"{key}/"] = {"folder": True, **shown}
        elif kind == "link":
            found[key] = {"link": encode_name(os.fsdecode(data))}
        elif kind == "file":
            found[key] = {**data_to_json(name, data, describe), **shown}
        else:
            found[key] = {"other": kind, **shown}
    return found


def data_to_json(name: str, data: bytes, describe: Callable[[str, bytes], JSON]) -> dict[str, JSON]:
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return {"text": data.decode()}
    content = describe(name, data)
    return {"base64": base64.b64encode(data).decode(), **({} if content is None else {"content": content})}


def files_from_json(rows: Mapping[str, dict[str, JSON]]) -> Files:
    return {decode_name(name.rstrip("/")): read_entry(entry) for name, entry in rows.items()}


def read_entry(entry: dict[str, JSON]) -> Raw:
    """Convert one file of a task or a state from JSON."""
    if entry.get("folder"):
        return "folder", entry.get("mode", FOLDER), b""
    if "link" in entry:
        return "link", 0, os.fsencode(decode_name(str(entry["link"])))
    if "text" in entry:
        return "file", entry.get("mode", FILE), str(entry["text"]).encode()
    if "base64" in entry:
        return "file", entry.get("mode", FILE), base64.b64decode(entry["base64"])
    return str(entry.get("other", "other")), entry.get("mode", FILE), b""


def encode_name(name: str) -> str:
    """Return a name that JSON can contain; one that is not UTF-8 as its bytes in hexadecimal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{BYTES}{os.fsencode(name).hex()}"
    return name


def decode_name(name: str) -> str:
    return os.fsdecode(bytes.fromhex(name.removeprefix(BYTES))) if name.startswith(BYTES) else name


def collect_files(pack: Path, folders: Iterable[str | None], entries: Mapping[str, dict[str, JSON] | None]) -> Files:
    """Collect the files of the pack's folders, then a task's entries: name → file, or None to remove it and all below it."""
    found: Files = {}
    for folder in filter(None, folders):
        found |= read_files(resolve_pack_folder(pack, folder), modes=False)
    change_files(found, entries)
    return found


def change_files(files: Files, entries: Mapping[str, dict[str, JSON] | None]) -> None:
    """Add a task's entries to files; None removes a file, or a folder and all below it."""
    for name, entry in entries.items():
        if entry is None or not entry.get("folder"):
            for gone in [each for each in files if each == name or each.startswith(name.rstrip("/") + "/")]:
                del files[gone]
        if entry is not None:
            files[name.rstrip("/")] = read_entry(entry)


def resolve_pack_folder(pack: Path, name: str) -> Path:
    """Return a folder of the pack. Raises `ValueError` for one that is missing or lies elsewhere."""
    found = (pack / name).resolve()
    if not found.is_dir() or not found.is_relative_to(pack.resolve()):
        raise ValueError(f"the pack has no folder {name!r}")
    return found


# -- the folder ---------------------------------------------------------------------------------------------------


def read_files(root: Path, *, modes: bool = True, parents: Sequence[Path] = ()) -> Files:
    """Read everything below `root` on its own file system and those of `parents`. A folder is listed only if it is empty or has an unusual
    mode. `modes` False: of a file's mode keep only whether it is executable, as in a pack."""
    found: Files = {}
    with walk_files(root, parents) as (rows, empty):
        for name, path, status in rows:
            with contextlib.suppress(FileNotFoundError):  # a program that still runs may have removed it
                entry = read_path(path, status, modes)
                if entry[0] != "folder" or name in empty or entry[1] != FOLDER:
                    found[name] = entry
    return found


@contextlib.contextmanager
def walk_files(
    root: Path, parents: Sequence[Path] = (), *, close: bool = True
) -> Iterator[tuple[list[tuple[str, Path, os.stat_result]], set[str]]]:
    """List everything below a folder, folders before their content, as (name, path, status); and the names of empty folders.
    Folders without permission are made readable meanwhile, and get their mode back unless `close` is false."""
    devices = {folder.lstat().st_dev for folder in (root, *parents)}
    rows: list[tuple[str, Path, os.stat_result]] = []
    empty: set[str] = set()
    opened: list[tuple[Path, int]] = []
    stack = [("", root)]
    try:
        while stack:
            prefix, folder = stack.pop()
            mode = stat.S_IMODE(folder.lstat().st_mode)
            if mode & 0o700 != 0o700 and folder != root:
                folder.chmod(mode | 0o700)
                opened.append((folder, mode))
            names = sorted(os.listdir(folder))
            if not names:
                empty.add(prefix)
            for name in names:
                path, inner = folder / name, f"{prefix}/{name}" if prefix else name
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if status.st_dev in devices:
                        rows.append((inner, path, status))
                        if stat.S_ISDIR(status.st_mode):
                            stack.append((inner, path))
            if len(rows) > MOST_FILES:
                raise ValueError(f"more than {MOST_FILES:,} files are there: a state is not to be larger")
        yield rows, empty
    finally:
        for folder, mode in reversed(opened) if close else ():
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(mode)


def read_path(path: Path, status: os.stat_result, modes: bool = True) -> Raw:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return "folder", mode if modes else FOLDER, b""
    if stat.S_ISLNK(status.st_mode):
        return "link", 0, os.fsencode(os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return "fifo" if stat.S_ISFIFO(status.st_mode) else "other", mode, b""
    try:
        data = path.read_bytes()
    except PermissionError:
        path.chmod(0o600)
        data = path.read_bytes()
        path.chmod(mode)
    if not modes:  # the other bits depend on how the pack was unpacked
        mode = 0o755 if mode & 0o100 else FILE
    return "file", mode, data


def remove_files(root: Path, keep: Files, parents: Sequence[Path] = ()) -> None:
    """Remove files that `keep` does not name, and folders that are empty then. Folders are left open."""
    folders = {str(parent) for name in keep for parent in Path(name).parents}
    folders |= {name for name, each in keep.items() if each[0] == "folder"}
    with walk_files(root, parents, close=False) as (rows, _):
        for name, path, status in reversed(rows):
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(status.st_mode):
                    if name not in keep:
                        path.unlink()
                elif name not in folders:
                    with contextlib.suppress(OSError):  # it holds a mount
                        path.rmdir()


def write_files(root: Path, files: Files) -> None:
    """Write files that differ. A file is replaced, not changed, since two names may share it. Modes of folders come last."""
    modes: dict[Path, int] = {}
    for name, (kind, mode, data) in sorted(files.items()):
        path = root / name
        if not path.parent.resolve().is_relative_to(root.resolve()):
            raise ValueError(f"{name!r} is outside of the folder")
        for parent in reversed(path.relative_to(root).parents[:-1]):
            made = root / parent
            if made.is_symlink() or (made.exists() and not made.is_dir()):
                made.unlink()
            made.mkdir(exist_ok=True)
            modes.setdefault(made, FOLDER)
        if kind == "folder":
            modes[path] = mode
        before = path.lstat() if os.path.lexists(path) else None
        if before is not None and not is_wanted_file(path, before, kind, data):
            shutil.rmtree(path) if stat.S_ISDIR(before.st_mode) else path.unlink()
            before = None
        if before is None:
            if kind == "folder":
                path.mkdir()
            elif kind == "link":
                os.symlink(os.fsdecode(data), path)
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "file":
                path.write_bytes(data)
        if kind in ("file", "fifo"):
            path.chmod(mode)
    for path, mode in sorted(modes.items(), key=lambda pair: len(pair[0].parts), reverse=True):
        path.chmod(mode)


def is_wanted_file(path: Path, status: os.stat_result, kind: str, data: bytes) -> bool:
    """Check whether a path is what is wanted, except for its mode."""
    if kind == "other" or (kind == "file" and status.st_nlink > 1):
        return False
    found, _, held = read_path(path, status)
    return (found, held) == (kind, data)


@contextlib.contextmanager
def write_temporary_files(files: Files) -> Iterator[Path]:
    """Write files into a temporary folder. It is not part of the state, even if the state is the whole root."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="before-", dir=place))
    try:
        write_files(folder, files)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- links that an episode left -----------------------------------------------------------------------------------


def leads_to(link: Path, hidden: Sequence[str]) -> bool:
    """Check whether a path leads into one of the folders, to one above them, or through more links than the kernel follows.

    Unlike `os.path.realpath` it checks each link on the way: links of /proc lead to different places for different processes.
    """
    places = [os.path.normpath(folder) for folder in hidden]
    place, rest = "/", [*reversed(link.parts[1:])]
    followed = 0
    while rest:
        part = rest.pop()
        place = os.path.dirname(place) if part == ".." else os.path.join(place, part)
        if any(place == folder or place.startswith(f"{folder}/") for folder in places):
            return True
        if os.path.islink(place):
            followed += 1
            if followed > MOST_LINKS:
                return True
            target = os.readlink(place)
            place = "/" if target.startswith("/") else os.path.dirname(place)
            rest += [each for each in reversed(target.split("/")) if each not in ("", ".")]
    return any(folder.startswith(place.rstrip("/") + "/") for folder in places)


def remove_link(link: Path) -> None:
    """Remove a link, also from a folder without permission; the folder keeps its mode."""
    mode = stat.S_IMODE(link.parent.stat().st_mode)
    link.parent.chmod(mode | 0o300)
    try:
        link.unlink()
    finally:
        link.parent.chmod(mode)
