"""The driver of a world of files: an episode's state is what lies in its private folder, and a little memory beside it.

To set a state back is to lay the files out again: only those that differ are written. What other file systems are mounted
below the folder is none of the state, so the folder may be the whole root; the ones that the episode may write to (`parents`) are. As JSON a file is its text, or its bytes in
base64 with what the world reads in them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import marshal
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from simia.sandbox.inside.convention import KitDriver, PackCode
from simia.sandbox.inside.links import LIB, leads_to, remove_link

JSON = Any
Raw = tuple[str, int, bytes]  # kind (file, folder, link, other), mode, bytes or the link's target
Files = dict[str, Raw]
FILE, FOLDER = 0o644, 0o755
MOST_FILES = 20_000
BYTES = "bytes:"


class FileDriver(KitDriver):
    """An episode of a `simia.kit.FileTools`."""

    every, bytes_a_write = 0, 4 << 20  # reading a small folder costs less than repeating a call

    def __init__(self, loaded: PackCode) -> None:
        if loaded.root is None:
            raise ValueError("a world of files needs `isolation: sandbox`")
        self.loaded, self.root = loaded, loaded.root
        self._parents = tuple(map(Path, loaded.spec.get("parents", ())))
        self.tools: Any = None
        self._start: tuple[Files, dict[str, Any]] = ({}, {})
        self._initial: JSON = None
        self._running: set[int] | None = None
        self._read: dict[bytes, JSON] = {}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        wanted: Files = {}
        whole = initial.get("state") or {}
        wanted |= {decode_name(name.rstrip("/")): read_entry(entry) for name, entry in whole.get("files", {}).items()}
        for folder in () if whole else (self.loaded.spec.get("state"), initial.get("folder")):
            if folder:
                wanted |= read_files(resolve_pack_folder(self.loaded.folder, folder), modes=False)
        for name, entry in (initial.get("files") or {}).items():
            if entry is None:
                for gone in [each for each in wanted if each == name or each.startswith(name.rstrip("/") + "/")]:
                    del wanted[gone]
            else:
                wanted[name.rstrip("/")] = read_entry(entry)
        if self.root != Path("/") or whole:  # a whole root keeps what the sandbox itself laid there
            remove_files(self.root, wanted, self._parents)
        write_files(self.root, wanted)
        self.tools = self.loaded.object(self.root)
        self.tools._seed = str(seed)
        self.tools._start = datetime.fromisoformat(self.loaded.spec.get("clock") or "2025-01-01T00:00:00")
        self.tools.begin(0, "agent")
        if whole:
            self.tools.memory = copy_memory(whole.get("memory", {}))
        else:
            self.tools.start({name: value for name, value in initial.items() if name not in ("folder", "files")})
        self.tools.ready()
        self._start, self._initial = (self._files(), copy_memory(self.tools.memory)), None

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        self._running = (
            list_processes() if self.loaded.spec.get("sealed") else None
        )  # else they are the whole machine's
        return super().call(by, name, arguments, index)

    def dump(self) -> JSON:
        return self._as_json(self._files(), self.tools.memory, self.root)

    def beginning(self) -> JSON:
        """The state at the start, as JSON. What a file says is read once for the same bytes."""
        if self._initial is None:
            files, memory = self._start
            with write_temporary_files(files) as folder:
                self._initial = self._as_json(files, memory, folder)
        return self._initial

    def begin_again(self) -> None:
        self._set(*self._start)

    def freeze(self) -> bytes:
        return marshal.dumps((self._files(), json.dumps(self.tools.memory)))

    def thaw(self, frozen: bytes) -> None:
        files, memory = marshal.loads(frozen)
        self._set(files, json.loads(memory))

    def restore(self, state: JSON) -> None:
        files = {decode_name(name.rstrip("/")): read_entry(entry) for name, entry in state["files"].items()}
        self._set(files, state.get("memory", {}))

    def remove_links(self) -> None:
        """Before checks: remove links of the episode to what only checks can read. Links that it started with stay."""
        started = self._start[0]
        hidden = (str(self.loaded.folder), LIB, "/proc")
        for name, each in self._files().items():
            if each[0] == "link" and started.get(name) != each and leads_to(self.root / name, hidden):
                remove_link(self.root / name)

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> Any:
        with write_temporary_files(self._start[0]) as folder:
            self.tools.before = folder
            return bool(getattr(self.tools, f"check_{name}")(**arguments))

    def _files(self) -> Files:
        return read_files(self.root, parents=self._parents)

    def _set(self, files: Files, memory: dict[str, Any]) -> None:
        if self._running is not None:  # what a refused call left running would go on writing
            kill_processes(list_processes() - self._running)
        remove_files(self.root, files, self._parents)
        write_files(self.root, files)
        self.tools.memory = copy_memory(memory)
        self.tools.ready()

    def _as_json(self, files: Files, memory: dict[str, Any], folder: Path) -> JSON:
        found: dict[str, JSON] = {}
        for name, each in sorted(files.items()):
            kind, mode, data = each
            if kind == "folder":
                found[f"{encode_name(name)}/"] = {"folder": True, **({} if mode == FOLDER else {"mode": mode})}
            elif kind == "link":
                found[encode_name(name)] = {"link": encode_name(os.fsdecode(data))}
            elif kind == "file":
                found[encode_name(name)] = {
                    **self._content(data, folder / name),
                    **({} if mode == FILE else {"mode": mode}),
                }
            else:
                found[encode_name(name)] = {"other": kind, "mode": mode}
        return {"files": found, "memory": copy_memory(memory)}

    def _content(self, data: bytes, path: Path) -> dict[str, JSON]:
        with contextlib.suppress(UnicodeDecodeError):
            if b"\0" not in data:
                return {"text": data.decode()}
        mark = hashlib.blake2b(data + path.suffix.encode(), digest_size=16).digest()
        if mark not in self._read:
            try:
                self._read[mark] = json.loads(json.dumps(self.tools.describe(path), allow_nan=False))
            except Exception as error:
                self._read[mark] = {"unreadable": type(error).__name__}
        content = self._read[mark]
        return {"base64": base64.b64encode(data).decode(), **({} if content is None else {"content": content})}


def copy_memory(memory: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from JSON. Raises `TypeError` for what is none."""
    found: dict[str, Any] = json.loads(json.dumps(memory))
    return found


