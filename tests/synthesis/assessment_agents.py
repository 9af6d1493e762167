"""Agents of an assessment as back ends: their replies are fixtures that were written as a model would write them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simia.llm.types import Reply, Request

FIXTURES = Path(__file__).parent / "fixtures" / "discover"
CALLS: dict[str, Any] = json.loads((FIXTURES / "test_calls.json").read_text())
HOSTILE_CALLS = (FIXTURES / "hostile_calls.jsonl").read_text().splitlines()
HOSTILE_VERDICTS = (FIXTURES / "hostile_verdicts.jsonl").read_text().splitlines()
TARGET = re.compile(r"Now write one (positive|negative) call of the tool (\w+)")
Answer = Callable[[str, str], str]
"""(prompt, draw) → reply."""


def number_of(draw: str) -> int:
    """The number of the round in its chain."""
    found = re.search(r"\d+-(\d+)", draw)
    assert found is not None
    return int(found[1])


def write_test_call(prompt: str, draw: str) -> str:
    """The next fixture call of the tool and intent that the prompt asks for."""
    found = TARGET.search(prompt)
    assert found is not None
    calls = CALLS[found[2]][found[1]]
    call = calls[number_of(draw) % len(calls)]
    return f"I try this:\n\n```json\n{json.dumps({'tool': found[2], **call})}\n```"


def write_hostile_call(prompt: str, draw: str) -> str:
    return HOSTILE_CALLS[number_of(draw) % len(HOSTILE_CALLS)]


def check_carefully(prompt: str, draw: str) -> str:
    """Fails a call that succeeded in a tool that writes, and changed nothing, as a careful model does."""
    success = "The result (success)" in prompt
    silent = success and "It may change the records" in prompt and prompt.rstrip().endswith("changes:\n[]")
    verdict = {"reason": "Nothing changed." if silent else "As the rules say.", "passed": not silent}
    return f"```json\n{json.dumps(verdict)}\n```"


def check_nothing(prompt: str, draw: str) -> str:
    return HOSTILE_VERDICTS[number_of(draw) % len(HOSTILE_VERDICTS)]


class AgentBackend:
    """One agent. `delay`: seconds by draw, to change the order of arrival."""

    structured = False

    def __init__(self, name: str, answer: Answer, delay: Callable[[str], float] = lambda _: 0.0) -> None:
        self.alias = self.model = name
        self._answer, self._delay = answer, delay
        self.asked: list[str] = []
        self.prompts: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        prompt = request.messages[0]["content"]
        self.prompts.append(prompt)
        await asyncio.sleep(self._delay(draw))
        text = self._answer(prompt, draw)
        self.asked.append(draw)
        return Reply(text=text)
