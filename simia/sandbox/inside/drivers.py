"""How the worker speaks to a pack's code: the convention of `simia.kit`, or a world that brings its own methods.

A `Loaded` pack is made once in the zygote; each episode is a `Driver` of it. Of the convention the driver holds a
pydantic state; what it copies, it copies as JSON, for which `validate(dump(s)) == s` must hold.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import types
from datetime import datetime
from pathlib import Path
from typing import Any

from simia.sandbox.inside.convention import KitDriver, ToolRefusal
from simia.sandbox.inside.files import FileDriver
from simia.state import merge_patch

JSON = Any
EVERY, BYTES_A_WRITE = 16, 16_384  # repeating a write costs about what copying so many bytes does
Containers = (dict, list, set, bytearray)


class LoadedPack:
    """A pack's code and the state it starts from. `isolated`: each episode has a process of its own, made by a fork of this one."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self.folder, self.spec = folder, spec
        self.root: Path | None = Path(spec["root"]) if spec.get("root") else None
        self.module = load_module(folder / spec["code"], "pack_tools")
        self.object: Any = getattr(self.module, spec["object"], None)
        if self.object is None:
            raise LookupError(f"{spec['code']} has no class {spec['object']!r}")
        self.names: dict[str, dict[str, bool]] = {}
        self.of_files = hasattr(self.object, "begin") and hasattr(self.object, "describe")
        self.by_convention = self.of_files or (hasattr(self.object, "begin") and hasattr(self.object, "State"))
        self.base: JSON = {}
        if spec.get("state") and not self.of_files:
            self.base = json.loads((folder / spec["state"]).read_bytes())
        self.template: Any = None
        self.pristine: JSON = None
        if self.by_convention:
            self.names = find_marked_tools(self.object)
        if self.of_files:
            self.driver(True)  # says at once what is missing
        elif self.by_convention:
            self.fresh = has_mutable_globals(self.module)
            self.template = self.object.State.model_validate(self.base)
            self.pristine = self.template.model_dump(mode="json")  # of an untouched state: defaults filled in
        else:
            self.template = self.object(folder) if self.root is None else self.object(folder, self.root)
            self.pristine = self.template.dump() if self.root is None else None

    def driver(self, isolated: bool) -> StateDriver | FileDriver | ForeignDriver:
        if self.of_files:
            return FileDriver(self)
        return StateDriver(self, isolated) if self.by_convention else ForeignDriver(self, isolated)


class StateDriver(KitDriver):
    """An episode by the convention of `simia.kit`."""

    every, bytes_a_write = EVERY, BYTES_A_WRITE
    loaded: LoadedPack

    def __init__(self, loaded: LoadedPack, isolated: bool) -> None:
        self.loaded, self.isolated = loaded, isolated
        self.initial: JSON = None
        self.tools: Any = None

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        loaded = self.loaded
        unknown = initial.keys() - {"patch", "state"}
        if unknown:
            raise ValueError(f"initial has {sorted(unknown)}: it is {{patch: …}} or {{state: …}}")
        model = loaded.object.State
        if not initial:
            self.initial = loaded.pristine
            # The process is ours alone and this object still pristine: no copy at all.
            state = loaded.template if self.isolated else model.model_validate(loaded.base)
        else:
            start = initial.get("state", loaded.base)
            state = model.model_validate(merge_patch(start, initial.get("patch", {})))
            self.initial = state.model_dump(mode="json")
        maker = renew_class(loaded.module, loaded.object) if loaded.fresh and not self.isolated else loaded.object
        self.tools = maker(state)
        self.tools._seed = str(seed)
        self.tools._start = datetime.fromisoformat(loaded.spec.get("clock") or "2025-01-01T00:00:00")

    def dump(self) -> JSON:
        return self.tools.state.model_dump(mode="json")

    def freeze(self) -> bytes:
        return str(self.tools.state.model_dump_json()).encode()

    def thaw(self, frozen: bytes) -> None:
        self.tools.state = self.loaded.object.State.model_validate_json(frozen)

    def restore(self, state: JSON) -> None:
        self.tools.state = self.loaded.object.State.model_validate(state)

    def beginning(self) -> JSON:
        """The state at the start of the episode."""
        return self.initial

    def begin_again(self) -> None:
        """Back to it."""
        self.restore(self.initial)

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> Any:
        raise ValueError("a world by the convention has its checks in a file of their own")


class ForeignDriver:
    """An episode of a world that brings the methods itself (see docs/packs.md); one a process."""

    every, bytes_a_write = EVERY, BYTES_A_WRITE

    def __init__(self, loaded: LoadedPack, isolated: bool) -> None:
        if not isolated:
            raise ValueError("a world with methods of its own needs `isolation: process`")
        self.world, self._pristine = loaded.template, loaded.pristine
        self.known: dict[str, dict[str, bool]] = self.world.tools()
        self.initial: JSON = None
        self._start: tuple[dict[str, Any], int] = ({}, 0)

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        self._start = (initial, seed)
        self.world.reset(initial, seed)
        self.initial = None if initial else self._pristine

    @property
    def ended(self) -> bool:
        return getattr(self.world, "ended", False) is True

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name not in self.known.get(by, {}):
            raise ToolRefusal(f"there is no tool {name!r}")
        return self.world.call(by, name, arguments, index)

    def dump(self) -> JSON:
        return self.world.dump()

    def freeze(self) -> bytes:
        return json.dumps(self.world.dump()).encode()

    def thaw(self, frozen: bytes) -> None:
        self.world.restore(json.loads(frozen))

    def restore(self, state: JSON) -> None:
        self.world.restore(state)

    def begin_again(self) -> None:
        self.world.reset(*self._start)

    def beginning(self) -> JSON:
        """The world says it (`initial`), or is asked once more for its start, beside the present one."""
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


def load_module(path: Path, name: str) -> types.ModuleType:
    """A pack's file as a module. Other files of the pack can be imported beside it."""
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def find_marked_tools(cls: type) -> dict[str, dict[str, bool]]:
    """By whom → tool → whether it writes, for the methods that are marked as tools."""
    found: dict[str, dict[str, bool]] = {"agent": {}, "user": {}}
    for name in dir(cls):
        mark = getattr(getattr(cls, name, None), "__simia_tool__", None)
        if mark:
            found[mark[0]][name] = mark[1]
    return found


def has_mutable_globals(module: types.ModuleType) -> bool:
    return any(isinstance(v, Containers) for k, v in vars(module).items() if not k.startswith("__"))


def renew_class(module: types.ModuleType, cls: type) -> type:
    """The class with its functions bound to globals of their own: what one episode leaves in them, no other sees."""
    own = dict(vars(module))
    for key, value in own.items():
        if isinstance(value, Containers) and not key.startswith("__"):
            own[key] = copy.deepcopy(value)
        elif isinstance(value, types.FunctionType) and value.__globals__ is vars(module):
            own[key] = bind_globals(value, own)
    methods = {
        name: bind_globals(value, own)
        for each in reversed(cls.__mro__)
        if each.__module__ == module.__name__
        for name, value in vars(each).items()
        if isinstance(value, types.FunctionType)
    }
    return type(cls.__name__, (cls,), {"__module__": module.__name__, **methods})


def bind_globals(function: types.FunctionType, own: dict[str, Any]) -> types.FunctionType:
    made = types.FunctionType(function.__code__, own, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made
