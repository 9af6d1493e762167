"""A model in this process, in place of an endpoint: what it answers is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simia.amplification import session
from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import Usage
from tests.replies import trajectory

Answer = Callable[[Request, str], Reply | LLMFault]


def answer_well(request: Request, draw: str) -> Reply:
    text = trajectory({"messages": request.messages})
    return Reply(text=text, finish="stop", usage=Usage(prompt=100, completion=100))


class StubModel:
    model, alias, structured = "gpt-5-mini", "stub", True

    def __init__(self, answer: Answer = answer_well) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(draw)
        answered = self.answer(request, draw)
        if isinstance(answered, LLMFault):
            raise answered
        return answered


def use_model(monkeypatch: pytest.MonkeyPatch, answer: Answer = answer_well) -> StubModel:
    """Let every amplification of this test ask a `StubModel`."""
    stub = StubModel(answer)

    def open_stub(*_: Any, **__: Any) -> StubModel:
        return stub

    monkeypatch.setattr(session, "open_backend", open_stub)
    return stub
