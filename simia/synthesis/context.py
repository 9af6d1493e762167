"""What a stage may do for one input: ask models through the engine, and execute generated code in temporary folders."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from simia.llm.embeddings import embed_texts
from simia.llm.engine import Engine
from simia.llm.types import Request
from simia.prompts import load_template
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.settings import EMBEDDINGS, SamplingSettings

T = TypeVar("T")
AGAIN = "This reply cannot be used: {fault}\nReply again, in the form that was asked for."


class ItemContext:
    """The context of one item: implements `StageContext`."""

    def __init__(
        self,
        item: str,
        engines: Mapping[str, Engine],
        sampling: SamplingSettings,
        places: asyncio.Semaphore,
    ) -> None:
        """`engines`: role → engine, with `writer` for roles without one of their own. `places`: how many executions run at once."""
        self._item, self._engines, self._sampling, self._places = item, engines, sampling, places
        self.notes: dict[str, Any] = {}
        self._asked: set[str] = set()

    async def ask(
        self, prompt: str, values: Mapping[str, Any], parse: Callable[[str], T], *, label: str, role: str = "writer"
    ) -> T:
        if label in self._asked:
            raise RuntimeError(f"{self._item}: two questions are labelled {label!r}")
        self._asked.add(label)
        engine = self._engines.get(role) or self._engines["writer"]
        text = load_template(prompt)[0].render(values)
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        fault = ""
        for number in range(self._sampling.tries):
            draw = f"{self._item}.{label}" + (f".again{number}" if number else "")
            request = Request(messages=messages, **self._sampling.request_fields())
            reply = await engine.ask(request, item=self._item, draw=draw)
            try:
                return parse(reply.text)
            except Unreadable as error:
                fault = "it was cut at its token limit" if reply.truncated else str(error)
            again = AGAIN.format(fault=fault)
            messages = [*messages[:1], {"role": "assistant", "content": reply.text}, {"role": "user", "content": again}]
        raise Refused(Reason.UNREADABLE_REPLY, f"{label}: {fault}")

    async def embed(self, texts: Sequence[str], *, label: str) -> list[list[float]] | None:
        engine = self._engines.get(EMBEDDINGS)
        if engine is None:
            return None
        return await embed_texts(engine, texts, item=self._item, draw=f"{self._item}.{label}")

    @contextlib.asynccontextmanager
    async def execution(self) -> AsyncIterator[Path]:
        async with self._places:
            with tempfile.TemporaryDirectory(prefix="simia-synthesis-") as folder:
                yield Path(folder)

    def note(self, **figures: Any) -> None:
        self.notes.update(figures)
