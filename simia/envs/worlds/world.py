"""The protocols of a world and of the back end that opens it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simia.errors import Code
from simia.task import By, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave. `content` is what the caller reads; `data` the JSON value behind it, if any; `detail` for authors;
    `ends`: the episode is over."""

    call_id: str
    content: str
    data: Any = None
    error: Code | None = None
    detail: str = ""
    ends: bool = False


class World(Protocol):
    """One episode's world. Raises `Aborted` when its infrastructure gives way, and nothing else."""

    tools: Mapping[By, Sequence[ToolSpec]]

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        """In order, each a transaction of its own: a call that fails leaves the state as it was."""

    async def state(self) -> Any | None:
        """The whole state as JSON; None where a world has none."""

    async def evidence(self) -> dict[str, Any]:
        """What scoring needs of the state: see docs/packs.md."""

    async def snapshot(self) -> bytes:
        """Enough to open the same episode again, now or later, here or elsewhere."""

    async def close(self) -> None: ...


class Backend(Protocol):
    """Opens worlds of one pack, and is shared by them all."""

    async def start(self) -> None:
        """Make ready what all worlds need. Raises `UserError` when the user must change something first. `open` does it too."""

    async def open(self, task: Task, *, seed: int, group: str | None, snapshot: bytes | None = None) -> World: ...

    async def close(self) -> None: ...
