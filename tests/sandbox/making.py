"""Packs that the tests write, and what they ask of a world: shared by the tests of the sandbox, the worlds and the attacks."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.world import ToolResult
from simia.pack import Pack
from simia.sandbox.copies import _private
from simia.task import Task
from simia.trajectory import ToolCall

ANY = {"type": "object", "additionalProperties": True}

HEAD = """
from __future__ import annotations
from typing import Any
from pydantic import BaseModel
from simia.kit import ToolError, Tools, read, write, user_read, user_write
"""

NOTES = (
    HEAD
    + '''
class State(BaseModel):
    notes: dict[str, str] = {}
    count: int = 0

class Notes(Tools[State]):
    State = State

    @write
    def add(self, text: str) -> dict[str, Any]:
        """Adds a note under a new number."""
        if not text:
            raise ToolError("a note needs text")
        note_id = self.new_id("N-", 6, taken=self.state.notes)
        self.state.notes[note_id] = text
        self.state.count += 1
        return {"note_id": note_id, "at": self.now.isoformat(), "luck": self.random.random()}

    @write
    def spoil(self, how: str) -> None:
        """Changes the state, then fails."""
        self.state.notes.clear()
        self.state.count = -1
        if how == "refuse":
            raise ToolError("not today")
        if how == "exit":
            raise SystemExit(3)
        raise ZeroDivisionError("spoilt")

    @read
    def look(self) -> dict[str, Any]:
        return {"count": self.state.count, "notes": dict(self.state.notes)}
'''
)


def make_pack(
    folder: Path,
    code: str,
    tools: dict[str, Any],
    *,
    object: str = "World",
    isolation: str = "process",
    state: Any = None,
    user_tools: dict[str, Any] | None = None,
    checks: str | None = None,
) -> Pack:
    """A pack of these sources. `tools`: name → JSON Schema of its arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "tools.py").write_text(code, encoding="utf-8")
    head: dict[str, Any] = {
        "format": 1,
        "name": folder.name,
        "tools": "tools.json",
        "executable": {"code": "tools.py", "object": object, "isolation": isolation, "clock": "2025-05-14T10:30:00"},
    }
    for key, rows in (("tools", tools), ("user_tools", user_tools)):
        if rows is not None:
            head[key] = f"{key}.json"
            (folder / f"{key}.json").write_text(
                json.dumps([{"name": n, "description": n, "parameters": p} for n, p in rows.items()])
            )
    if state is not None:
        head["state"] = "state.json"
        (folder / "state.json").write_text(json.dumps(state))
    if checks is not None:
        head["checks"] = "checks.py"
        (folder / "checks.py").write_text(checks)
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    return Pack.load(folder)


def notes_pack(folder: Path, *, isolation: str = "shared", code: str = NOTES) -> Pack:
    tools = {"add": ANY, "spoil": ANY, "look": ANY}
    return make_pack(folder, code, tools, object="Notes", isolation=isolation, state={"notes": {"N-1": "first"}})


async def ask(world: ExecutableWorld, name: str, /, by: Any = "agent", **arguments: Any) -> ToolResult:
    """One call's result."""
    return (await world.call([ToolCall(id="c", name=name, arguments=arguments)], by=by))[0]


@asynccontextmanager
async def opened(pack: Pack, **settings: Any) -> AsyncIterator[ExecutableBackend]:
    backend = ExecutableBackend(pack, **settings)
    try:
        yield backend
    finally:
        await backend.close()


TASK = Task(id="t")


def processes(marker: str) -> list[int]:
    """Processes of this machine that were started with `marker` or have it among their mounts (a pack's folder or its copy is, for all
    in its sandbox), zombies not counted. Copies that another worker of pytest made of a folder of the same name do not count."""
    own = _private.get(os.getpid())
    copies = f"|/{re.escape(own.name)}/{re.escape(Path(marker).name)}-" if own else ""
    pattern = re.compile(re.escape(marker) + copies)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if pattern.search(
                ((entry / "cmdline").read_bytes() + (entry / "mountinfo").read_bytes()).decode(errors="replace")
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def gone(marker: str, seconds: float = 40.0) -> list[int]:
    """Processes that are still there after a while; a killed namespace takes some milliseconds to go."""
    for _ in range(round(seconds / 0.02)):
        if not processes(marker):
            break
        await asyncio.sleep(0.02)
    return processes(marker)
