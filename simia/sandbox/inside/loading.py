"""Load a pack's code: its module, its class of tools, and the state that its episodes start from."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

JSON = Any
Containers = (dict, list, set, bytearray)


class LoadedPack:
    """A pack's code, loaded once in the process that forks the workers: a subclass of a `simia.kit` class, or a world of another kind."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self.folder, self.spec = folder, spec
        self.root: Path | None = Path(spec["root"]) if spec.get("root") else None
        self.module = load_module(folder / spec["code"], "pack_tools")
        self.object: Any = getattr(self.module, spec["object"], None)
        if self.object is None:
            raise LookupError(f"{spec['code']} has no class {spec['object']!r}")
        self.of_files = hasattr(self.object, "begin") and hasattr(self.object, "describe")
        self.by_convention = self.of_files or (hasattr(self.object, "begin") and hasattr(self.object, "State"))
        if self.of_files and self.root is None:
            raise ValueError("a world of files needs `isolation: sandbox`")
        self.base: JSON = {}
        if spec.get("state") and not self.of_files:
            self.base = json.loads((folder / spec["state"]).read_bytes())
        self.template: Any = None
        self.pristine: JSON = None
        """The untouched state with defaults filled in."""
        if self.by_convention and not self.of_files:
            self.fresh = has_mutable_globals(self.module)
            self.template = self.object.State.model_validate(self.base)
            self.pristine = self.template.model_dump(mode="json")
        elif not self.by_convention:
            self.template = self.object(folder) if self.root is None else self.object(folder, self.root)
            if getattr(self.template, "clock", self) is None:
                self.template.clock = spec.get("clock")
            self.pristine = self.template.dump() if self.root is None else None
        self.tools: dict[str, dict[str, bool]] = (
            find_marked_tools(self.object) if self.by_convention else dict(self.template.tools())
        )
        """Caller → tool → whether it writes."""


def load_module(path: Path, name: str) -> types.ModuleType:
    """Import a file of a pack as a module. It can import the files beside it."""
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
    """Return caller → tool → whether it writes, for the methods that are marked as tools."""
    found: dict[str, dict[str, bool]] = {"agent": {}, "user": {}}
    for name in dir(cls):
        mark = getattr(getattr(cls, name, None), "__simia_tool__", None)
        if mark:
            found[mark[0]][name] = mark[1]
    return found


def has_mutable_globals(module: types.ModuleType) -> bool:
    return any(isinstance(v, Containers) for k, v in vars(module).items() if not k.startswith("__"))


def renew_class(module: types.ModuleType, cls: type) -> type:
    """Copy a class and bind its functions to new globals, so that an episode does not see what another one left in them."""
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
