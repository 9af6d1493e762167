"""A judge in this process that says what a test wants, and counts how often it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import Usage

Answer = Callable[[Request, str], str | Reply | LLMFault]


def said(**points: Any) -> str:
    return json.dumps({name: {"why": f"because of {name}", "pass": value} for name, value in points.items()})


class FakeJudge:
    """A back end. `answer` gets the request and the draw."""

    alias = "fake"

    def __init__(self, answer: Answer, *, model: str = "m", structured: bool = True) -> None:
        self.answer, self.model, self.structured = answer, model, structured
        self.asked: list[tuple[Request, str]] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append((request, draw))
        reply = self.answer(request, draw)
        if isinstance(reply, LLMFault):
            raise reply
        usage = Usage(prompt=100, completion=10)
        return reply if isinstance(reply, Reply) else Reply(text=reply, finish="stop", usage=usage)
