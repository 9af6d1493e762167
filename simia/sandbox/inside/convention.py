"""What the drivers of `simia.kit`'s classes have in common: which tools there are, and how one is called."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

JSON = Any


class ToolRefusal(Exception):  # noqa: N818 - the tool's own word
    """A declared refusal, in words for the agent."""


class PackCode(Protocol):
    """A pack's code as its drivers read it; `drivers.Loaded` makes one."""

    folder: Path
    spec: dict[str, Any]
    root: Path | None
    object: Any
    names: dict[str, dict[str, bool]]


class KitDriver:
    """An episode whose world is an object with marked methods."""

    loaded: PackCode
    tools: Any

    @property
    def known(self) -> dict[str, dict[str, bool]]:
        return self.loaded.names

    @property
    def ended(self) -> bool:
        return bool(self.tools.ended)

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        if name not in self.loaded.names[by]:
            raise ToolRefusal(f"there is no tool {name!r}")
        self.tools.begin(index, by)
        return to_json_value(getattr(self.tools, name)(**arguments))


def to_json_value(value: Any) -> JSON:
    """A tool's result as a JSON value."""
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
