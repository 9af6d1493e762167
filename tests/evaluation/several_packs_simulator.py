"""A model that simulates several packs exactly, each by its own code on the state in the prompt, and corrupts the answers that a test names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from eval.simulator.code_simulator import CodeSimulator, Corruption, cut_section
from simia.llm.types import Reply, Request
from simia.pack import Pack


class ShownStateSimulator(CodeSimulator):
    """What a prompt does not show is as the pack has it: the called tool does not touch it."""

    def read_state(self, prompt: str) -> dict[str, Any]:
        found = {name: {} if isinstance(value, dict) else value for name, value in self.loaded.pristine.items()}
        shown: set[str] = set()
        for line in cut_section(prompt, "The system's data now").splitlines():
            if line.startswith("("):
                continue
            label, _, value = line.partition(": ")
            table, _, key = label.partition(" ")
            if not key:
                found[table] = json.loads(value)
            elif isinstance(self.loaded.pristine.get(table), list):
                found[table] = [*(found[table] if table in shown else []), json.loads(value)]
            else:
                found[table][key] = json.loads(value)
            shown.add(table)
        return found


class SeveralPacksSimulator:
    """Answers by the pack that has most of the tools in the prompt."""

    alias, model, structured = "code", "code", False

    def __init__(self, packs: Iterable[Pack], *, corrupt: Corruption | None = None) -> None:
        self.each = [ShownStateSimulator(pack, corrupt=corrupt) for pack in packs]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        system = str(request.messages[0]["content"])
        one = max(self.each, key=lambda each: sum(f"## {tool.name}\n" in system for tool in each.pack.tools))
        return await one.complete(request, draw=draw)
