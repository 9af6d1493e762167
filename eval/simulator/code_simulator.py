"""A model that simulates a pack exactly: it runs the called tool on the state that the prompt shows, and computes its answer from that alone.

It reads only the prompt, so an answer is right only if the prompt shows the current rows that the call uses.
The pack's code runs in this process without a sandbox, so use it only for trusted packs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from simia.keyed_changes import compute_keyed_changes
from simia.kit import SECONDS_A_CALL
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.sandbox.inside.drivers import make_driver
from simia.sandbox.inside.loading import LoadedPack

Corruption = Callable[[dict[str, Any], Request], dict[str, Any]]
CALL = re.compile(r"1\. (?P<by>\w+): (?P<name>\S+) (?P<arguments>\{.*\})")


class CodeSimulator:
    """Answers one call a request. `corrupt`: changes an answer before it is sent; `latency`: seconds of a reply."""

    alias, model, structured = "code", "code", False

    def __init__(self, pack: Pack, *, corrupt: Corruption | None = None, latency: float = 0.0) -> None:
        how = pack.executable
        assert how is not None
        assert pack.root is not None
        self.pack, self.corrupt, self.latency = pack, corrupt, latency
        self.clock = how.clock or datetime(2025, 1, 1)
        state = pack.file.state if pack.file else None
        spec = {"code": how.code, "object": how.object, "state": state, "clock": self.clock.isoformat()}
        self.loaded = LoadedPack(pack.root, spec)
        self.asked: list[Request] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(request)
        await asyncio.sleep(self.latency)
        answer = self.answer(str(request.messages[1]["content"]))
        if self.corrupt is not None:
            answer = self.corrupt(answer, request)
        return Reply(text=json.dumps({"answers": [{"call": 1, **answer}]}))

    def answer(self, prompt: str) -> dict[str, Any]:
        """The outcome, content and changes of the call that a prompt asks for."""
        call = CALL.fullmatch(cut_section(prompt, "Calls to answer now"))
        assert call is not None, prompt[-300:]
        time = cut_section(prompt, "Time of the system")
        number = round((datetime.fromisoformat(time) - self.clock).total_seconds()) // SECONDS_A_CALL if time else 0
        driver = make_driver(self.loaded, isolated=True)
        driver.reset({"state": self.read_state(prompt)}, 0)
        before = driver.dump()
        try:
            content = driver.call(call["by"], call["name"], json.loads(call["arguments"]), number)
        except Exception as error:
            if not getattr(type(error), "__simia_refusal__", False):
                raise
            return {"outcome": "error", "content": str(error), "changes": []}
        changes = compute_keyed_changes(before, driver.dump(), self.pack.state_schema)
        return {"outcome": "result", "content": content, "changes": changes}

    def read_state(self, prompt: str) -> dict[str, Any]:
        """The state that a prompt shows."""
        found: dict[str, Any] = {name: {} for name, value in self.loaded.pristine.items() if isinstance(value, dict)}
        for line in cut_section(prompt, "The system's data now").splitlines():
            if line.startswith("("):
                continue
            label, _, value = line.partition(": ")
            table, _, key = label.partition(" ")
            if key:
                found[table][key] = json.loads(value)
            else:
                found[table] = json.loads(value)
        return found


def cut_section(prompt: str, title: str) -> str:
    """The text under a title of a prompt; empty where it has none."""
    _, found, rest = f"\n{prompt}".partition(f"\n# {title}\n")
    return re.split(r"\n# ", rest, maxsplit=1)[0].strip() if found else ""
