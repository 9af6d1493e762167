"""A model in the test's own process: answers by a function, and fails where it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from simia.errors import Code
from simia.llm.types import LLMFault, Reply, Request


class WordBackend:
    """`faults`: draw → what a question meets in place of a reply, once for each code of its list."""

    alias, model, structured = "words", "words", False

    def __init__(
        self, respond: Callable[[dict[str, Any]], str], faults: Mapping[str, list[Code]] | None = None
    ) -> None:
        self.asked: list[str] = []
        self.respond, self.faults = respond, {draw: list(codes) for draw, codes in (faults or {}).items()}

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(draw)
        await asyncio.sleep(0.001 * (len(draw) % 3))
        if self.faults.get(draw):
            raise LLMFault(self.faults[draw].pop(0), "planned", retry=False)
        return Reply(text=self.respond({"messages": request.messages}))
