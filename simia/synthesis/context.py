"""The context of a stage's work on one input: it asks models, and gives temporary folders in which generated code is executed."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from simia.errors import UserError
from simia.llm.embeddings import embed_texts
from simia.llm.repeated_questions import repeat_question
from simia.llm.types import Reply, Request
from simia.prompts import load_template
from simia.sandbox.capabilities import require_isolation
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.settings import EMBEDDINGS, SamplingSettings
from simia.synthesis.stage_figures import Spending, measure_usage

T = TypeVar("T")
FOLDER = "simia-synthesis-"


class Asker(Protocol):
    """A source of replies: an engine, or the stored replies of a run."""

    async def ask(self, request: Request, *, item: str, draw: str) -> Reply: ...

    def find_asked(self, request: Request, draw: str) -> Request:
        """Return the request that the reply answers, which may be a recorded one."""


class ItemContext:
    """The context of one item: implements `StageContext`."""

    def __init__(
        self,
        item: str,
        askers: Mapping[str, Asker],
        sampling: SamplingSettings,
        places: asyncio.Semaphore,
        keep_prompt: Callable[[str, str], None] = lambda name, hashed: None,
    ) -> None:
        """`askers`: role → source of replies; roles without an entry use `writer`. `places`: limits how many executions run at once.
        `keep_prompt`: called with the name and the hash of a prompt file before it is used."""
        self._item, self._askers, self._sampling, self._places = item, askers, sampling, places
        self._keep_prompt = keep_prompt
        self.notes: dict[str, Any] = {}
        self.spent = Spending()
        self.user_error: UserError | None = None
        """An error that the user must correct before a question can be asked; it ends the session."""
        self._asked: set[str] = set()
        self._running = 0
        self._idle = asyncio.Event()
        self._closed = False

    async def ask(
        self, prompt: str, values: Mapping[str, Any], parse: Callable[[str], T], *, label: str, role: str = "writer"
    ) -> T:
        with self._count_running():
            if label in self._asked:
                raise RuntimeError(f"{self._item}: two questions are labelled {label!r}")
            self._asked.add(label)
            messages: list[dict[str, Any]] = [{"role": "user", "content": self._render(prompt, values)}]
            fault = ""
            for number in range(self._sampling.tries):
                draw = f"{self._item}.{label}" + (f".again{number}" if number else "")
                request = Request(messages=messages, **self._sampling.request_fields())
                reply = await self._send(self._askers.get(role) or self._askers["writer"], request, draw)
                try:
                    return parse(reply.text)
                except Unreadable as error:
                    fault = "it was cut at its token limit" if reply.truncated else str(error)
                messages = repeat_question(messages[0], reply.text, fault)
            raise Refused(Reason.UNREADABLE_REPLY, f"{label}: {fault}")

    def _render(self, prompt: str, values: Mapping[str, Any]) -> str:
        try:
            template, hashed = load_template(prompt)
            text = template.render(values)
            self._keep_prompt(prompt, hashed)
        except UserError as error:
            self.user_error = error
            raise
        return text

    async def send(self, request: Request, *, label: str, role: str = "writer") -> Reply:
        with self._count_running():
            return await self._send(self._askers.get(role) or self._askers["writer"], request, f"{self._item}.{label}")

    async def _send(self, asker: Asker, request: Request, draw: str) -> Reply:
        try:
            reply = await asker.ask(request, item=self._item, draw=draw)
        except UserError as error:
            self.user_error = error
            raise
        self.spent.add_reply(measure_usage(asker.find_asked(request, draw), reply))
        return reply

    async def embed(self, texts: Sequence[str], *, label: str) -> list[list[float]] | None:
        asker = self._askers.get(EMBEDDINGS)
        if asker is None:
            return None
        with self._count_running():
            return await embed_texts(partial(self._send, asker), texts, draw=f"{self._item}.{label}")

    @contextlib.asynccontextmanager
    async def execution(self) -> AsyncIterator[Path]:
        try:
            await asyncio.to_thread(require_isolation)
        except UserError as error:
            self.user_error = error
            raise
        with self._count_running():
            async with self._places:
                with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
                    yield Path(folder)

    def note(self, **figures: Any) -> None:
        self.notes.update(figures)

    @contextlib.contextmanager
    def _count_running(self) -> Iterator[None]:
        if self._closed:
            raise RuntimeError(f"{self._item}: its stage has ended")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._idle.set()

    async def settle(self) -> None:
        """Wait until questions and executions that parallel parts of the stage have begun are finished, so that all replies are stored.
        From then on new ones are refused."""
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        self._closed = True
