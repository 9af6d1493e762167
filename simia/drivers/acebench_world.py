"""The driver of ACEBench-Agent's tasks: the API classes of the benchmark, unchanged, behind the methods that the sandbox calls.

It is copied into the imported pack as `tools.py` and needs the standard library and the pack's copy of the classes under `code/`. As in
ACEBench, each class of a task has an object of its own with its own flags, a call is made on every object that has the method, and the last
result counts.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
from pathlib import Path
from typing import Any


class ACEBenchRefusal(Exception):  # noqa: N818 - the tool's own word
    """ACEBench's text for a call that raised."""

    __simia_refusal__ = True


class ACEBenchWorld:
    """The API classes that a task involves; the pack's `acebench.json` names their modules and the attributes that are compared."""

    rolls_back = False  # ACEBench keeps what a call changed before it raised

    def __init__(self, pack: Path) -> None:
        layout = json.loads((pack / "acebench.json").read_bytes())
        sys.path.insert(0, str(pack / "code"))
        self._classes: dict[str, type] = {
            name: getattr(importlib.import_module(f"{layout['package']}.{module}"), name)
            for name, module in layout["classes"].items()
        }
        self._saved: dict[str, list[str]] = layout["saved"]
        self._names = [tool["name"] for tool in json.loads((pack / "tools.json").read_bytes())]
        self._given: dict[str, Any] = {}
        self._calls: list[list[Any]] = []
        self._objects: dict[str, Any] = {}
        self._start: dict[str, Any] = {}

    def tools(self) -> dict[str, dict[str, bool]]:
        """Every tool counts as writing. One that no class has, as `search_reminders`, is refused when it is called."""
        return {"agent": dict.fromkeys(self._names, True), "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode: `initial` names the classes and the data of each."""
        self._given, self._calls, self._objects = initial, [], {}
        config = initial.get("config", {})
        for name in initial.get("classes", []):
            made = self._classes[name]()
            for given in (
                config.get(name, {}),
                config.get("BaseApi", {}),
            ):  # the second overrides the first, as in ACEBench
                made._load_scenario(copy.deepcopy(given), long_context=False)
            self._objects[name] = made
        self._start = self.dump()

    def initial(self) -> dict[str, Any]:
        return self._start

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> str:
        """Return the text that ACEBench gives the model. Raises `ACEBenchRefusal`."""
        self._calls.append([name, copy.deepcopy(arguments)])
        owners = [each for each in self._objects.values() if not name.startswith("_") and hasattr(each, name)]
        if not owners:
            raise ACEBenchRefusal(f"Error during execution: name '{name}' is not defined")
        found: Any = None
        try:
            for owner in owners:
                found = getattr(owner, name)(**copy.deepcopy(arguments))
        except MemoryError:
            raise
        except Exception as error:
            raise ACEBenchRefusal(f"Error during execution: {error}") from None
        return json.dumps(found) if isinstance(found, dict) else str(found)

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> bool:
        """Compare the end state with the recorded one as ACEBench does. Without a call there is none to compare."""
        expected = arguments["expected"]
        found = json.loads(json.dumps({name: each for name, each in self.dump().items() if name != "calls"}))
        if not self._calls or len(expected) != len(found):
            return False
        return all(matches(found.get(name), each) for part in expected for name, each in part.items())

    def dump(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            name: {key: value for key, value in vars(each).items() if key in self._saved[name]}
            for name, each in self._objects.items()
        }
        plain: dict[str, Any] = json.loads(json.dumps({**found, "calls": self._calls}))
        return plain

    def restore(self, state: dict[str, Any]) -> None:
        start = self._start
        self.reset(self._given, 0)
        self._start = start
        for name, arguments in copy.deepcopy(state["calls"]):
            try:
                self.call("agent", name, arguments, 0)
            except ACEBenchRefusal:  # as it was the first time
                continue


def matches(found: dict[str, Any] | None, expected: dict[str, Any]) -> bool:
    """ACEBench's comparison of one class. A class that is not there is not compared; what a dictionary has more is allowed."""
    if found is None:
        return True
    for name, value in found.items():
        if name not in expected:
            return False
        wanted = expected[name]
        if isinstance(wanted, dict):
            if any(key not in value or value[key] != each for key, each in wanted.items()):
                return False
        elif wanted != value:
            return False
    return True
