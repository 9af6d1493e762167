"""Drivers of one episode, by the kind of the pack's world: `simia.kit.Tools`, `simia.kit.FileTools`, or a class with its own methods.

The state of a `Tools` is copied as JSON, for which `validate(dump(s)) == s` must hold. The state of a `FileTools` is the files
in its folder, and its `memory`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import marshal
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from simia.kit import kill_processes, list_processes
from simia.sandbox.inside import files
from simia.sandbox.inside.loading import LoadedPack, renew_class
from simia.state import merge_patch

JSON = Any
LIB = str(Path(__file__).resolve().parents[3])


class KitDriver:
    """An episode whose world is an object with marked methods."""

    tools: Any

    def __init__(self, loaded: LoadedPack) -> None:
        self.loaded = loaded
        self.initial: JSON = None

    def _make_tools(self, maker: Any, argument: Any, seed: int) -> None:
        self.tools = maker(argument)
        self.tools._seed = str(seed)
        self.tools._start = datetime.fromisoformat(self.loaded.spec.get("clock") or "2025-01-01T00:00:00")

    @property
    def ended(self) -> bool:
        return bool(self.tools.ended)

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        self.tools.begin(index, by)
        return to_json_value(getattr(self.tools, name)(**arguments))


class StateDriver(KitDriver):
    """An episode of a `simia.kit.Tools`."""

    every, bytes_a_write = 16, 16_384  # repeating one write costs about as much as copying this many bytes

    def __init__(self, loaded: LoadedPack, isolated: bool) -> None:
        super().__init__(loaded)
        self.isolated = isolated

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        loaded = self.loaded
        if unknown := initial.keys() - {"patch", "state"}:
            raise ValueError(f"initial has {sorted(unknown)}: it is {{patch: …}} or {{state: …}}")
        model = loaded.object.State
        if not initial:
            self.initial = loaded.pristine
            # An isolated process has no other episode: its untouched object needs no copy.
            state = loaded.template if self.isolated else model.model_validate(loaded.base)
        else:
            start = initial.get("state", loaded.base)
            state = model.model_validate(merge_patch(start, initial.get("patch", {})))
            self.initial = state.model_dump(mode="json")
        fresh = loaded.fresh and not self.isolated
        self._make_tools(renew_class(loaded.module, loaded.object) if fresh else loaded.object, state, seed)

    def dump(self) -> JSON:
        return self.tools.state.model_dump(mode="json")

    def freeze(self) -> bytes:
        return str(self.tools.state.model_dump_json()).encode()

    def thaw(self, frozen: bytes) -> None:
        self.tools.state = self.loaded.object.State.model_validate_json(frozen)

    def restore(self, state: JSON) -> None:
        self.tools.state = self.loaded.object.State.model_validate(state)

    def beginning(self) -> JSON:
        """Return the state at the start of the episode."""
        return self.initial

    def begin_again(self) -> None:
        """Restore the state at the start of the episode."""
        self.restore(self.initial)

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> Any:
        raise ValueError("a world by the convention has its checks in a file of their own")


class FileDriver(KitDriver):
    """An episode of a `simia.kit.FileTools`."""

    every, bytes_a_write = 0, 4 << 20  # reading a small folder costs less than repeating a call

    def __init__(self, loaded: LoadedPack) -> None:
        super().__init__(loaded)
        assert loaded.root is not None
        self.root = loaded.root
        self._parents = tuple(map(Path, loaded.spec.get("parents", ())))
        self._start: tuple[files.Files, dict[str, Any]] = ({}, {})
        self._running: set[int] | None = None
        self._contents: dict[bytes, JSON] = {}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        whole = initial.get("state") or {}
        folders = () if whole else (self.loaded.spec.get("state"), initial.get("folder"))
        wanted = files.collect_files(self.loaded.folder, folders, {}) | files.files_from_json(whole.get("files", {}))
        files.change_files(wanted, initial.get("files") or {})
        if self.root != Path("/") or whole:  # in a whole root, files that the sandbox itself created stay
            files.remove_files(self.root, wanted, self._parents)
        files.write_files(self.root, wanted)
        self._make_tools(self.loaded.object, self.root, seed)
        self.tools.begin(0, "agent")
        if whole:
            self.tools.memory = copy_memory(whole.get("memory", {}))
        else:
            self.tools.start({name: value for name, value in initial.items() if name not in ("folder", "files")})
        self.tools.ready()
        self._start, self.initial = (self._files(), copy_memory(self.tools.memory)), None

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        # Without a sandbox, the visible processes are those of the whole machine.
        self._running = list_processes() if self.loaded.spec.get("sealed") else None
        return super().call(by, name, arguments, index)

    def dump(self) -> JSON:
        return self._to_json(self._files(), self.tools.memory, self.root)

    def beginning(self) -> JSON:
        """Return the state at the start of the episode."""
        if self.initial is None:
            with files.write_temporary_files(self._start[0]) as folder:
                self.initial = self._to_json(*self._start, folder)
        return self.initial

    def begin_again(self) -> None:
        """Restore the state at the start of the episode."""
        self._set(*self._start)

    def freeze(self) -> bytes:
        return marshal.dumps((self._files(), json.dumps(self.tools.memory)))

    def thaw(self, frozen: bytes) -> None:
        found, memory = marshal.loads(frozen)
        self._set(found, json.loads(memory))

    def restore(self, state: JSON) -> None:
        self._set(files.files_from_json(state["files"]), state.get("memory", {}))

    def remove_links(self) -> None:
        """Before checks, remove links that the episode made to files which only checks can read. Links of its start stay."""
        started = self._start[0]
        hidden = (str(self.loaded.folder), LIB, "/proc")
        for name, each in self._files().items():
            if each[0] == "link" and started.get(name) != each and files.leads_to(self.root / name, hidden):
                files.remove_link(self.root / name)

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> Any:
        with contextlib.ExitStack() as stack:
            folder = files.write_temporary_files(self._start[0])
            self.tools._before = functools.cache(lambda: stack.enter_context(folder))
            return bool(getattr(self.tools, f"check_{name}")(**arguments))

    def _files(self) -> files.Files:
        return files.read_files(self.root, parents=self._parents)

    def _set(self, wanted: files.Files, memory: dict[str, Any]) -> None:
        if self._running is not None:  # programs that a refused call left running would continue to write
            kill_processes(list_processes() - self._running)
        files.remove_files(self.root, wanted, self._parents)
        files.write_files(self.root, wanted)
        self.tools.memory = copy_memory(memory)
        self.tools.ready()

    def _to_json(self, found: files.Files, memory: dict[str, Any], folder: Path) -> JSON:
        def describe(name: str, data: bytes) -> JSON:
            """Return the content that the world reads in a file; it reads equal bytes with equal suffix only once."""
            path = folder / name
            mark = hashlib.blake2b(data + path.suffix.encode(), digest_size=16).digest()
            if mark not in self._contents:
                try:
                    self._contents[mark] = json.loads(json.dumps(self.tools.describe(path), allow_nan=False))
                except Exception as error:
                    self._contents[mark] = {"unreadable": type(error).__name__}
            return self._contents[mark]

        return {"files": files.files_to_json(found, describe), "memory": copy_memory(memory)}


class ForeignDriver:
    """An episode of a world that brings the methods itself (see docs/packs.md), one per process."""

    every, bytes_a_write = StateDriver.every, StateDriver.bytes_a_write

    def __init__(self, loaded: LoadedPack, isolated: bool) -> None:
        if not isolated:
            raise ValueError("a world with methods of its own needs `isolation: process`")
        self.world, self._pristine = loaded.template, loaded.pristine
        self.initial: JSON = None
        self._start: tuple[dict[str, Any], int] = ({}, 0)
        self.call, self.dump, self.restore = self.world.call, self.world.dump, self.world.restore

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        self._start = (initial, seed)
        self.world.reset(initial, seed)
        self.initial = None if initial else self._pristine

    @property
    def ended(self) -> bool:
        return getattr(self.world, "ended", False) is True

    def freeze(self) -> bytes:
        return json.dumps(self.dump()).encode()

    def thaw(self, frozen: bytes) -> None:
        self.restore(json.loads(frozen))

    def begin_again(self) -> None:
        self.world.reset(*self._start)

    def beginning(self) -> JSON:
        """Return the state at the start of the episode: from the world's `initial`, or by a reset between two copies of its state."""
        if self.initial is None and hasattr(self.world, "initial"):
            self.initial = self.world.initial()
        if self.initial is None:
            now = self.freeze()
            self.begin_again()
            self.initial = self.dump()
            self.thaw(now)
        return self.initial

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> Any:
        return self.world.check(name, by, arguments)


Driver = StateDriver | FileDriver | ForeignDriver


def make_driver(loaded: LoadedPack, isolated: bool) -> Driver:
    """Make the driver of an episode. `isolated`: the episode has a process of its own."""
    if loaded.of_files:
        return FileDriver(loaded)
    return StateDriver(loaded, isolated) if loaded.by_convention else ForeignDriver(loaded, isolated)


def copy_memory(memory: dict[str, Any]) -> dict[str, Any]:
    """Copy a memory as it comes back from JSON. Raises `TypeError` for what JSON cannot hold."""
    found: dict[str, Any] = json.loads(json.dumps(memory))
    return found


def to_json_value(value: Any) -> JSON:
    """Convert a tool's result to a JSON value."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, dict):
        return {str(k): to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a tool returned {value}, which JSON cannot hold")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"a tool returned {type(value).__name__}, which is not JSON")