def list_processes() -> set[int]:
    """Those of the sandbox, where it shows them."""
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


def kill_processes(pids: set[int]) -> None:
    for pid in pids - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def read_entry(entry: dict[str, JSON]) -> Raw:
    """A file as it stands in a task or a state."""
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
    """A name as JSON can hold it; one that is no UTF-8 as its bytes in hexadecimal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{BYTES}{os.fsencode(name).hex()}"
    return name


def decode_name(name: str) -> str:
    """The name that was shown."""
    return os.fsdecode(bytes.fromhex(name.removeprefix(BYTES))) if name.startswith(BYTES) else name


def resolve_pack_folder(pack: Path, name: str) -> Path:
    """A folder of the pack. Raises `ValueError` for one that is not there or lies elsewhere."""
    found = (pack / name).resolve()
    if not found.is_dir() or not found.is_relative_to(pack.resolve()):
        raise ValueError(f"the pack has no folder {name!r}")
    return found


def read_files(root: Path, *, modes: bool = True, parents: Sequence[Path] = ()) -> Files:
    """Everything below `root` on its own file system and those of `parents`. A folder is listed only when it is empty or its mode
    is unusual."""
    found: Files = {}
    with walk_files(root, parents) as rows:
        for inner, path, status, empty in rows:
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                if empty or (modes and mode != FOLDER):
                    found[inner] = ("folder", mode if modes else FOLDER, b"")
                continue
            with contextlib.suppress(FileNotFoundError):  # a program that still runs may have removed it
                found[inner] = read_file_entry(path, status, modes)
    return found


@contextlib.contextmanager
def walk_files(
    root: Path, parents: Sequence[Path] = (), *, close: bool = True
) -> Iterator[list[tuple[str, Path, os.stat_result, bool]]]:
    """All that is below, folders before what they hold: (name, path, status, whether it is an empty folder). Folders that we may
    not enter are opened meanwhile, and closed again unless `close` is false."""
    devices = {folder.lstat().st_dev for folder in (root, *parents)}
    rows: list[tuple[str, Path, os.stat_result, bool]] = []
    opened: list[tuple[Path, int]] = []
    stack = [("", root)]
    try:
        while stack:
            prefix, folder = stack.pop()
            mode = stat.S_IMODE(folder.lstat().st_mode)
            if mode & 0o700 != 0o700 and folder != root:
                folder.chmod(mode | 0o700)
                opened.append((folder, mode))
            for name in sorted(os.listdir(folder)):
                path, inner = folder / name, f"{prefix}/{name}" if prefix else name
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if status.st_dev not in devices:
                        continue
                    inside = stat.S_ISDIR(status.st_mode)
                    if inside:
                        stack.append((inner, path))
                    rows.append((inner, path, status, inside and not holds_anything(path, status)))
            if len(rows) > MOST_FILES:
                raise ValueError(f"more than {MOST_FILES:,} files are there: a state is not to be larger")
        yield rows
    finally:
        for folder, mode in reversed(opened) if close else ():
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(mode)


def holds_anything(folder: Path, status: os.stat_result) -> bool:
    """Whether a folder holds anything."""
    mode = stat.S_IMODE(status.st_mode)
    try:
        return bool(os.listdir(folder))
    except PermissionError:
        folder.chmod(mode | 0o700)
        try:
            return bool(os.listdir(folder))
        finally:
            folder.chmod(mode)


def read_file_entry(path: Path, status: os.stat_result, modes: bool) -> Raw:
    mode = stat.S_IMODE(status.st_mode)
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
    if not modes:  # of a pack: who unpacked it decided about modes, but for what can be run
        mode = 0o755 if mode & 0o100 else FILE
    return "file", mode, data


def remove_files(root: Path, keep: Files, parents: Sequence[Path] = ()) -> None:
    """Remove what is not to stay: files that `keep` does not name, and folders that it leaves empty. Folders are left open."""
    folders = {str(parent) for name in keep for parent in Path(name).parents} | {
        name for name, each in keep.items() if each[0] == "folder"
    }
    with walk_files(root, parents, close=False) as rows:
        for inner, path, status, _ in reversed(rows):
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(status.st_mode):
                    if inner not in keep:
                        path.unlink()
                elif inner not in folders:
                    with contextlib.suppress(OSError):  # it holds a mount
                        path.rmdir()


def write_files(root: Path, files: Files) -> None:
    """Write what differs; a file never into another one's place, since two names may share it. Modes of folders come last."""
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
    """Whether what is there is what is wanted, but for its mode."""
    mode = status.st_mode
    if kind == "folder":
        return stat.S_ISDIR(mode)
    if kind == "link":
        return stat.S_ISLNK(mode) and os.fsencode(os.readlink(path)) == data
    if kind == "fifo":
        return stat.S_ISFIFO(mode)
    return (
        kind == "file"
        and stat.S_ISREG(mode)
        and status.st_nlink == 1
        and read_file_entry(path, status, True)[2] == data
    )


@contextlib.contextmanager
def write_temporary_files(files: Files) -> Iterator[Path]:
    """The files in a folder of their own, for as long as they are looked at."""
    # No part of the state, also where that is the whole root.
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="before-", dir=room))
    try:
        write_files(folder, files)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
