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
    """The result of a call. `content`: the text for the caller; `data`: its JSON value, if any; `detail`: for authors of packs, not
    shown to the agent; `ends`: the episode is over."""

    call_id: str
    content: str
    data: Any = None
    error: Code | None = None
    detail: str = ""
    ends: bool = False


class World(Protocol):
    """One episode's world. Raises `Aborted` when its infrastructure fails, and nothing else."""

    tools: Mapping[By, Sequence[ToolSpec]]

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        """Run the calls in order, each as a transaction: a call that fails leaves the state unchanged."""

    async def state(self) -> Any | None:
        """Return the whole state as JSON; None where a world has none."""

    async def changes(self) -> list[dict[str, Any]] | None:
        """Return the changes of the state since the start of the episode; None where a world has no state."""

    async def evidence(self, turns: Sequence[list[dict[str, Any]] | None] = ()) -> dict[str, Any]:
        """Return what scoring needs of the state: see docs/packs.md. `turns`: `changes()` at the end of each turn of the user, for
        tasks with goals."""

    async def snapshot(self) -> bytes:
        """Return what is needed to open the same episode again, also in another process."""

    async def close(self) -> None: ...


class Backend(Protocol):
    """Opens worlds of one pack. A back end may have a `scorer`, which then judges in place of the tasks' rules."""

    async def start(self) -> None:
        """Start what all worlds need; `open` does it too. Raises `UserError` when the user must change something first."""

    async def open(self, task: Task, *, seed: int, group: str | None, snapshot: bytes | None = None) -> World: ...

    async def close(self) -> None: ...
