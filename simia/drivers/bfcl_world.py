"""The driver of BFCL's multi-turn tasks: the API classes of the benchmark, unchanged, behind the methods that the sandbox calls.

It is copied into the imported pack as `tools.py` and runs with the interpreter of the "bfcl" environment: the standard library, mpmath,
and the pack's copy of the API classes under `code/`. Each episode is a fork of the process that loaded them.

The state names every public attribute of every object by its path, as BFCL compares objects attribute by attribute. A long text is
named by its hash. `calls` is the record of all calls, from which a state is restored: generators of random numbers are in no attribute.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import inspect
import json
import math
import sys
from pathlib import Path
from typing import Any

LONG = 200  # characters of a text that a state holds in full
SHOWN = 60
PARENT = "parent"  # of a directory: BFCL's comparison leaves it out


class BFCLRefusal(Exception):  # noqa: N818 - the tool's own word
    """BFCL's text for a call that raised."""

    __simia_refusal__ = True


class BFCLWorld:
    """The API classes that a task involves; the pack's `bfcl.json` names their modules."""

    rolls_back = False  # BFCL keeps what a call changed before it raised

    def __init__(self, pack: Path) -> None:
        layout = json.loads((pack / "bfcl.json").read_bytes())
        sys.path.insert(0, str(pack / "code"))
        self.classes: dict[str, type] = {
            name: getattr(importlib.import_module(f"{layout['package']}.{module}"), name)
            for name, module in layout["classes"].items()
        }
        self._given: dict[str, Any] = {}
        self._calls: list[list[Any]] = []
        self._objects: dict[str, Any] = {}
        self._start: dict[str, Any] = {}

    def tools(self) -> dict[str, dict[str, bool]]:
        """Every method counts as writing: also one that reads may use a random number, on which later results depend."""
        methods = [name for each in self.classes.values() for name in list_methods(each)]
        return {"agent": dict.fromkeys(methods, True), "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode: `initial` names the classes, the data of each, and whether BFCL's long context is loaded."""
        self._given, self._calls = initial, []
        self._objects = {}
        for name in initial.get("classes", []):
            made = self.classes[name]()
            if hasattr(made, "_load_scenario"):
                given = copy.deepcopy(initial.get("config", {}).get(name, {}))
                made._load_scenario(given, long_context=initial.get("long_context", False))
            self._objects[name] = made
        self._start = self.dump()

    def initial(self) -> dict[str, Any]:
        return self._start

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> str:
        """Return the text that BFCL gives the model. Raises `BFCLRefusal`."""
        owner = next((each for each in self._objects.values() if name in list_methods(type(each))), None)
        if owner is None:
            raise BFCLRefusal(f"Error during execution: name '{name}' is not defined")
        self._calls.append([name, copy.deepcopy(arguments)])
        try:
            return write_result(getattr(owner, name)(**arguments))
        except MemoryError:
            raise
        except Exception as error:
            raise BFCLRefusal(f"Error during execution: {error}") from None

    def dump(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: {} for name in self._objects}
        for name, each in self._objects.items():
            for attribute, value in public_attributes(each).items():
                name_values(value, attribute, found[name])
        return {**found, "calls": list(self._calls)}

    def restore(self, state: dict[str, Any]) -> None:
        start = self._start
        self.reset(self._given, 0)
        self._start = start
        for name, arguments in copy.deepcopy(state["calls"]):
            try:
                self.call("agent", name, arguments, 0)
            except BFCLRefusal:  # as it was the first time
                continue


def list_methods(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


def write_result(value: Any) -> str:
    """The text of a result as BFCL writes it: a dict as JSON where it can be, anything else by `str`."""
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return str(value)
    return value if isinstance(value, str) else str(value)


def public_attributes(value: Any) -> dict[str, Any]:
    return {name: each for name, each in vars(value).items() if not name.startswith("_") and name != PARENT}


def name_values(value: Any, path: str, found: dict[str, Any]) -> None:
    """Write path → plain value for all that a value holds. Kinds and sizes of collections are values too, so that equal means equal."""
    if isinstance(value, dict):
        if not value:
            found[path] = "{}"
        for key, each in value.items():
            name_values(each, f"{path}/{key}" if isinstance(key, str) else f"{path}[{key!r}]", found)
    elif isinstance(value, list | tuple):
        found[path] = f"{type(value).__name__} of {len(value)}"
        for number, each in enumerate(value):
            name_values(each, f"{path}[{number}]", found)
    elif isinstance(value, str):
        found[path] = value if len(value) <= LONG else shorten(value)
    elif value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        found[path] = value
    elif hasattr(value, "__dict__") and public_attributes(value):
        for attribute, each in public_attributes(value).items():
            name_values(each, f"{path}.{attribute}", found)
    else:
        found[path] = repr(value)


def shorten(text: str) -> str:
    """The first characters of a long text, its length and its hash."""
    mark = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
    return f"{text[:SHOWN]}… ({len(text)} characters, {mark})"
