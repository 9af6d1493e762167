"""A small pack of our own for trainers: a house with lamps, as conversations with a user or as errands without one."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

LAMPS = ("kitchen", "hall", "attic", "porch")
WORLD = """
from pydantic import BaseModel
from simia.kit import ToolError, Tools, write


class State(BaseModel):
    lamps: dict[str, bool]


class House(Tools[State]):
    State = State

    @write
    def switch(self, lamp: str, on: bool) -> dict[str, object]:
        if lamp not in self.state.lamps:
            raise ToolError(f"there is no lamp {lamp!r}")
        self.state.lamps[lamp] = on
        return {"lamp": lamp, "on": on}
"""


def conversations() -> list[dict[str, Any]]:
    """A task asks for one lamp to be switched on, and then for another to be switched off."""
    tasks = []
    for number, (first, second) in enumerate(pairwise((*LAMPS, LAMPS[0]))):
        script = [
            {"user": f"Switch the {first} lamp on."},
            {"calls": [{"name": "switch", "arguments": {"lamp": first, "on": True}}]},
            {"agent": "Done."},
            {"user": f"Now the {second} lamp off."},
            {"calls": [{"name": "switch", "arguments": {"lamp": second, "on": False}}]},
            {"agent": "Done."},
        ]
        patch = {"patch": {"lamps": {second: True}}}
        parts = [{"kind": "state", "partial": True}]
        tasks.append({"id": f"lamps-{number}", "initial": patch, "script": script, "reward": {"parts": parts}})
    return tasks


def errands() -> list[dict[str, Any]]:
    """A task asks for one lamp, once."""
    tasks = []
    for number, lamp in enumerate(LAMPS):
        words = f"Switch the {lamp} lamp on."
        script = [
            {"user": words},
            {"calls": [{"name": "switch", "arguments": {"lamp": lamp, "on": True}}]},
            {"agent": "Done."},
        ]
        tasks.append({"id": f"errand-{number}", "instruction": words, "script": script})
    return tasks


def write(root: Path, tasks: list[dict[str, Any]]) -> Path:
    root.mkdir(parents=True)
    head = {
        "format": 1, "name": root.name, "policy": "policy.md", "tools": "tools.json", "state": "state.json",
        "tasks": "tasks.jsonl", "executable": {"code": "tools.py", "object": "House", "isolation": "shared"},
    }  # fmt: skip
    properties = {"lamp": {"type": "string"}, "on": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["lamp", "on"], "additionalProperties": False}
    (root / "pack.yaml").write_text(yaml.safe_dump(head))
    (root / "policy.md").write_text("You switch lamps.\n")
    (root / "tools.json").write_text(
        json.dumps([{"name": "switch", "description": "Switch a lamp on or off.", "parameters": schema}])
    )
    (root / "state.json").write_text(json.dumps({"lamps": dict.fromkeys(LAMPS, False)}))
    (root / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (root / "tools.py").write_text(WORLD)
    return root


def respond(body: dict[str, Any]) -> str:
    """For the fake endpoint: the lamps' computer, and a judge who looks at what happened."""
    system, last = str(body["messages"][0]["content"]), str(body["messages"][-1]["content"])
    if system.startswith("You judge"):
        solved = '"on":true' in last.split("# What happened")[1].replace(" ", "")
        return json.dumps({"why": "looked at the lamp", "solved": solved})
    count = last.split("# Calls to answer now")[1].strip().count("\n") + 1
    row = {"outcome": "result", "content": {"ok": True}, "changes": []}
    return json.dumps({"answers": [{"call": n + 1, **row} for n in range(count)]})
