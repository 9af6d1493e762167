"""The driver of tau-bench's domains: the benchmark's tools, unchanged, behind the methods that the sandbox calls.

It is copied into the imported pack as `tools.py`; the tools and the data lie under `code/`. The standard library is all that they need. The
state is the domain's data, which is JSON.
"""

from __future__ import annotations

import importlib
import json
import marshal
import sys
from pathlib import Path
from typing import Any

ERROR = "Error: "


class TauBenchRefusal(Exception):  # noqa: N818 - the tool's own word
    """A tool's text that begins with `Error: `, or what tau-bench makes of an exception."""

    __simia_refusal__ = True


class TauBenchWorld:
    """One domain; the pack's `taubench.json` names it."""

    rolls_back = False  # tau-bench keeps what a call changed before it raised

    def __init__(self, pack: Path) -> None:
        layout = json.loads((pack / "taubench.json").read_bytes())
        sys.path.insert(0, str(pack / "code"))
        package = f"tau_bench.envs.{layout['domain']}"
        self._load = importlib.import_module(f"{package}.data").load_data
        tools = importlib.import_module(f"{package}.tools").ALL_TOOLS
        self._tools: dict[str, Any] = {tool.get_info()["function"]["name"]: tool for tool in tools}
        self._ending: list[str] = layout["ending"]
        self._pristine = self._load()
        self._data: Any = self._load()
        self._untouched = True
        self.ended = False

    def tools(self) -> dict[str, dict[str, bool]]:
        """Every tool counts as writing: tau-bench does not say which do."""
        return {"agent": dict.fromkeys(self._tools, True), "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode. `initial` is empty: each task starts from the domain's data."""
        if not self._untouched:
            self._data = self._load()
        self._untouched = self.ended = False

    def initial(self) -> Any:
        return self._pristine

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> str:
        """Return what tau-bench's environment answers. Raises `TauBenchRefusal`."""
        try:
            found = self._tools[name].invoke(data=self._data, **arguments)
        except MemoryError:
            raise
        except Exception as error:
            raise TauBenchRefusal(f"{ERROR}{error}") from None
        self.ended = name in self._ending
        text = found if isinstance(found, str) else str(found)
        if text.startswith(ERROR):
            raise TauBenchRefusal(text)
        return text

    def dump(self) -> Any:
        """Return a copy: the data change in place."""
        return copy_json(self._data)

    def restore(self, state: Any) -> None:
        self._untouched = False
        self._data = copy_json(state)


def copy_json(value: Any) -> Any:
    """A copy of megabytes of JSON in some hundredths of a second."""
    return marshal.loads(marshal.dumps(value))
