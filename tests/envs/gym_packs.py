"""Gym packs as CodeGym's recipe writes them (CodeGym §3.3): a hidden input, `observe`, `done`, tools of its own, one answer at the end.

`write_gym_pack` writes the friendly one; `HOSTILE` are further tools that break in every way in which generated code does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import yaml

from simia.pack import Pack

TOOLS = '''
import os

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    numbers: list[int] = [2, 5, 9, 14, 20]
    target: int = 8
    notes: dict[str, int] = {}
    padding: str = ""
    answer: int | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Return how many numbers there are, and the target."""
        return {"length": len(self.state.numbers), "target": self.state.target}

    @read
    def look_up(self, index: int) -> int:
        """Return the number at an index."""
        if not 0 <= index < len(self.state.numbers):
            raise ToolError(f"there is no index {index}")
        return self.state.numbers[index]

    @write
    def note(self, name: str, value: int) -> dict:
        """Remember a value under a name."""
        self.state.notes[name] = value
        return self.state.notes

    @write
    def done(self, answer: int) -> str:
        """Submit the answer."""
        self.state.answer = answer
        self.finish()
        return "submitted"
'''
HOSTILE = '''
    @write
    def half(self, then: str) -> str:
        """Change the state, then fail."""
        self.state.numbers.append(99)
        self.state.target = -1
        self.state.notes["half"] = len(self.state.numbers)
        if then == "raise":
            return str(1 // 0)
        if then == "exit":
            raise SystemExit(3)
        if then == "refuse":
            raise ToolError("refused")
        if then == "loop":
            while True:
                pass
        if then == "swallow":
            while True:
                try:
                    sum(range(10**7))
                except BaseException:
                    pass
        if then == "memory":
            hoard = []
            while True:
                hoard.append("x" * 10**7)
        if then == "recurse":
            return self.half(then)
        if then == "unwritable":
            return {object()}
        if then == "bad state":
            self.state.numbers = object()
            return "written"
        os._exit(7)

    @read
    def sneak(self) -> int:
        """Marked as reading, it changes the state and fails."""
        self.state.numbers.clear()
        return 1 // 0

    @read
    def sneak_and_refuse(self) -> int:
        """Marked as reading, it changes the state and refuses."""
        self.state.target = 0
        raise ToolError("refused")
'''
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "observe": {},
    "look_up": {"index": INTEGER},
    "note": {"name": TEXT, "value": INTEGER},
    "done": {"answer": INTEGER},
}
HOSTILE_PARAMETERS: dict[str, dict[str, Any]] = {"half": {"then": TEXT}, "sneak": {}, "sneak_and_refuse": {}}


def make_tool(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"name": name, "description": f"The tool {name}.", "parameters": schema}


def make_task(number: int, numbers: list[int], target: int, answer: int, **state: Any) -> dict[str, Any]:
    looked_up = [{"name": "look_up", "arguments": {"index": index}} for index in range(len(numbers))]
    return {
        "id": f"easy-{number:02d}",
        "split": "train" if number % 2 else "test",
        "instruction": "A sorted list of numbers is hidden. Find the number that is closest to the target and submit it.",
        "initial": {"patch": {"numbers": numbers, "target": target, **state}},
        "reference": [
            {"name": "observe", "arguments": {}},
            *looked_up,
            {"name": "note", "arguments": {"name": '"@" true', "value": answer}},
            {"name": "done", "arguments": {"answer": answer}},
        ],
        "reward": {
            "parts": [
                {
                    "kind": "checklist",
                    "code": {"answer": f"def check(final, initial):\n    return final['answer'] == {answer}"},
                }
            ]
        },
    }


def write_gym_pack(folder: Path, name: str = "closest", *, hostile: bool = False, **more: Any) -> Pack:
    """Write the pack into `folder` and load it. `more`: further fields of pack.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    parameters = PARAMETERS | (HOSTILE_PARAMETERS if hostile else {})
    tasks = [make_task(1, [2, 5, 9, 14, 20], 8, 9), make_task(2, [1, 4, 6], 5, 4), make_task(3, [7, 30], 9, 7)]
    (folder / "tools.py").write_text(TOOLS + (HOSTILE if hostile else ""))
    (folder / "tools.json").write_bytes(
        orjson.dumps([make_tool(n, properties) for n, properties in parameters.items()])
    )
    (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    (folder / "state.json").write_text("{}")
    (folder / "policy.md").write_text("Solve the task with the tools, then submit the answer with `done`.")
    pack = {
        "format": 2, "name": name, "policy": "policy.md", "tools": "tools.json", "state": "state.json", "tasks": "tasks.jsonl",
        "user": "none", "ends": ["done"], "executable": {"code": "tools.py", "object": "Gym"}, **more,
    }  # fmt: skip
    (folder / "pack.yaml").write_text(yaml.safe_dump(pack, sort_keys=False))
    return Pack.load(folder)
